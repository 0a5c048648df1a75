//! Get Entity (protocol §3.8).

use super::printer::Printer;
use crate::error::{Code, Result};
use crate::observe::metrics::METRICS;
use crate::protocol::codec::json::write::Select;
use crate::protocol::model::version::etag;
use crate::protocol::model::{Key, TableName};
use crate::service::Answer;
use crate::service::answer::ETAG;
use crate::store::Store;

pub(super) async fn run(
    store: &Store,
    table: &TableName,
    key: &Key,
    select: Option<&Select>,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let Some(entity) = store.get(table.in_account(printer.account()), key).await? else {
        return Err(Code::ResourceNotFound.into());
    };
    METRICS.requests.entity();
    let answer = printer.entity_document(200, table.as_given(), &entity, select)?;
    Ok(answer.with(ETAG, etag(entity.modified)))
}
