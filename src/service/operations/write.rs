//! Insert, replace, merge, upsert and delete of one entity (protocol §3.9 to §3.11). `plan::decide`
//! implements their semantics.

use super::printer::Printer;
use crate::error::Result;
use crate::protocol::codec::json::write::as_stored;
use crate::protocol::codec::uri;
use crate::protocol::model::TableName;
use crate::protocol::model::version::etag;
use crate::protocol::plan::{Write, WriteKind, Written};
use crate::service::Answer;
use crate::service::answer::ETAG;
use crate::store::Store;

pub(super) async fn run(
    store: &Store,
    table: &TableName,
    write: &Write,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let written = store.write(table.in_account(printer.account()), write, printer.now).await?;
    print(table, write, written, printer)
}

/// Returns the response to a completed write, alone or in a change set.
pub(crate) fn print(
    table: &TableName,
    write: &Write,
    written: Written,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let Some(modified) = written.modified else { return Ok(Answer::empty(204)) };
    if write.kind != WriteKind::Insert {
        return Ok(printer.preferring(Answer::empty(204)).with(ETAG, etag(modified)));
    }
    let table = table.as_given();
    let address = uri::entity_address(table, &write.key.partition, &write.key.row);
    let answer = printer.created([&printer.target.base, "/", &address].concat(), || {
        let entity = as_stored(write.key.clone(), write.properties.stored().clone(), modified);
        printer.entity_document(201, table, &entity, None)
    })?;
    Ok(answer.with(ETAG, etag(modified)))
}
