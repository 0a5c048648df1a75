//! `/tables` and `/accounts/…/count`: the sizes of an account's tables, and the counts of their entities;
//! `/deleted-tables`: deleted tables, like `rowhouse table`.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::{Call, within};
use super::reply::{CallResult, Refusal};
use super::route::{
    NO_ACCOUNT, NO_ANSWER, OF_ACCOUNT, PARAMETER, QueryField, QueryKind, Route, TIMED_OUT, guarded, json,
    token,
};
use crate::error::{Code, Error};
use crate::operator::deleted::{self, DeletedTableReport, UndeletedTable};
use crate::operator::durations::{self, Time};
use crate::operator::totals::{self, CountPace, TableTotal};
use crate::operator::{OperatorError, parse_table_name};
use crate::protocol::model::{Key, TableName, Ticks};
use crate::protocol::odata::{self, Grammar};
use crate::protocol::plan::filter::{self, Subject};
use crate::protocol::plan::scan::MAX_TIME;
use crate::protocol::plan::span::Span;
use crate::protocol::plan::{Predicate, TableScan};
use crate::store::{
    CountPosition, CountedPart, DeletedScan, DeletedTable, Failure, Store, StoreResult, TableSize,
};

/// Maximum and default number of tables in one response.
const TABLES: usize = 25;
/// Maximum number of entities to count in each table.
const SAMPLE: u32 = 10_000;
/// Time after which a response ends with the tables measured so far.
const TIME_FOR_TABLES: Duration = Duration::from_secs(5);

/// Maximum number of deleted tables in one response.
const DELETED_TABLES: u32 = 100;
/// Time after which the remaining tables are listed without their sizes.
const TIME_FOR_SIZES: Duration = Duration::from_secs(5);

/// Time after which a count returns its intermediate result.
const COUNT_TIME: Duration = Duration::from_secs(5);
/// Maximum number of comparisons in a filter.
const MAX_COMPARISONS: usize = 1000;

const QUERY: &[QueryField] = &[
    QueryField { is_required: true, ..QueryField::text("account", "The account.") },
    QueryField::text("from", "The name to begin at: next of the previous answer."),
    QueryField {
        kind: QueryKind::Limit { max: TABLES, default: TABLES },
        ..QueryField::text("limit", "Maximum number of tables.")
    },
];
const COUNT_QUERY: &[QueryField] = &[
    QueryField::text("filter", "A $filter, as clients write it."),
    QueryField::text("from", "next of the previous answer, whose entities are not counted again."),
];

pub(super) const ROUTES: &[Route] = &[
    guarded("GET", "/tables", |call| json(tables(call)))
        .about("tables", "The sizes of an account's tables, in the order of their names")
        .details(
            "At most 10000 entities of each table are counted, so the cost of a call does not depend on the sizes. \
             Where complete is false, entities and bytes are lower bounds, and total has what else is known. An \
             answer ends after 25 tables or five seconds.",
        )
        .query(QUERY)
        .answers::<TablesReport>("The tables and their sizes.")
        .others(&[PARAMETER, NO_ACCOUNT, NO_ANSWER]),
    guarded("GET", "/accounts/{name}/tables/{table}/count", |call| json(count(call)))
        .about("count", "Count the entities of a table, all or those that match a filter")
        .details(
            "A call counts for five seconds at most; the sum of the calls is the count. It is exact if no one writes \
             meanwhile.",
        )
        .query(COUNT_QUERY)
        .answers::<CountReport>("The number of entities.")
        .others(&[
            (400, "BadRequest, or the error of an invalid filter."),
            (404, "AccountNotFound, or TableNotFound."),
            (409, "TableRespread: the spread of the table was changed since from."),
            TIMED_OUT,
            NO_ANSWER,
        ]),
    guarded("GET", "/deleted-tables", |call| json(list_deleted(call)))
        .about("listDeletedTables", "Deleted tables that can be restored")
        .details(
            "The last deleted tables, 100 at most, with their sizes. A size is that of the first 10000 entities; if \
             complete is false, the table holds more. A size that took too long to measure is null.",
        )
        .query(&[OF_ACCOUNT])
        .answers::<DeletedTablesReport>("The tables, the last deleted first.")
        .others(&[PARAMETER, NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
    token("POST", "/deleted-tables/{id}/undelete", |call| json(undelete(call)))
        .about("undeleteTable", "Restore a deleted table")
        .details(
            "The table gets its entities, their ETags, its access policies and its expiry rule. A server builds its \
             property indexes again.",
        )
        .optional_body::<UndeleteRequest>()
        .answers::<UndeletedTable>("The table is restored.")
        .others(&[
            (404, "DeletedTableNotFound."),
            (
                409,
                "TableAlreadyExists. RenamedTooSoon: on PostgreSQL, a table can have another name ten minutes after \
                 it was deleted.",
            ),
            TIMED_OUT,
            NO_ANSWER,
        ]),
    token("DELETE", "/deleted-tables/{id}", |call| json(purge(call)))
        .about("purgeDeletedTable", "Purge a deleted table before its time has ended")
        .details("The table cannot be restored any more. Servers remove its entities from now on.")
        .answers::<PurgedTable>("The table is being purged.")
        .others(&[(404, "DeletedTableNotFound."), TIMED_OUT, NO_ANSWER]),
];

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct TablesReport {
    account: String,
    /// How the numbers were measured, in words.
    method: String,
    tables: Vec<Measured>,
    /// The name to continue at; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Table")]
struct Measured {
    name: String,
    created: Time,
    entities: u64,
    /// Bytes of keys and stored properties, without indexes.
    bytes: u64,
    /// Whether the numbers are exact. Otherwise they are lower bounds.
    complete: bool,
    /// The numbers of the whole table.
    total: TableTotal,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct CountReport {
    /// Entities that this call has counted.
    entities: u64,
    /// Whether the table was counted to its end.
    complete: bool,
    /// The value of `from` for the call that continues the count; null at the end.
    next: Option<String>,
}

/// The position at which a count continues.
#[derive(Serialize, Deserialize)]
struct CountToken(Option<i64>, u16, String, String);

async fn tables(call: &Call<'_>) -> CallResult<TablesReport> {
    let begun = Instant::now();
    let account = call
        .query("account")?
        .ok_or_else(|| Refusal::bad_request("The account is missing: add ?account=NAME."))?;
    call.check_account(&account)?;
    let rows = match call.query("limit")?.map(|text| text.parse::<usize>()) {
        None => TABLES,
        Some(Ok(limit)) if (1..=TABLES).contains(&limit) => limit,
        Some(_) => return Err(Refusal::bad_request(format!("limit: must be 1 to {TABLES}"))),
    };
    let from = call.query("from")?.unwrap_or_default().to_ascii_lowercase();
    let spans = vec![Span { lower: Key::new(from.clone(), ""), upper: None }];
    let store = call.store();
    let scan = TableScan { spans, residual: None, rows, time: MAX_TIME };
    let page = store.list_tables(&account, &scan).await.map_err(Error::from)?;
    let mut next = page.next.map(|entry| entry.name);
    let names = page.tables.iter().map(|entry| entry.name.to_ascii_lowercase()).collect();
    let end = next.as_deref().map(str::to_ascii_lowercase);
    call.admin.history.listed(&account, &from, end.as_deref(), &names);
    let mut measured = Vec::with_capacity(page.tables.len());
    for entry in page.tables {
        if begun.elapsed() > TIME_FOR_TABLES {
            next = Some(entry.name);
            break;
        }
        // A table that was deleted in the meantime is left out.
        if let Some((size, total)) = size(store, &account, &entry.name).await? {
            call.admin.history.measured(&account, &entry.name, size);
            measured.push(Measured {
                total,
                name: entry.name,
                created: Time(entry.created),
                entities: size.entities,
                bytes: size.bytes,
                complete: size.complete,
            });
        }
    }
    let method = format!(
        "The first {SAMPLE} entities of each table were examined. Where complete is false, the table \
         holds more than its numbers say, and total says what is known: its entities are estimated from \
         statistics, or there are at least as many. Bytes are those of keys and stored properties, without \
         indexes; those of a total are estimated, if it is not exact."
    );
    Ok(TablesReport { account, method, tables: measured, next })
}

async fn size(store: &Store, account: &str, name: &str) -> CallResult<Option<(TableSize, TableTotal)>> {
    let name = TableName::parse(name)?;
    let measure = async {
        let size = store.size(name.in_account(account), SAMPLE).await?;
        Ok((size, totals::total(store, name.in_account(account), size).await?))
    };
    match measure.await.map_err(|failure: Failure| Error::from(failure)) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code == Code::TableNotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

async fn count(call: &Call<'_>) -> CallResult<CountReport> {
    let (account, table) = call.table()?;
    let predicate = call.query("filter")?.map(|text| predicate(&text)).transpose()?;
    let from = call.query("from")?.map(|text| position(&text)).transpose()?;
    let from = from.unwrap_or_else(CountPosition::start);
    let table = parse_table_name(table)?;
    let counting = async {
        StoreResult::Ok(match &predicate {
            Some(predicate) => {
                let (store, table) = (call.store(), table.in_account(account));
                Some(totals::count_matching(store, table, &from.key, predicate, COUNT_TIME).await?)
            }
            None => {
                CountPace::default()
                    .count_for(call.store(), table.in_account(account), from, COUNT_TIME)
                    .await?
            }
        })
    };
    let CountedPart { entities, next } = within(counting).await?.ok_or_else(respread)?;
    let next = next.map(|next| count_token(&next));
    Ok(CountReport { entities, complete: next.is_none(), next })
}

fn respread() -> Refusal {
    let message = "The spread of the table was changed: count it again from the beginning.";
    Refusal::new(409, "TableRespread", message)
}

fn predicate(text: &str) -> CallResult<Predicate> {
    let parsed = odata::parse(text, Grammar { max_comparisons: MAX_COMPARISONS, extended: true })?;
    Ok(filter::predicate(&parsed, Subject::Entities)?)
}

fn count_token(position: &CountPosition) -> String {
    let CountPosition { layout, share, key } = position;
    let token = CountToken(*layout, *share, key.partition.clone(), key.row.clone());
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
}

fn position(text: &str) -> CallResult<CountPosition> {
    let read = URL_SAFE_NO_PAD.decode(text).ok();
    let read = read.and_then(|bytes| serde_json::from_slice::<CountToken>(&bytes).ok());
    let token = read.filter(|token| !token.2.contains('\u{0}') && !token.3.contains('\u{0}'));
    let CountToken(layout, share, partition, row) =
        token.ok_or_else(|| Refusal::bad_request("from: must be `next` of an earlier answer"))?;
    Ok(CountPosition { layout, share, key: Key { partition, row } })
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct UndeleteRequest {
    /// A free name for the table; by default its last name.
    #[serde(rename = "as")]
    name: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct DeletedTablesReport {
    /// How long this server keeps tables that are deleted from now on, such as 7d; 0s if it keeps none.
    keep_deleted: String,
    tables: Vec<DeletedTableReport>,
    /// Whether there are more deleted tables.
    more: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(super) struct PurgedTable {
    /// The number of the table.
    purged: i64,
}

async fn list_deleted(call: &Call<'_>) -> CallResult<DeletedTablesReport> {
    let begun = Instant::now();
    let account = call.queried_account()?;
    let store = call.store();
    let scan =
        DeletedScan { account: account.as_deref(), most: DELETED_TABLES + 1, ..DeletedScan::default() };
    let mut found = within(store.deleted_tables(scan)).await?;
    let has_more = found.len() > DELETED_TABLES as usize;
    found.truncate(DELETED_TABLES as usize);
    let mut tables = Vec::with_capacity(found.len());
    for table in &found {
        let size = match begun.elapsed() < TIME_FOR_SIZES {
            // A table with an unknown size must not hide other tables.
            true => within(store.deleted_size(table.table_no, SAMPLE)).await.unwrap_or(None),
            false => None,
        };
        tables.push(DeletedTableReport::new(table, size));
    }
    let keep_deleted = durations::display(call.admin.service.keep_deleted);
    Ok(DeletedTablesReport { keep_deleted, tables, more: has_more })
}

async fn undelete(call: &Call<'_>) -> CallResult<UndeletedTable> {
    let request = if call.body().is_empty() { UndeleteRequest::default() } else { call.document()? };
    let name = request.name.as_deref().map(parse_table_name).transpose()?;
    let table = deleted_table(call).await?;
    let undeleted = deleted::undelete(call.store(), table, name, Ticks::now()).await?;
    call.follow_own_change().await;
    Ok(undeleted)
}

async fn purge(call: &Call<'_>) -> CallResult<PurgedTable> {
    let table = deleted_table(call).await?;
    deleted::purge(call.store(), &table, Ticks::now()).await?;
    Ok(PurgedTable { purged: table.table_no })
}

/// Returns the deleted table in the path, and records it for the audit.
async fn deleted_table(call: &Call<'_>) -> CallResult<DeletedTable> {
    let table_no = call.parameter("id").parse().map_err(|_| OperatorError::DeletedTableNotFound)?;
    let table = within(deleted::find_by_number(call.store(), table_no)).await?;
    call.account.get_or_init(|| table.account.clone());
    call.subject.get_or_init(|| format!("{}/{table_no}", table.name));
    Ok(table)
}
