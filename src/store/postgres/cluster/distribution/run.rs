//! Carries out a distribution.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};

use crate::store::contract::cluster::{COLOCATED, Cluster, DISTRIBUTION_COLUMN, TablePlacement};
use crate::store::postgres::cluster::distribution::plan::{
    CannotDistribute, DistributionPlan, DistributionSettings, DistributionStep, REQUEST_TABLES, placements,
    plan,
};
use crate::store::postgres::cluster::distribution::state::{KEY, catalogue, cluster, no_logical_copy};
use crate::store::postgres::connections::host_map::NodeAddress;
use crate::store::postgres::connections::options::{StartError, database_message, end_if_abandoned};
use crate::store::quoting::identifier;

/// The lock that keeps two distributions from running at the same time.
const LOCK_KEY: i64 = 0x526f_7768_6f75_7365;
/// How long the tables are waited for. Statements that come meanwhile wait as well.
const LOCK_TIMEOUT: Duration = Duration::from_millis(800);
/// Pause before the tables are tried again, so that waiting statements run.
const LOCK_PAUSE: Duration = Duration::from_millis(700);
/// How often the tables are tried: more than a minute in all.
const LOCK_ATTEMPTS: u32 = 60;

/// How often progress is reported.
const PROGRESS: Duration = Duration::from_secs(5);

/// A distribution takes as long as it takes, but ends if nobody waits for it any more.
const SESSION: &str = "SET statement_timeout = 0; SET lock_timeout = 0; \
     SET idle_in_transaction_session_timeout = '60s'";
const TAKE_LOCK: &str = "SELECT pg_advisory_xact_lock($1)";
const REFERENCE: &str = "SELECT create_reference_table($1::text::regclass)";
const DISTRIBUTE: &str = "SELECT create_distributed_table($1::text::regclass, $2, colocate_with => 'none', \
     shard_count => $3)";
const DISTRIBUTE_CONCURRENTLY: &str = "SELECT create_distributed_table_concurrently($1::text::regclass, $2, \
     colocate_with => 'none', shard_count => $3)";
const COLOCATE: &str = "SELECT create_distributed_table($1::text::regclass, $2, colocate_with => $3)";
const TRUNCATE: &str = "SELECT truncate_local_data_after_distributing_table($1::text::regclass)";
const ON_SHARDS: &str =
    "SELECT result FROM run_command_on_shards($1::text::regclass, $2) WHERE NOT success LIMIT 1";
const WHOLE: &str = "SELECT pg_table_size($1::text::regclass) AS bytes";
/// $1 a table, $2 [`SIZE_OF_SHARDS`]. The coordinator has the original.
const COPIED: &str = "SELECT coalesce(sum(result::int8), 0)::int8 AS bytes \
     FROM run_command_on_workers(format($2, $1)) WHERE success";
const SIZE_OF_SHARDS: &str = "SELECT coalesce(sum(pg_table_size(oid)), 0) FROM pg_class \
     WHERE relkind = 'r' AND relname ~ ('^' || %L || '_[0-9]+$')";
const LIMIT: &str =
    "SELECT format('ALTER ROLE %I IN DATABASE %I SET %I = %L', $1, current_database(), $2, $3) AS text";

/// Why a cluster was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClusterError {
    #[error("{0}")]
    Cannot(#[from] CannotDistribute),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{}", database_message(.0))]
    Database(#[from] sqlx::Error),
    #[error(
        "other transactions kept the tables locked; nothing was changed, so try again when fewer scans or \
         backups run"
    )]
    Locked,
    #[error("the shards cannot be changed: {0}")]
    Shards(String),
    #[error("only a superuser may do this; in this database of the coordinator, run as one: {0}")]
    Superuser(String),
    #[error("the cluster has no active node {0}: `rowhouse cluster status` lists them")]
    UnknownNode(NodeAddress),
    #[error("no other node may hold the shards of {0}")]
    LastNode(NodeAddress),
    #[error("{1} shards are on {0}: run `rowhouse cluster drain {0}` first")]
    ShardsLeft(NodeAddress, i64),
    #[error("the moves ended after {done} of {of}: {reason}")]
    Moves { done: i64, of: i64, reason: String },
}

/// What happens while a cluster is changed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClusterEvent<'a> {
    /// This step begins.
    Step(&'a DistributionStep),
    /// So many bytes of `entities` have been copied to the nodes, of about so many.
    Copied { bytes: i64, of: i64 },
    /// So many of the moves of shards are done; one that failed is tried again.
    Moved { done: i64, of: i64, problem: Option<&'a str> },
}

/// Receives progress.
pub(crate) type OnClusterProgress<'a> = &'a mut (dyn FnMut(ClusterEvent<'_>) + Send);

/// Distributes what is not distributed yet. `watch` is a second connection, on which progress is
/// examined.
///
/// # Errors
/// [`ClusterError`]. What no transaction could hold is done nevertheless, and is left out when
/// the command is repeated.
pub(crate) async fn distribute(
    db: &mut PgConnection,
    watch: &mut PgConnection,
    schema: (Option<i64>, i64),
    settings: &DistributionSettings,
    on_progress: OnClusterProgress<'_>,
) -> Result<Vec<DistributionStep>, ClusterError> {
    prepare(db).await?;
    let before = intended(db, schema, settings).await?.before;
    for step in &before {
        on_progress(ClusterEvent::Step(step));
        carry_out_watched(db, watch, step, on_progress).await?;
    }
    let rest = DistributionSettings { concurrently: false, ..settings.clone() };
    let decide = |found: Option<&Cluster>| plan(found, schema, &rest);
    let done = together(db, Some(&settings.role), &decide, on_progress).await?;
    Ok(before.into_iter().chain(done).collect())
}

/// Decides what is to be done, and does nothing.
///
/// # Errors
/// [`ClusterError`].
pub(crate) async fn intended(
    db: &mut PgConnection,
    schema: (Option<i64>, i64),
    settings: &DistributionSettings,
) -> Result<DistributionPlan, ClusterError> {
    let mut found = cluster(db, &settings.role).await?;
    if settings.concurrently
        && let Some(found) = &mut found
    {
        found.no_logical_copy = no_logical_copy(db).await?;
    }
    Ok(plan(found.as_ref(), schema, settings)?)
}

/// Distributes tables that a migration has added to a database whose entities are distributed.
///
/// # Errors
/// [`ClusterError`].
pub(crate) async fn add_tables(db: &mut PgConnection) -> Result<(), ClusterError> {
    let added = |found: Option<&Cluster>| match found {
        Some(cluster) if cluster.is_distributed() => placements(cluster, &DistributionSettings::default()),
        _ => Ok(DistributionPlan::default()),
    };
    let places = |plan: &DistributionPlan| plan.steps().any(DistributionStep::places);
    if !places(&added(catalogue(db).await?.as_ref())?) {
        return Ok(());
    }
    prepare(db).await?;
    together(db, None, &added, &mut |_| {}).await.map(drop)
}

async fn prepare(db: &mut PgConnection) -> Result<(), sqlx::Error> {
    db.execute(sqlx::raw_sql(SESSION)).await?;
    end_if_abandoned(db).await
}

type Decide<'a> = &'a (dyn Fn(Option<&Cluster>) -> Result<DistributionPlan, CannotDistribute> + Sync);

/// Carries out a plan in one transaction, as soon as the tables can be had. Returns what was done.
async fn together(
    db: &mut PgConnection,
    role: Option<&str>,
    decide: Decide<'_>,
    on_progress: OnClusterProgress<'_>,
) -> Result<Vec<DistributionStep>, ClusterError> {
    for _ in 0..LOCK_ATTEMPTS {
        match attempt(db, role, decide, on_progress).await {
            Err(ClusterError::Database(error)) if is_locked(&error) => tokio::time::sleep(LOCK_PAUSE).await,
            other => return other,
        }
    }
    Err(ClusterError::Locked)
}

async fn attempt(
    db: &mut PgConnection,
    role: Option<&str>,
    decide: Decide<'_>,
    on_progress: OnClusterProgress<'_>,
) -> Result<Vec<DistributionStep>, ClusterError> {
    let mut transaction = db.begin().await?;
    let db = &mut *transaction;
    sqlx::query(TAKE_LOCK).bind(LOCK_KEY).execute(&mut *db).await?;
    let found = match role {
        Some(role) => cluster(db, role).await?,
        None => catalogue(db).await?,
    };
    let steps = decide(found.as_ref())?.together;
    let limit = format!("SET LOCAL lock_timeout = {}", LOCK_TIMEOUT.as_millis());
    db.execute(sqlx::raw_sql(AssertSqlSafe(limit))).await?;
    let (quiet, blocking): (Vec<_>, Vec<_>) = steps.iter().partition(|step| !step.blocks_requests());
    for step in quiet {
        on_progress(ClusterEvent::Step(step));
        carry_out(db, step).await?;
    }
    if let Some(text) = found.as_ref().and_then(lock_local) {
        db.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
    }
    for step in blocking {
        on_progress(ClusterEvent::Step(step));
        carry_out(db, step).await?;
    }
    transaction.commit().await?;
    Ok(steps)
}

/// Locks the tables that statements for entities use and that are to be distributed: all of them
/// before the first is touched, since statements use several.
fn lock_local(cluster: &Cluster) -> Option<String> {
    let is_local = |name: &&&str| {
        let table = cluster.tables.iter().find(|table| table.name == **name);
        table.is_some_and(|table| matches!(table.placement, TablePlacement::Local | TablePlacement::Begun))
    };
    let names: Vec<&str> = REQUEST_TABLES.iter().filter(is_local).copied().collect();
    (!names.is_empty()).then(|| format!("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", names.join(", ")))
}

/// Whether a lock was not to be had, or was the cause of a deadlock.
fn is_locked(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    matches!(code.as_deref(), Some("55P03" | "40P01"))
}

/// Carries out a step that may take long, and says how far it has come.
async fn carry_out_watched(
    db: &mut PgConnection,
    watch: &mut PgConnection,
    step: &DistributionStep,
    on_progress: OnClusterProgress<'_>,
) -> Result<(), ClusterError> {
    let of = sqlx::query(WHOLE).bind(COLOCATED[0]).fetch_one(&mut *watch).await?.try_get("bytes")?;
    let mut work = std::pin::pin!(carry_out(db, step));
    loop {
        if let Ok(done) = tokio::time::timeout(PROGRESS, work.as_mut()).await {
            return done;
        }
        let copied = sqlx::query(COPIED).bind(COLOCATED[0]).bind(SIZE_OF_SHARDS);
        let bytes = copied.fetch_one(&mut *watch).await?.try_get("bytes")?;
        on_progress(ClusterEvent::Copied { bytes, of });
    }
}

async fn carry_out(db: &mut PgConnection, step: &DistributionStep) -> Result<(), ClusterError> {
    let entities = COLOCATED[0];
    let shard_count = |shards: &Option<u32>| shards.map(|n| i32::try_from(n).unwrap_or(i32::MAX));
    match step {
        DistributionStep::Schema(name) => {
            let text = format!("CREATE SCHEMA IF NOT EXISTS {}", identifier(name));
            db.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        }
        DistributionStep::NoStatistics => {
            let text = format!("ALTER TABLE {entities} {}", no_statistics());
            db.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        }
        DistributionStep::NoStatisticsInShards => {
            let text = format!("ALTER TABLE %s {}", no_statistics());
            let failed = sqlx::query(ON_SHARDS).bind(entities).bind(text).fetch_optional(db).await?;
            if let Some(row) = failed {
                return Err(ClusterError::Shards(row.try_get("result")?));
            }
        }
        DistributionStep::Reference(table) => {
            sqlx::query(REFERENCE).bind(table).execute(db).await?;
        }
        DistributionStep::Distribute { shards } => {
            let query = sqlx::query(DISTRIBUTE).bind(entities).bind(DISTRIBUTION_COLUMN);
            query.bind(shard_count(shards)).execute(db).await?;
        }
        DistributionStep::DistributeConcurrently { shards } => {
            let query = sqlx::query(DISTRIBUTE_CONCURRENTLY).bind(entities).bind(DISTRIBUTION_COLUMN);
            query.bind(shard_count(shards)).execute(db).await?;
        }
        DistributionStep::Colocate(table) => {
            let query = sqlx::query(COLOCATE).bind(table).bind(DISTRIBUTION_COLUMN).bind(entities);
            query.execute(db).await?;
        }
        DistributionStep::Truncate(table) => {
            sqlx::query(TRUNCATE).bind(table).execute(db).await?;
        }
        DistributionStep::Limit { role, setting, milliseconds } => {
            let value = format!("{milliseconds}ms");
            let query = sqlx::query(LIMIT).bind(role).bind(*setting).bind(value);
            // PostgreSQL quotes what it is made of.
            let text: String = query.fetch_one(&mut *db).await?.try_get("text")?;
            db.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        }
    }
    Ok(())
}

fn no_statistics() -> String {
    KEY.map(|column| format!("ALTER COLUMN {column} SET STATISTICS 0")).join(", ")
}
