//! `/deleted-tables`: lists, restores and purges deleted tables, like `rowhouse table`.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::Call;
use super::call::{CALL_TIMEOUT, within};
use super::reply::Outcome;
use super::reply::{Refusal, Reply};
use crate::operator::reports::{DeletedTableReport, UndeletedTableReport};
use crate::operator::{OperatorError, deleted, durations, table_name};
use crate::protocol::model::Ticks;
use crate::store::{DeletedScan, DeletedTable};

/// Maximum number of deleted tables in one response.
const TABLES: u32 = 100;
/// Maximum number of entities to count in each table.
const SAMPLE: u32 = 10_000;
/// Time after which the remaining tables are listed without their sizes.
const TIME_FOR_SIZES: Duration = Duration::from_secs(5);

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

/// Lists the latest deleted tables, with their sizes, of the account in the query string or of all accounts.
///
/// # Errors
/// 404 for an unknown account; errors of the database.
pub(crate) async fn list(call: &Call<'_>) -> Outcome {
    let begun = Instant::now();
    let account = call.queried_account()?;
    let store = call.store();
    let scan = DeletedScan { account: account.as_deref(), most: TABLES + 1, ..DeletedScan::default() };
    let mut found = within(CALL_TIMEOUT, store.deleted_tables(scan)).await?;
    let has_more = found.len() > TABLES as usize;
    found.truncate(TABLES as usize);
    let mut tables = Vec::with_capacity(found.len());
    for table in &found {
        let size = match begun.elapsed() < TIME_FOR_SIZES {
            // A table with an unknown size must not hide other tables.
            true => within(CALL_TIMEOUT, store.deleted_size(table.table_no, SAMPLE)).await.unwrap_or(None),
            false => None,
        };
        tables.push(DeletedTableReport::new(table, size));
    }
    let keep_deleted = durations::display(call.admin.service.keep_deleted);
    Ok(Reply::json(200, &DeletedTablesReport { keep_deleted, tables, more: has_more }))
}

/// Restores a deleted table under the name `as` in the body, or under its last name.
///
/// # Errors
/// 400 for an invalid name; 404 for an unknown deleted table; 409 if a table with this name exists, or was
/// created too recently; errors of the database.
pub(crate) async fn undelete(call: &Call<'_>) -> Outcome {
    let request = if call.body().is_empty() { UndeleteRequest::default() } else { call.document()? };
    let name = request.name.as_deref().map(table_name).transpose()?;
    let table = found(call).await?;
    let undeleted = deleted::undelete(call.store(), table, name, Ticks::now()).await?;
    call.admin.service.follower.follow_own_change(call.store()).await;
    Ok(Reply::json(200, &UndeletedTableReport::new(&undeleted)))
}

/// Purges a deleted table from now on.
///
/// # Errors
/// 404 for an unknown deleted table; errors of the database.
pub(crate) async fn purge(call: &Call<'_>) -> Outcome {
    let table = found(call).await?;
    deleted::purge(call.store(), &table, Ticks::now()).await?;
    Ok(Reply::json(200, &PurgedTable { purged: table.table_no }))
}

/// Returns the deleted table in the path, and records it for the audit.
async fn found(call: &Call<'_>) -> Result<DeletedTable, Refusal> {
    let table_no = call.parameter("id").parse().map_err(|_| OperatorError::DeletedTableNotFound)?;
    let table = within(CALL_TIMEOUT, deleted::by_number(call.store(), table_no)).await?;
    call.account.get_or_init(|| table.account.clone());
    call.subject.get_or_init(|| format!("{}/{table_no}", table.name));
    Ok(table)
}
