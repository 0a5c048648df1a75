//! SQL views of tables.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::error::Code;
use crate::protocol::model::{TableRef, Ticks};
use crate::store::contract::views::SYSTEM_COLUMNS;
use crate::store::postgres::PgStore;
use crate::store::postgres::connections::lease::Lease;
use crate::store::postgres::fault::{Effect, StatementError};
use crate::store::postgres::retry::retry;
use crate::store::postgres::rows::{broken_row, ticks};
use crate::store::postgres::state::table_ids::{self, TableId};
use crate::store::postgres::statements::{CHECK_TABLE, operator as texts, view as definitions};
use crate::store::quoting::identifier;
use crate::store::{Fault, SqlView, SqlViews, StoreResult, UntidyView, ViewDefinition, ViewFailure};

/// How long the upkeep of views waits for a locked view.
const TIDY_LOCK_WAIT: Duration = Duration::from_secs(1);

impl SqlViews for PgStore {
    async fn put_view(
        &self,
        table: TableRef<'_>,
        view: &ViewDefinition,
        now: Ticks,
    ) -> Result<(), ViewFailure> {
        let mut lease = self.acquire_to_define().await?;
        lease.begin().await?;
        let own_schema = self.search_path.schema.as_deref().unwrap_or_default();
        let done = put(&mut lease, own_schema, table, view, now).await;
        end(&mut lease, done).await
    }

    async fn drop_view(&self, table: TableRef<'_>) -> Result<bool, ViewFailure> {
        let mut lease = self.acquire_to_define().await?;
        lease.begin().await?;
        let done = async {
            let table_id = locked(&mut lease, table).await?;
            let view = recorded(&mut lease, table_id.table_no).await?;
            let Some(view) = view else { return Ok(false) };
            drop_recorded(&mut lease, table_id.table_no, &view.place).await?;
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

    async fn tidy_views(&self) -> StoreResult<Vec<UntidyView>> {
        let mut lease = self.nodes.acquire().await?;
        let untidy = sqlx::query(texts::UNTIDY_VIEWS).bind(texts::BARRED.0).bind(texts::BARRED.1);
        let rows = lease.rows(untidy, Effect::Undone).await?;
        drop(lease);
        let mut left = Vec::new();
        for row in &rows {
            let place = ViewPlace::of(row)?;
            let table_no: i64 = row.try_get("table_no").map_err(broken_row)?;
            let is_orphaned = row.try_get("is_orphaned").map_err(broken_row)?;
            if let Err(failure) = self.tidy(table_no, &place, is_orphaned).await {
                let reason = self.reason(&place, failure).await;
                left.push(UntidyView { view: place.quoted(), is_orphaned, reason });
            }
        }
        Ok(left)
    }
}

impl PgStore {
    /// A connection to where definitions are allowed: where entities are distributed, only through the
    /// coordinator.
    async fn acquire_to_define(&self) -> Result<Lease, StatementError> {
        let lease = self.nodes.acquire().await?;
        match &self.definitions {
            Some(definitions) if lease.statements().is_distributed => {
                drop(lease);
                definitions.acquire().await
            }
            _ => Ok(lease),
        }
    }

    /// Drops the view of a deleted table, or mends another one. Whoever wants to read the view waits behind
    /// this, so it gives up soon.
    async fn tidy(&self, table_no: i64, place: &ViewPlace, is_orphaned: bool) -> Result<(), ViewFailure> {
        let mut lease = self.acquire_to_define().await?;
        lease.begin().await?;
        let done = async {
            define(&mut lease, format!("SET LOCAL lock_timeout = {}", TIDY_LOCK_WAIT.as_millis())).await?;
            if is_orphaned {
                drop_orphan(&mut lease, table_no, place).await
            } else if is_ours(&mut lease, table_no, place).await? {
                define(&mut lease, definitions::bar(&place.quoted())).await
            } else {
                Ok(())
            }
        };
        let done = done.await;
        end(&mut lease, done).await
    }

    /// Why a view was left as it is, with the sessions that have locked it.
    async fn reason(&self, place: &ViewPlace, failure: ViewFailure) -> String {
        let reason = match failure {
            ViewFailure::Message(reason) => return reason,
            ViewFailure::Store(failure) => format!("{failure:?}"),
        };
        let read = async {
            let mut lease = self.nodes.acquire().await?;
            let lockers = sqlx::query(texts::LOCKERS).bind(place.schema.as_deref()).bind(&place.name);
            let rows = lease.rows(lockers, Effect::Undone).await?;
            rows.iter().map(blocker).collect::<Result<Vec<_>, StatementError>>()
        };
        match read.await {
            Ok(found) if !found.is_empty() => format!("it is in use by {}", found.join(", ")),
            _ => reason,
        }
    }
}

/// A session as logs name it.
pub(super) fn blocker(row: &PgRow) -> Result<String, StatementError> {
    let pid: i32 = row.try_get("pid").map_err(broken_row)?;
    let application: Option<String> = row.try_get("application_name").map_err(broken_row)?;
    Ok(match application.filter(|name| !name.is_empty()) {
        Some(name) => format!("the session {pid} ({name})"),
        None => format!("the session {pid}"),
    })
}

/// Commits what was done, or rolls it back.
async fn end<T>(lease: &mut Lease, done: Result<T, ViewFailure>) -> Result<T, ViewFailure> {
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
    lease: &mut Lease,
    own_schema: &str,
    table: TableRef<'_>,
    view: &ViewDefinition,
    now: Ticks,
) -> Result<(), ViewFailure> {
    let table_id = locked(lease, table).await?;
    let place = ViewPlace { schema: view.schema.clone(), name: view.name.clone() };
    let former = recorded(lease, table_id.table_no).await?;
    let is_there = former.as_ref().is_some_and(|former| former.place == place)
        && is_ours(lease, table_id.table_no, &place).await?;
    if let Some(former) = former.as_ref().filter(|former| former.place != place) {
        drop_recorded(lease, table_id.table_no, &former.place).await?;
    }
    let mut view = view.clone();
    view.grants =
        without_dropped(lease, view.grants, former.map_or_else(Vec::new, |former| former.grants)).await?;
    let view = &view;
    if let Some(schema) = view.schema.as_deref().filter(|_| !is_there) {
        make_schema(lease, schema).await?;
        refuse_hiding(lease, schema, own_schema).await?;
    }
    create(lease, view, table_id, &place, is_there).await?;
    let name = place.quoted();
    for text in definitions::comments(view, table.account, table.name.as_given()) {
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

/// Refuses a schema that the role would search before the one with the tables: programs that do not confine
/// their sessions, such as psql and servers of older versions, would look for the tables there.
async fn refuse_hiding(lease: &mut Lease, schema: &str, own_schema: &str) -> Result<(), ViewFailure> {
    define(lease, "SAVEPOINT looking".to_owned()).await?;
    define(lease, "SET LOCAL search_path TO DEFAULT".to_owned()).await?;
    let precedes = sqlx::query(texts::PRECEDES).bind(schema).bind(own_schema);
    let row = lease.row(precedes, Effect::Undone).await?.ok_or(Fault::Other)?;
    define(lease, "ROLLBACK TO SAVEPOINT looking".to_owned()).await?;
    if row.try_get("precedes").map_err(broken_row)? {
        return Err(ViewFailure::Message(format!(
            "the schema {schema} stands before {own_schema}, which has the tables, on the search_path of this role; \
             name another schema"
        )));
    }
    Ok(())
}

/// Leaves out the roles of former grants that no longer exist. A new one that does not exist is a
/// mistake, which the database reports.
async fn without_dropped(
    lease: &mut Lease,
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
async fn make_schema(lease: &mut Lease, schema: &str) -> Result<(), ViewFailure> {
    let known = sqlx::query(texts::HAS_SCHEMA).bind(schema);
    if lease.row(known, Effect::Undone).await?.is_none() {
        define(lease, format!("CREATE SCHEMA {}", identifier(schema))).await?;
    }
    Ok(())
}

/// A view of ours is changed in place if only columns are added, since other views may depend on
/// it, and made anew otherwise, with the privileges that were granted. Anything else of this name is left
/// alone.
async fn create(
    lease: &mut Lease,
    view: &ViewDefinition,
    table_id: TableId,
    place: &ViewPlace,
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
    let grants = grants(lease, place, view).await?;
    define(lease, format!("DROP VIEW IF EXISTS {}", place.quoted())).await?;
    define(lease, text).await?;
    for grant in grants {
        define(lease, grant).await?;
    }
    Ok(())
}

/// The statements that grant others what they may do with a view and with those of its columns that stay.
async fn grants(
    lease: &mut Lease,
    place: &ViewPlace,
    view: &ViewDefinition,
) -> Result<Vec<String>, StatementError> {
    let read = sqlx::query(texts::VIEW_PRIVILEGES).bind(place.schema.as_deref()).bind(&place.name);
    let mut texts = Vec::new();
    for row in lease.rows(read, Effect::Undone).await? {
        let text = |name: &str| row.try_get::<Option<String>, _>(name).map_err(broken_row);
        let column = text("column_name")?;
        let stays = |column: &String| {
            SYSTEM_COLUMNS.contains(&column.as_str())
                || view.columns.iter().any(|other| other.name == *column)
        };
        if column.as_ref().is_some_and(|column| !stays(column)) {
            continue;
        }
        let privilege: String = row.try_get("privilege_type").map_err(broken_row)?;
        let column = column.map(|name| format!(" ({})", identifier(&name))).unwrap_or_default();
        let role = text("role")?.map_or_else(|| "PUBLIC".to_owned(), |name| identifier(&name));
        let is_grantable: bool = row.try_get("is_grantable").map_err(broken_row)?;
        let option = if is_grantable { " WITH GRANT OPTION" } else { "" };
        texts.push(format!("GRANT {privilege}{column} ON {} TO {role}{option}", place.quoted()));
    }
    Ok(texts)
}

/// Finds a table, and keeps it from being deleted or respread meanwhile.
async fn locked(lease: &mut Lease, table: TableRef<'_>) -> Result<TableId, ViewFailure> {
    let (table_no, spread) = table_ids::locked(lease, table).await?.ok_or(Code::TableNotFound)?;
    if spread < 0 {
        let message =
            "the spread of the table is being changed: make the view when `rowhouse table respread` is done";
        return Err(ViewFailure::Message(message.into()));
    }
    let spread = u16::try_from(spread).map_err(|_| Fault::Other)?;
    Ok(TableId::new(table_no, spread))
}

/// The schema and the name of a view.
#[derive(PartialEq, Eq)]
struct ViewPlace {
    schema: Option<String>,
    name: String,
}

impl ViewPlace {
    fn of(row: &PgRow) -> Result<Self, StatementError> {
        Ok(Self {
            schema: row.try_get("schema_name").map_err(broken_row)?,
            name: row.try_get("name").map_err(broken_row)?,
        })
    }

    fn quoted(&self) -> String {
        definitions::qualified(self.schema.as_deref(), &self.name)
    }
}

/// The view of a table as recorded.
struct RecordedView {
    place: ViewPlace,
    grants: Vec<String>,
}

async fn recorded(lease: &mut Lease, table_no: i64) -> Result<Option<RecordedView>, StatementError> {
    let find = sqlx::query(texts::VIEW_OF).bind(table_no);
    let Some(row) = lease.row(find, Effect::Undone).await? else { return Ok(None) };
    let grants: String = row.try_get("grants").map_err(broken_row)?;
    let grants = serde_json::from_str(&grants).map_err(|_| Fault::Other)?;
    Ok(Some(RecordedView { place: ViewPlace::of(&row)?, grants }))
}

/// Whether the view of a table is there. Somebody may have dropped it, and made another one of its name.
async fn is_ours(lease: &mut Lease, table_no: i64, place: &ViewPlace) -> Result<bool, StatementError> {
    let find = sqlx::query(texts::IS_VIEW_OF).bind(place.schema.as_deref()).bind(&place.name).bind(table_no);
    let row = lease.row(find, Effect::Undone).await?;
    row.map_or(Ok(false), |row| row.try_get("is_ours").map_err(broken_row))
}

/// Drops the view of a table, if it is there, and its record.
async fn drop_recorded(lease: &mut Lease, table_no: i64, place: &ViewPlace) -> Result<(), ViewFailure> {
    lease.row(sqlx::query(texts::FORGET_VIEW).bind(table_no), Effect::Undone).await?;
    if is_ours(lease, table_no, place).await? {
        define(lease, format!("DROP VIEW IF EXISTS {}", place.quoted())).await?;
    }
    Ok(())
}

/// Drops the view of a deleted table, unless the table has come back. Whoever makes the
/// view again waits for the record.
async fn drop_orphan(lease: &mut Lease, table_no: i64, place: &ViewPlace) -> Result<(), ViewFailure> {
    lease.row(sqlx::query(texts::LOCK_VIEW).bind(table_no), Effect::Undone).await?;
    let exists = sqlx::query(CHECK_TABLE).bind(table_no);
    match lease.row(exists, Effect::Undone).await? {
        Some(_) => Ok(()),
        None => drop_recorded(lease, table_no, place).await,
    }
}

async fn record(
    lease: &mut Lease,
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
async fn define(lease: &mut Lease, text: String) -> Result<(), ViewFailure> {
    lease.define(text).await?.map_err(ViewFailure::Message)
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
