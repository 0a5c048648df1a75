//! Get Table (protocol §3.2).

use super::printer::Printer;
use crate::error::{Code, Result};
use crate::protocol::model::TableName;
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(store: &Store, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    match store.get_table(table.in_account(printer.account())).await? {
        Some(entry) => printer.table_document(200, &entry.name),
        None => Err(Code::ResourceNotFound.into()),
    }
}
