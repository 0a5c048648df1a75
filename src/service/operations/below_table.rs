//! Answers a path below a table with an error that depends on the table, as recorded.

use super::printer::Printer;
use crate::error::{Code, Result};
use crate::protocol::model::TableName;
use crate::protocol::request::target::key_count_mismatch;
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(
    store: &Store,
    table: &TableName,
    is_query: bool,
    printer: &Printer<'_>,
) -> Result<Answer> {
    Err(match store.get_table(table.in_account(printer.account())).await? {
        None => Code::TableNotFound.into(),
        Some(_) if is_query => Code::NotImplemented.into(),
        Some(_) => key_count_mismatch(printer.account(), table.as_given()),
    })
}
