//! Create Table (protocol §3.3).

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::model::TableName;
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(store: &Store, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    store.create_table(table.in_account(printer.account()), printer.now).await?;
    let location = format!("{}/Tables('{}')", printer.target.base, table.as_given());
    printer.created(location, || printer.table_document(201, table.as_given()))
}
