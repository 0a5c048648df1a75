//! Delete Table (protocol §3.4).

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::model::{TableName, Ticks};
use crate::service::Answer;
use crate::store::Backend;

pub(super) async fn run(store: &impl Backend, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    store.delete_table(printer.account(), table, Ticks::now()).await?;
    Ok(Answer::empty(204))
}
