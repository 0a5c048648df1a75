//! Get Table (protocol §3.2).

use super::printer::Printer;
use crate::error::{Code, Result};
use crate::protocol::model::TableName;
use crate::service::Answer;
use crate::store::Backend;

pub(super) async fn run(store: &impl Backend, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    match store.get_table(printer.account(), table).await? {
        Some(entry) => printer.table_document(200, &entry.name),
        None => Err(Code::ResourceNotFound.into()),
    }
}
