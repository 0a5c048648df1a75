//! Query Tables (protocol §3.1).

use super::printer::{Printer, TABLES, in_atom};
use crate::error::Result;
use crate::protocol::codec::atom::write::AtomDocument;
use crate::protocol::codec::json::write::{self as json, Select};
use crate::protocol::plan::{TablePage, TableScan, page};
use crate::protocol::request::Representation;
use crate::service::Answer;
use crate::store::Store;

pub(super) async fn run(
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
    print(&found, select, printer)
}

fn print(found: &TablePage, select: Option<&Select>, printer: &Printer<'_>) -> Result<Answer> {
    let names = found.tables.iter().map(|table| table.name.as_str());
    let answer = match printer.format.for_body()? {
        Representation::Json(metadata) => {
            let body = json::table_feed(&printer.context(metadata, TABLES, select), names);
            Answer::document(200, metadata.content_type(), body)
        }
        Representation::Atom(style) => {
            let body = printer.atom(style, TABLES, select).table_feed(names);
            in_atom(200, style, AtomDocument::Feed, body)
        }
    };
    Ok(match &found.next {
        None => answer,
        Some(next) => {
            answer.with("x-ms-continuation-NextTableName", page::table_token(&next.name, next.created))
        }
    })
}
