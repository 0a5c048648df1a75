//! `/deleted-tables`: lists, restores and purges deleted tables, like `rowhouse table`.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::{Call, within};
use super::reply::Answer;
use super::route::{NO_ACCOUNT, NO_ANSWER, OF_ACCOUNT, PARAMETER, Route, TIMED_OUT, guarded, json, token};
use crate::operator::deleted::{self, DeletedTableReport, UndeletedTable};
use crate::operator::{OperatorError, durations, table_name};
use crate::protocol::model::Ticks;
use crate::store::{DeletedScan, DeletedTable};

/// Maximum number of deleted tables in one response.
const TABLES: u32 = 100;
/// Maximum number of entities to count in each table.
const SAMPLE: u32 = 10_000;
/// Time after which the remaining tables are listed without their sizes.
const TIME_FOR_SIZES: Duration = Duration::from_secs(5);

pub(super) const ROUTES: &[Route] = &[
    guarded("GET", "/deleted-tables", |call| json(list(call)))
        .about("listDeletedTables", "Deleted tables that can be restored")
        .details(
            "The last deleted tables, 100 at most, with their sizes. A size is that of the first 10000 entities; if \
             complete is false, the table holds more. A size that took too long to measure is null.",
        )
        .query(&[OF_ACCOUNT])
        .answers::<DeletedTablesReport>("The tables, the last deleted first.")
        .others(&[PARAMETER, NO_ACCOUNT, TIMED_OUT, NO_ANSWER]),
    token("POST", "/deleted-tables/{id}/undelete", |call| json(undelete(call)))
        .changing()
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
        .changing()
        .about("purgeDeletedTable", "Purge a deleted table before its time has ended")
        .details("The table cannot be restored any more. Servers remove its entities from now on.")
        .answers::<PurgedTable>("The table is being purged.")
        .others(&[(404, "DeletedTableNotFound."), TIMED_OUT, NO_ANSWER]),
];

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(super) struct UndeleteRequest {
    /// A free name, if the table is not to have its last one.
    #[serde(rename = "as")]
    name: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub(super) struct DeletedTablesReport {
    /// How long this server keeps tables that are deleted now: 7d for example, 0s for not at all.
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

async fn list(call: &Call<'_>) -> Answer<DeletedTablesReport> {
    let begun = Instant::now();
    let account = call.queried_account()?;
    let store = call.store();
    let scan = DeletedScan { account: account.as_deref(), most: TABLES + 1, ..DeletedScan::default() };
    let mut found = within(store.deleted_tables(scan)).await?;
    let has_more = found.len() > TABLES as usize;
    found.truncate(TABLES as usize);
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

async fn undelete(call: &Call<'_>) -> Answer<UndeletedTable> {
    let request = if call.body().is_empty() { UndeleteRequest::default() } else { call.document()? };
    let name = request.name.as_deref().map(table_name).transpose()?;
    let table = found(call).await?;
    let undeleted = deleted::undelete(call.store(), table, name, Ticks::now()).await?;
    call.follow_own_change().await;
    Ok(undeleted)
}

async fn purge(call: &Call<'_>) -> Answer<PurgedTable> {
    let table = found(call).await?;
    deleted::purge(call.store(), &table, Ticks::now()).await?;
    Ok(PurgedTable { purged: table.table_no })
}

/// Returns the deleted table in the path, and records it for the audit.
async fn found(call: &Call<'_>) -> Answer<DeletedTable> {
    let table_no = call.parameter("id").parse().map_err(|_| OperatorError::DeletedTableNotFound)?;
    let table = within(deleted::by_number(call.store(), table_no)).await?;
    call.account.get_or_init(|| table.account.clone());
    call.subject.get_or_init(|| format!("{}/{table_no}", table.name));
    Ok(table)
}
