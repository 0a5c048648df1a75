//! Delete Table (protocol §3.4).

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::model::{TableName, Ticks};
use crate::service::Answer;
use crate::store::Store;

/// Deletes the table. The table can be restored for `keep` ticks.
pub(super) async fn run(
    store: &Store,
    table: &TableName,
    keep: i64,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let (table, now) = (table.in_account(printer.account()), Ticks::now());
    match keep {
        0 => store.delete_table(table, now).await?,
        keep => store.delete_and_keep(table, now, now.later(keep)).await?,
    }
    Ok(Answer::empty(204))
}
