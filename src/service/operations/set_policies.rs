//! Set Table ACL (protocol §3.5).

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::model::TableName;
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(
    store: &Store,
    table: &TableName,
    new: &[Policy],
    printer: &Printer<'_>,
) -> Result<Answer> {
    store.set_policies(table.in_account(printer.account()), &policies::to_stored(new)?).await?;
    Ok(Answer::bare(204))
}
