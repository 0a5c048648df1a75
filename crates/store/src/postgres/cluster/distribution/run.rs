use std::time::Duration;

use sqlx::{AssertSqlSafe, Executor, PgConnection};
use tokio::time::{Instant, sleep};

use crate::contract::cluster::{COLOCATED, DISTRIBUTION_COLUMN};
use crate::postgres::cluster::distribution::plan::{
    CannotDistribute, DistributionSettings, DistributionStep, placements, plan,
};
use crate::postgres::cluster::distribution::state::{KEY, catalogue, cluster, sessions};
use crate::postgres::connections::options::{CLIENT_CHECK, StartError, database_message, end_if_abandoned};
use crate::postgres::fault::has_code;
use crate::quoting::identifier;

/// Key of the advisory lock that prevents concurrent distributions.
const LOCK_KEY: i64 = 0x526f_7768_6f75_7365;
/// Timeout of a step for a table lock. Later statements on the table wait as well.
const LOCK_TIMEOUT: Duration = Duration::from_millis(800);
/// Pause before the step is retried, during which waiting statements run.
const LOCK_PAUSE: Duration = Duration::from_millis(700);
/// Maximum attempts of a step, which take more than a minute in total. In that time, Citus also resolves prepared
/// transactions of an earlier command that was killed.
const LOCK_ATTEMPTS: u32 = 60;

/// Time for sessions of stopped servers and commands to end.
const END_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval between counts of the sessions.
const END_PAUSE: Duration = Duration::from_millis(200);

/// Steps have no timeout. The application name excludes this session from [`sessions`].
const SESSION: &str =
    "SET application_name = 'rowhouse distribute'; SET statement_timeout = 0; SET lock_timeout = 0";
const TAKE_LOCK: &str = "SELECT pg_advisory_lock($1)";
const REFERENCE: &str = "SELECT create_reference_table($1::text::regclass)";
const DISTRIBUTE: &str = "SELECT create_distributed_table($1::text::regclass, $2, colocate_with => 'none', \
     shard_count => $3)";
const COLOCATE: &str = "SELECT create_distributed_table($1::text::regclass, $2, colocate_with => $3)";
const TRUNCATE: &str = "SELECT truncate_local_data_after_distributing_table($1::text::regclass)";
const ON_SHARDS: &str =
    "SELECT result FROM run_command_on_shards($1::text::regclass, $2) WHERE NOT success LIMIT 1";
const LIMIT: &str =
    "SELECT format('ALTER ROLE %I IN DATABASE %I SET %I = %L', $1, current_database(), $2, $3) AS text";

/// Why a distribution failed. Steps before the failed one remain done.
#[derive(Debug, thiserror::Error)]
pub enum DistributionError {
    #[error("{0}")]
    Cannot(#[from] CannotDistribute),
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{}", database_message(.0))]
    Database(#[from] sqlx::Error),
    #[error(
        "servers or commands of Rowhouse have sessions in the database ({0}): stop them, and run `rowhouse \
         distribute` again; start the servers when it has succeeded"
    )]
    InUse(String),
    #[error(
        "other transactions hold a lock on a table: end scans and backups, and run `rowhouse distribute` again"
    )]
    Locked,
    #[error("the shards cannot be changed: {0}")]
    Shards(String),
}

/// Receives each step before it begins.
pub(crate) type OnStep<'a> = &'a mut (dyn FnMut(&DistributionStep) + Send);

/// Distributes the remaining tables. Each step is a transaction; a later call omits completed steps.
pub(crate) async fn distribute(
    db: &mut PgConnection,
    schema: (Option<i64>, i64),
    settings: &DistributionSettings,
    on_step: OnStep<'_>,
) -> Result<Vec<DistributionStep>, DistributionError> {
    lock(db).await?;
    let steps = intended(db, schema, settings).await?;
    if steps.iter().any(DistributionStep::moves_rows) {
        wait_until_unused(db).await?;
    }
    for step in &steps {
        // Servers may have been started since the last check.
        if step.moves_rows() {
            wait_until_unused(db).await?;
        }
        on_step(step);
        carry_out(db, step).await?;
    }
    Ok(steps)
}

/// Returns the planned steps without executing them.
pub(crate) async fn intended(
    db: &mut PgConnection,
    schema: (Option<i64>, i64),
    settings: &DistributionSettings,
) -> Result<Vec<DistributionStep>, DistributionError> {
    let found = cluster(db, &settings.role).await?;
    Ok(plan(found.as_ref(), schema, settings)?)
}

/// Distributes tables that a migration has added to a distributed database. Servers of older versions may run, because
/// they do not use these tables.
pub(crate) async fn add_tables(db: &mut PgConnection) -> Result<(), DistributionError> {
    if !added(db).await?.iter().any(DistributionStep::places) {
        return Ok(());
    }
    lock(db).await?;
    for step in added(db).await? {
        carry_out(db, &step).await?;
    }
    Ok(())
}

async fn added(db: &mut PgConnection) -> Result<Vec<DistributionStep>, DistributionError> {
    match catalogue(db).await? {
        Some(cluster) if cluster.is_distributed() => {
            Ok(placements(&cluster, &DistributionSettings::default())?)
        }
        _ => Ok(Vec::new()),
    }
}

/// Waits for other distributions to end, and blocks new ones until the session ends.
async fn lock(db: &mut PgConnection) -> Result<(), sqlx::Error> {
    db.execute(sqlx::raw_sql(SESSION)).await?;
    end_if_abandoned(db, CLIENT_CHECK).await?;
    sqlx::query(TAKE_LOCK).bind(LOCK_KEY).execute(&mut *db).await?;
    let limit = format!("SET lock_timeout = {}", LOCK_TIMEOUT.as_millis());
    db.execute(sqlx::raw_sql(AssertSqlSafe(limit))).await?;
    Ok(())
}

/// Fails while servers or commands are connected to a node.
async fn wait_until_unused(db: &mut PgConnection) -> Result<(), DistributionError> {
    let began = Instant::now();
    loop {
        let open = sessions(db).await?;
        if open.is_empty() {
            return Ok(());
        }
        if began.elapsed() > END_TIMEOUT {
            return Err(DistributionError::InUse(open.join(", ")));
        }
        sleep(END_PAUSE).await;
    }
}

/// Executes a step as soon as its locks are free.
async fn carry_out(db: &mut PgConnection, step: &DistributionStep) -> Result<(), DistributionError> {
    for _ in 0..LOCK_ATTEMPTS {
        match attempt(db, step).await {
            // The lock is not available, or was part of a deadlock.
            Err(DistributionError::Database(error)) if has_code(&error, &["55P03", "40P01"]) => {
                sleep(LOCK_PAUSE).await;
            }
            done => return done,
        }
    }
    Err(DistributionError::Locked)
}

async fn attempt(db: &mut PgConnection, step: &DistributionStep) -> Result<(), DistributionError> {
    let entities = COLOCATED[0];
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
            let failed = sqlx::query_scalar(ON_SHARDS).bind(entities).bind(text).fetch_optional(db).await?;
            if let Some(reason) = failed {
                return Err(DistributionError::Shards(reason));
            }
        }
        DistributionStep::Limit { role, setting, milliseconds } => {
            let value = format!("{milliseconds}ms");
            let query = sqlx::query_scalar(LIMIT).bind(role).bind(*setting).bind(value);
            // PostgreSQL quotes the parts of this statement.
            let text: String = query.fetch_one(&mut *db).await?;
            db.execute(sqlx::raw_sql(AssertSqlSafe(text))).await?;
        }
        DistributionStep::Reference(table) => {
            sqlx::query(REFERENCE).bind(table).execute(db).await?;
        }
        DistributionStep::Distribute { shards } => {
            let shards = shards.map(|shards| i32::try_from(shards).unwrap_or(i32::MAX));
            let query = sqlx::query(DISTRIBUTE).bind(entities).bind(DISTRIBUTION_COLUMN);
            query.bind(shards).execute(db).await?;
        }
        DistributionStep::Colocate(table) => {
            let query = sqlx::query(COLOCATE).bind(table).bind(DISTRIBUTION_COLUMN).bind(entities);
            query.execute(db).await?;
        }
        DistributionStep::Truncate(table) => {
            sqlx::query(TRUNCATE).bind(table).execute(db).await?;
        }
    }
    Ok(())
}

fn no_statistics() -> String {
    KEY.map(|column| format!("ALTER COLUMN {column} SET STATISTICS 0")).join(", ")
}
