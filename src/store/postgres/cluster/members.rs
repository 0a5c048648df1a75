//! Changes of the nodes of a Citus cluster, as its operators make them.

use std::time::Duration;

use sqlx::postgres::PgDatabaseError;
use sqlx::{Executor, PgConnection, Row};

use crate::store::contract::cluster::Cluster;
use crate::store::postgres::cluster::distribution::{
    CannotDistribute, ClusterError, ClusterEvent, OnClusterProgress, catalogue, with_nodes,
};
use crate::store::postgres::connections::host_map::NodeAddress;
use crate::store::postgres::connections::hosts::Hosts;
use crate::store::postgres::connections::{PgOptions, schema};
use crate::store::quoting::literal;

/// How often the state of moves is read.
const PROGRESS: Duration = Duration::from_secs(1);

const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// Copying reference tables to a new node takes as long as it takes.
const SESSION: &str = "SET statement_timeout = 0; SET lock_timeout = 0";
const ADD: &str = "SELECT citus_add_node($1, $2)";
const REMOVE: &str = "SELECT citus_remove_node($1, $2)";
const HOLD_SHARDS: &str = "SELECT citus_set_node_property($1, $2, 'shouldhaveshards', $3)";
const RESTORE_POINT: &str = "SELECT citus_create_restore_point($1)::text AS position";
/// $1 whether shards only leave nodes that are to hold none.
const MOVE: &str = "SELECT citus_rebalance_start(drain_only => $1) AS job";
const UNFINISHED: &str = "SELECT job_id AS job FROM pg_dist_background_job WHERE job_type = 'rebalance' \
     AND state::text IN ('scheduled', 'running', 'cancelling', 'failing') ORDER BY job_id DESC LIMIT 1";
const JOB: &str = "SELECT j.state::text AS state, count(t.task_id) AS moves, \
     count(t.task_id) FILTER (WHERE t.status::text = 'done') AS done, \
     nullif(max(t.message) FILTER (WHERE t.status::text <> 'done'), '') AS problem \
     FROM pg_dist_background_job AS j LEFT JOIN pg_dist_background_task AS t USING (job_id) \
     WHERE j.job_id = $1 GROUP BY j.state";
/// What the catalogue says of a primary: it is absent, or holds so many shards.
const MEMBER: &str = "SELECT n.shouldhaveshards AS holds_shards, (SELECT count(*) FROM pg_dist_placement AS p \
     JOIN pg_dist_shard AS s USING (shardid) JOIN pg_dist_partition AS t USING (logicalrelid) \
     WHERE p.groupid = n.groupid AND t.partmethod = 'h') AS shards, \
     (SELECT count(*) FROM pg_dist_node AS o WHERE o.shouldhaveshards AND o.isactive AND o.groupid <> n.groupid \
         AND o.noderole = n.noderole) AS others \
     FROM pg_dist_node AS n WHERE n.nodename = $1 AND n.nodeport = $2 AND n.isactive AND n.noderole = 'primary'";

/// A change of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterChange {
    /// A node becomes one of the cluster, and holds the tables that each node has.
    Add(NodeAddress),
    /// All shards leave a node.
    Drain(NodeAddress),
    /// A node without shards leaves the cluster.
    Remove(NodeAddress),
    /// Shards are spread evenly over the nodes that may hold them.
    Rebalance,
    /// A point with this name is written to the log of each node, to which all can be restored together.
    RestorePoint(String),
}

/// What a change has done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClusterOutcome {
    /// It was so already.
    Unchanged,
    Added,
    Removed,
    /// So many moves of shards, with those of tables beside them, were made.
    Moved(i64),
    /// The position in the coordinator's log.
    RestorePoint(String),
}

/// A node as the catalogue has it.
struct MemberState {
    holds_shards: bool,
    /// Shards of distributed tables.
    shards: i64,
    /// Other nodes that hold shards.
    others: i64,
}

impl ClusterChange {
    /// The statement that a superuser can run instead.
    fn statement(&self) -> String {
        let node = |call: &str, node: &NodeAddress| format!("{call}({}, {})", literal(&node.host), node.port);
        let call = match self {
            ClusterChange::Add(address) => node("citus_add_node", address),
            ClusterChange::Remove(address) => node("citus_remove_node", address),
            ClusterChange::Drain(address) => node("citus_drain_node", address),
            ClusterChange::Rebalance => "citus_rebalance_start()".to_owned(),
            ClusterChange::RestorePoint(name) => format!("citus_create_restore_point({})", literal(name)),
        };
        format!("SELECT {call};")
    }
}

/// Reads the catalogue by a node, and asks every node; `None` without Citus.
///
/// # Errors
/// Those of that node. What others report is part of the result.
pub(crate) async fn status(options: &PgOptions) -> Result<Option<Cluster>, ClusterError> {
    let mut db = schema::connect(options).await?;
    let role = Hosts::of(options.first_url(), options.acquire_timeout)?.role().to_owned();
    Ok(with_nodes(&mut db, &role).await?)
}

/// Changes the cluster, by its coordinator. Moves of shards go on by themselves when nobody waits for them any more;
/// called again, it waits for them.
///
/// # Errors
/// [`ClusterError`]. What was changed until then stays changed, and calling again continues.
pub(crate) async fn change(
    options: &PgOptions,
    change: &ClusterChange,
    on_progress: OnClusterProgress<'_>,
) -> Result<ClusterOutcome, ClusterError> {
    let mut db = schema::connect(options).await?;
    let found = catalogue(&mut db).await?.ok_or(CannotDistribute::NoExtension)?;
    if !found.is_coordinator {
        return Err(CannotDistribute::OnWorker.into());
    }
    db.execute(sqlx::raw_sql(SESSION)).await?;
    match carry_out(&mut db, change, on_progress).await {
        Err(ClusterError::Database(error)) if is_forbidden(&error) => {
            Err(ClusterError::Superuser(change.statement()))
        }
        done => done,
    }
}

/// Whether the role may not do this: PostgreSQL says so by a code, Citus by a hint.
fn is_forbidden(error: &sqlx::Error) -> bool {
    let error = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    error.is_some_and(|error| {
        error.code() == INSUFFICIENT_PRIVILEGE || error.hint().is_some_and(|hint| hint.contains("superuser"))
    })
}

async fn carry_out(
    db: &mut PgConnection,
    change: &ClusterChange,
    on_progress: OnClusterProgress<'_>,
) -> Result<ClusterOutcome, ClusterError> {
    match change {
        ClusterChange::Add(address) => add(db, address).await,
        ClusterChange::Drain(address) => drain(db, address, on_progress).await,
        ClusterChange::Remove(address) => remove(db, address).await,
        ClusterChange::Rebalance => {
            wait_for_unfinished(db, on_progress).await?;
            move_shards(db, false, on_progress).await
        }
        ClusterChange::RestorePoint(name) => {
            let row = sqlx::query(RESTORE_POINT).bind(name).fetch_one(db).await?;
            Ok(ClusterOutcome::RestorePoint(row.try_get("position")?))
        }
    }
}

async fn member(db: &mut PgConnection, node: &NodeAddress) -> Result<Option<MemberState>, sqlx::Error> {
    let row = sqlx::query(MEMBER).bind(&node.host).bind(i32::from(node.port)).fetch_optional(db).await?;
    row.map(|row| {
        let (holds_shards, shards, others) =
            (row.try_get("holds_shards")?, row.try_get("shards")?, row.try_get("others")?);
        Ok(MemberState { holds_shards, shards, others })
    })
    .transpose()
}

/// As [`member`], of a node that has to be one.
async fn known(db: &mut PgConnection, node: &NodeAddress) -> Result<MemberState, ClusterError> {
    member(db, node).await?.ok_or_else(|| ClusterError::UnknownNode(node.clone()))
}

async fn add(db: &mut PgConnection, node: &NodeAddress) -> Result<ClusterOutcome, ClusterError> {
    if let Some(MemberState { holds_shards: true, .. }) = member(db, node).await? {
        return Ok(ClusterOutcome::Unchanged);
    }
    let port = i32::from(node.port);
    sqlx::query(ADD).bind(&node.host).bind(port).execute(&mut *db).await?;
    // One that was drained before.
    if !known(db, node).await?.holds_shards {
        sqlx::query(HOLD_SHARDS).bind(&node.host).bind(port).bind(true).execute(db).await?;
    }
    Ok(ClusterOutcome::Added)
}

async fn drain(
    db: &mut PgConnection,
    node: &NodeAddress,
    on_progress: OnClusterProgress<'_>,
) -> Result<ClusterOutcome, ClusterError> {
    let before = known(db, node).await?;
    if !before.holds_shards && before.shards == 0 {
        return Ok(ClusterOutcome::Unchanged);
    }
    if before.others == 0 {
        return Err(ClusterError::LastNode(node.clone()));
    }
    wait_for_unfinished(db, on_progress).await?;
    if before.holds_shards {
        let (host, port) = (&node.host, i32::from(node.port));
        sqlx::query(HOLD_SHARDS).bind(host).bind(port).bind(false).execute(&mut *db).await?;
    }
    let moved = move_shards(db, true, on_progress).await?;
    match known(db, node).await?.shards {
        0 => Ok(moved),
        left => Err(ClusterError::ShardsLeft(node.clone(), left)),
    }
}

async fn remove(db: &mut PgConnection, node: &NodeAddress) -> Result<ClusterOutcome, ClusterError> {
    match known(db, node).await?.shards {
        0 => {}
        left => return Err(ClusterError::ShardsLeft(node.clone(), left)),
    }
    sqlx::query(REMOVE).bind(&node.host).bind(i32::from(node.port)).execute(db).await?;
    Ok(ClusterOutcome::Removed)
}

/// Waits for moves that an earlier call has begun: Citus makes only one series of them at a time.
async fn wait_for_unfinished(
    db: &mut PgConnection,
    on_progress: OnClusterProgress<'_>,
) -> Result<(), ClusterError> {
    while let Some(row) = sqlx::query(UNFINISHED).fetch_optional(&mut *db).await? {
        wait_for(db, row.try_get("job")?, on_progress).await?;
    }
    Ok(())
}

async fn move_shards(
    db: &mut PgConnection,
    drain_only: bool,
    on_progress: OnClusterProgress<'_>,
) -> Result<ClusterOutcome, ClusterError> {
    let row = sqlx::query(MOVE).bind(drain_only).fetch_one(&mut *db).await?;
    match row.try_get("job")? {
        None => Ok(ClusterOutcome::Unchanged),
        Some(job) => Ok(ClusterOutcome::Moved(wait_for(db, job, on_progress).await?)),
    }
}

/// Waits until a series of moves has ended, and returns their number. One that fails is repeated by Citus.
async fn wait_for(
    db: &mut PgConnection,
    job: i64,
    on_progress: OnClusterProgress<'_>,
) -> Result<i64, ClusterError> {
    loop {
        let row = sqlx::query(JOB).bind(job).fetch_one(&mut *db).await?;
        let (state, done, of): (String, i64, i64) =
            (row.try_get("state")?, row.try_get("done")?, row.try_get("moves")?);
        let problem: Option<String> = row.try_get("problem")?;
        match state.as_str() {
            "finished" => return Ok(done),
            "failed" | "cancelled" => {
                let reason = problem.unwrap_or(state);
                return Err(ClusterError::Moves { done, of, reason });
            }
            _ => on_progress(ClusterEvent::Moved { done, of, problem: problem.as_deref() }),
        }
        tokio::time::sleep(PROGRESS).await;
    }
}
