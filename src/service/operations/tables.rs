//! Operations on tables and their policies (protocol §3.1 to §3.5).

use super::printer::{Printer, TABLES};
use crate::error::{Code, Result};
use crate::protocol::codec::atom::write::AtomDocument;
use crate::protocol::codec::json::write::{self as json, Select};
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::model::{TableName, Ticks};
use crate::protocol::plan::{TablePage, TableScan, page};
use crate::protocol::request::Representation;
use crate::protocol::request::target::key_count_mismatch;
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn query(
    store: &Store,
    scan: &TableScan,
    select: Option<&Select>,
    printer: &Printer<'_>,
) -> Result<Answer> {
    // A page with `$top=0` has no continuation token: a client that followed the token would never finish.
    let found = match scan.rows {
        0 => TablePage::default(),
        _ => store.list_tables(printer.account(), scan).await?,
    };
    let names = found.tables.iter().map(|table| table.name.as_str());
    let answer = printer.document(200, AtomDocument::Feed, |representation| {
        Ok(match representation {
            Representation::Json(metadata) => {
                json::table_feed(&printer.context(metadata, TABLES, select), names)
            }
            Representation::Atom(style) => printer.atom(style, TABLES, select).table_feed(names),
        })
    })?;
    Ok(match &found.next {
        None => answer,
        Some(next) => {
            answer.with("x-ms-continuation-NextTableName", page::table_token(&next.name, next.created))
        }
    })
}

pub(super) async fn get(store: &Store, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    match store.get_table(table.in_account(printer.account())).await? {
        Some(entry) => printer.table_document(200, &entry.name),
        None => Err(Code::ResourceNotFound.into()),
    }
}

pub(super) async fn create(store: &Store, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    store.create_table(table.in_account(printer.account()), printer.now).await?;
    let location = format!("{}/Tables('{}')", printer.target.base, table.as_given());
    printer.print_created(location, || printer.table_document(201, table.as_given()))
}

/// Deletes a table, which can be restored for `keep_ticks`.
pub(super) async fn delete(
    store: &Store,
    table: &TableName,
    keep_ticks: i64,
    printer: &Printer<'_>,
) -> Result<Answer> {
    let (table, now) = (table.in_account(printer.account()), Ticks::now());
    match keep_ticks {
        0 => store.delete_table(table, now).await?,
        keep_ticks => store.delete_and_keep(table, now, now.later(keep_ticks)).await?,
    }
    Ok(Answer::table_empty(204))
}

pub(super) async fn get_policies(store: &Store, table: &TableName, printer: &Printer<'_>) -> Result<Answer> {
    let stored = store.policies(table.in_account(printer.account())).await?;
    let found = stored.map(|text| policies::from_stored(&text)).transpose()?.unwrap_or_default();
    Ok(Answer::xml_document(200, policies::write(&found)))
}

pub(super) async fn set_policies(
    store: &Store,
    table: &TableName,
    new: &[Policy],
    printer: &Printer<'_>,
) -> Result<Answer> {
    store.set_policies(table.in_account(printer.account()), &policies::to_stored(new)?).await?;
    Ok(Answer::status_only(204))
}

/// Refuses a path below a table. As recorded, the error depends on whether the table exists.
pub(super) async fn refuse_below(
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
