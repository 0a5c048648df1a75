//! Delete Table (protocol §3.4).

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::model::{TableName, Ticks};
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(store: &Store, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    store.delete_table(table.in_account(printer.account()), Ticks::now()).await?;
    Ok(Answer::empty(204))
}
