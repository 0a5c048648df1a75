//! SQL views of tables.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Code;
use crate::model::{TableName, Ticks};
use crate::store::postgres::PgStore;
use crate::store::postgres::catalog::tables::TableId;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::fault::{Effect, StatementError};
use crate::store::postgres::retry::retry;
use crate::store::postgres::rows::{broken_row, ticks};
use crate::store::postgres::statements::{beyond as texts, view as definitions};
use crate::store::quoting::identifier;
use crate::store::{Fault, SqlView, SqlViews, StoreResult, ViewDefinition, ViewFailure};

impl SqlViews for PgStore {
    fn has_schemas(&self) -> bool {
        true
    }

    async fn put_view(
        &self,
        account: &str,
        table: &TableName,
        view: &ViewDefinition,
        now: Ticks,
    ) -> Result<(), ViewFailure> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        lease.begin().await?;
        let done = put(&mut lease, account, table, view, now).await;
        end(&mut lease, done).await
    }

    async fn drop_view(&self, account: &str, table: &TableName) -> Result<bool, ViewFailure> {
        let mut lease = self.nodes.acquire_to_lock().await?;
        lease.begin().await?;
        let done = async {
            let table_id = locked(&mut lease, account, table).await?;
            let view = recorded(&mut lease, table_id.table_no).await?;
            let Some(RecordedView { name, .. }) = view else { return Ok(false) };
            drop_recorded(&mut lease, table_id.table_no, &name).await?;
            Ok(true)
        };
        let done = done.await;
        end(&mut lease, done).await
    }

    async fn views(&self, account: Option<&str>) -> StoreResult<Vec<SqlView>> {
        retry(|| async {
            let mut lease = self.nodes.acquire().await?;
            let list = sqlx::query(texts::LIST_VIEWS).bind(account);
            let rows = lease.rows(list, Effect::Undone).await?;
            Ok(rows.iter().map(view).collect::<Result<_, StatementError>>()?)
        })
        .await
    }

    async fn drop_orphaned_views(&self) -> Result<u64, ViewFailure> {
        let mut dropped = 0;
        loop {
            let mut lease = self.nodes.acquire_to_lock().await?;
            let found = lease.row(sqlx::query(texts::ORPHANED_VIEW), Effect::Undone).await?;
            let Some(row) = found else { return Ok(dropped) };
            let table_no: i64 = row.try_get("table_no").map_err(broken_row)?;
            let name = qualified(&row)?;
            lease.begin().await?;
            let done = drop_recorded(&mut lease, table_no, &name).await;
            end(&mut lease, done).await?;
            dropped += 1;
        }
    }
}

/// Commits what was done, or rolls it back.
async fn end<T>(lease: &mut Lease<'_>, done: Result<T, ViewFailure>) -> Result<T, ViewFailure> {
    match done {
        Ok(done) => {
            lease.commit().await?;
            Ok(done)
        }
        Err(failure) => {
            lease.roll_back().await;
            Err(failure)
        }
    }
}

async fn put(
    lease: &mut Lease<'_>,
    account: &str,
    table: &TableName,
    view: &ViewDefinition,
    now: Ticks,
) -> Result<(), ViewFailure> {
    let table_id = locked(lease, account, table).await?;
    let name = definitions::qualified(view.schema.as_deref(), &view.name);
    let former = recorded(lease, table_id.table_no).await?;
    let is_there = former.as_ref().is_some_and(|former| former.name == name);
    if let Some(former) = former.as_ref().filter(|_| !is_there) {
        drop_recorded(lease, table_id.table_no, &former.name).await?;
    }
    let mut view = view.clone();
    view.grants =
        without_dropped(lease, view.grants, former.map_or_else(Vec::new, |former| former.grants)).await?;
    let view = &view;
    if let Some(schema) = &view.schema {
        make_schema(lease, schema).await?;
    }
    create(lease, view, table_id, &name, is_there).await?;
    for text in definitions::comments(view, account, table.as_given()) {
        define(lease, text).await?;
    }
    for role in &view.grants {
        let role = identifier(role);
        if let Some(schema) = &view.schema {
            define(lease, format!("GRANT USAGE ON SCHEMA {} TO {role}", identifier(schema))).await?;
        }
        define(lease, format!("GRANT SELECT ON {name} TO {role}")).await?;
    }
    record(lease, table_id, view, now).await
}

/// Leaves out the roles of former grants that no longer exist. A new one that does not exist is a
/// mistake, which the database reports.
async fn without_dropped(
    lease: &mut Lease<'_>,
    roles: Vec<String>,
    former: Vec<String>,
) -> Result<Vec<String>, StatementError> {
    let mut kept = Vec::with_capacity(roles.len());
    for role in roles {
        let known = sqlx::query(texts::HAS_ROLE).bind(&role);
        if !former.contains(&role) || lease.row(known, Effect::Undone).await?.is_some() {
            kept.push(role);
        }
    }
    Ok(kept)
}

/// Only roles that may create schemas may say that it need not be created.
async fn make_schema(lease: &mut Lease<'_>, schema: &str) -> Result<(), ViewFailure> {
    let known = sqlx::query(texts::HAS_SCHEMA).bind(schema);
    if lease.row(known, Effect::Undone).await?.is_none() {
        define(lease, format!("CREATE SCHEMA {}", identifier(schema))).await?;
    }
    Ok(())
}

/// A view of ours is changed in place if only columns are added, since other views may depend on
/// it, and made anew otherwise. Anything else of this name is left alone.
async fn create(
    lease: &mut Lease<'_>,
    view: &ViewDefinition,
    table_id: TableId,
    name: &str,
    is_there: bool,
) -> Result<(), ViewFailure> {
    let buckets: Vec<i64> = table_id.buckets().collect();
    let text = definitions::create(view, table_id.table_no, &buckets);
    if !is_there {
        return define(lease, text.replacen("CREATE OR REPLACE", "CREATE", 1)).await;
    }
    define(lease, "SAVEPOINT replacing".to_owned()).await?;
    if define(lease, text.clone()).await.is_ok() {
        return Ok(());
    }
    define(lease, "ROLLBACK TO SAVEPOINT replacing".to_owned()).await?;
    define(lease, format!("DROP VIEW IF EXISTS {name}")).await?;
    define(lease, text).await
}

/// Finds a table, and keeps it from being deleted or respread meanwhile.
async fn locked(lease: &mut Lease<'_>, account: &str, table: &TableName) -> Result<TableId, ViewFailure> {
    let find = sqlx::query(texts::TABLE_NO).bind(account).bind(table.lower());
    let row = lease.row(find, Effect::Undone).await?.ok_or(Code::TableNotFound)?;
    let spread: i32 = row.try_get("spread").map_err(broken_row)?;
    if spread < 0 {
        let told =
            "the spread of the table is being changed: make the view when `rowhouse table respread` is done";
        return Err(ViewFailure::Told(told.into()));
    }
    let spread = u16::try_from(spread).map_err(|_| Fault::Other)?;
    Ok(TableId::new(row.try_get("table_no").map_err(broken_row)?, spread))
}

/// The view of a table as recorded.
struct RecordedView {
    /// With its schema, as an identifier of SQL.
    name: String,
    grants: Vec<String>,
}

async fn recorded(lease: &mut Lease<'_>, table_no: i64) -> Result<Option<RecordedView>, StatementError> {
    let find = sqlx::query(texts::VIEW_OF).bind(table_no);
    let Some(row) = lease.row(find, Effect::Undone).await? else { return Ok(None) };
    let grants: String = row.try_get("grants").map_err(broken_row)?;
    let grants = serde_json::from_str(&grants).map_err(|_| Fault::Other)?;
    Ok(Some(RecordedView { name: qualified(&row)?, grants }))
}

fn qualified(row: &PgRow) -> Result<String, StatementError> {
    let schema: Option<String> = row.try_get("schema_name").map_err(broken_row)?;
    let name: String = row.try_get("name").map_err(broken_row)?;
    Ok(definitions::qualified(schema.as_deref(), &name))
}

/// Somebody else may have dropped the view.
async fn drop_recorded(lease: &mut Lease<'_>, table_no: i64, name: &str) -> Result<(), ViewFailure> {
    define(lease, format!("DROP VIEW IF EXISTS {name}")).await?;
    lease.row(sqlx::query(texts::FORGET_VIEW).bind(table_no), Effect::Undone).await?;
    Ok(())
}

async fn record(
    lease: &mut Lease<'_>,
    table_id: TableId,
    view: &ViewDefinition,
    now: Ticks,
) -> Result<(), ViewFailure> {
    let record = sqlx::query(texts::RECORD_VIEW)
        .bind(table_id.table_no)
        .bind(view.schema.as_deref())
        .bind(&view.name)
        .bind(serde_json::to_string(&view.columns).map_err(|_| Fault::Other)?)
        .bind(serde_json::to_string(&view.grants).map_err(|_| Fault::Other)?)
        .bind(now.raw())
        .bind(view.seen.cast_signed())
        .bind(view.is_full);
    lease.row(record, Effect::Undone).await?;
    Ok(())
}

/// Runs a definition. What the database says about it is for the operator.
async fn define(lease: &mut Lease<'_>, text: String) -> Result<(), ViewFailure> {
    lease.define(text).await?.map_err(ViewFailure::Told)
}

fn view(row: &PgRow) -> Result<SqlView, StatementError> {
    let text = |column: &str| row.try_get::<String, _>(column).map_err(broken_row);
    let (columns, grants) = (text("columns")?, text("grants")?);
    let seen: i64 = row.try_get("seen").map_err(broken_row)?;
    Ok(SqlView {
        account: text("account")?,
        table: text("table_name")?,
        definition: ViewDefinition {
            schema: row.try_get("schema_name").map_err(broken_row)?,
            name: text("name")?,
            columns: serde_json::from_str(&columns).map_err(|_| Fault::Other)?,
            grants: serde_json::from_str(&grants).map_err(|_| Fault::Other)?,
            seen: seen.cast_unsigned(),
            is_full: row.try_get("is_full").map_err(broken_row)?,
        },
        refreshed: ticks(row.try_get("refreshed").map_err(broken_row)?)?,
    })
}
