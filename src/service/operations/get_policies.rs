//! Get Table ACL (protocol §3.5).

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::codec::policies;
use crate::protocol::model::TableName;
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(store: &Store, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    let stored = store.policies(table.in_account(printer.account())).await?;
    let found = stored.map(|text| policies::from_stored(&text)).transpose()?.unwrap_or_default();
    Ok(Answer::xml(200, policies::write(&found)))
}
