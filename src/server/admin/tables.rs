//! `/tables`: the sizes of an account's tables.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::call::Outcome;
use super::{Call, Refusal, Reply};
use crate::error::{Code, Error};
use crate::operator::to_json;
use crate::operator::totals::{self, TableTotal};
use crate::protocol::model::{Key, TableName, Ticks};
use crate::protocol::plan::TableScan;
use crate::protocol::plan::scan::MAX_TIME;
use crate::protocol::plan::span::Span;
use crate::store::{Failure, Store, TableSize};

/// Maximum and default number of tables of one answer.
const TABLES: usize = 25;
/// Maximum number of entities that are counted in each table.
const SAMPLE: u32 = 10_000;
/// After this time an answer ends with the tables measured so far.
const TIME_FOR_TABLES: Duration = Duration::from_secs(5);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TablesReport<'a> {
    account: &'a str,
    /// How the numbers were measured.
    method: String,
    tables: Vec<Measured>,
    /// The `from` of the next call; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Measured {
    name: String,
    created: String,
    entities: u64,
    bytes: u64,
    /// Whether the numbers are exact. Otherwise they are lower bounds.
    complete: bool,
    /// The numbers of the whole table, see [`TableTotal`].
    total: Value,
}

/// Lists tables of an account in the order of their names, with their sizes. At most [`SAMPLE`]
/// entities of each are counted, so that the cost of a call does not depend on the sizes.
///
/// # Errors
/// 400 for invalid parameters; 404 for an unknown account; errors of the database.
pub(crate) async fn tables(call: &Call<'_>) -> Outcome {
    let begun = Instant::now();
    let account = call.query("account")?.ok_or_else(|| Refusal::bad_request("account: missing"))?;
    call.check_account(&account)?;
    let rows = match call.query("limit")?.map(|text| text.parse::<usize>()) {
        None => TABLES,
        Some(Ok(limit)) if (1..=TABLES).contains(&limit) => limit,
        Some(_) => return Err(Refusal::bad_request(format!("limit: must be 1 to {TABLES}"))),
    };
    let from = call.query("from")?.unwrap_or_default().to_ascii_lowercase();
    let spans = vec![Span { lower: Key::new(from, ""), upper: None }];
    let store = call.store();
    let scan = TableScan { spans, residual: None, rows, time: MAX_TIME };
    let page = store.list_tables(&account, &scan).await.map_err(Error::from)?;
    let mut next = page.next.map(|entry| entry.name);
    let mut measured = Vec::with_capacity(page.tables.len());
    for entry in page.tables {
        if begun.elapsed() > TIME_FOR_TABLES {
            next = Some(entry.name);
            break;
        }
        // A table that was deleted meanwhile is left out.
        if let Some((size, total)) = size(store, &account, &entry.name).await? {
            call.admin.history.measured(&account, &entry.name, size);
            measured.push(Measured {
                total: to_json::total(&total),
                name: entry.name,
                created: entry.created.to_canonical(),
                entities: size.entities,
                bytes: size.bytes,
                complete: size.complete,
            });
        }
    }
    let method = format!(
        "The first {SAMPLE} entities of each table were looked at. Where complete is false, the table \
         holds more than its numbers say, and total says what is known: its entities were counted between \
         countBegan and countEnded, or are estimated from statistics, or there are at least as many. Bytes \
         are those of keys and stored properties, without indexes; those of a total are estimated, if it is \
         not exact."
    );
    Ok(Reply::json(200, &TablesReport { account: &account, method, tables: measured, next }))
}

async fn size(store: &Store, account: &str, name: &str) -> Result<Option<(TableSize, TableTotal)>, Refusal> {
    let name = TableName::parse(name)?;
    let measure = async {
        let size = store.size(name.in_account(account), SAMPLE).await?;
        Ok((size, totals::total(store, account, &name, size, Ticks::now()).await?))
    };
    match measure.await.map_err(|failure: Failure| Error::from(failure)) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code == Code::TableNotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
