//! `rowhouse distribute` on PostgreSQL.

use sqlx::{Connection, Row};

use super::plan::{DistributionSettings, DistributionStep, timeouts};
use super::run::{self, ClusterError, OnClusterProgress, intended};
use crate::store::postgres::connections::hosts::Hosts;
use crate::store::postgres::connections::{PgOptions, schema};

const OWNER: &str = "SELECT current_user::text AS name";

/// What an operator asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DistributionRequest {
    /// Only find out what would be done.
    pub dry_run: bool,
    /// Copy entities while they are written to.
    pub concurrently: bool,
    /// Shards of `entities`; the cluster's setting if `None`.
    pub shards: Option<u32>,
}

/// Distributes the tables over the nodes of a cluster, and returns the steps that were taken, or
/// with `dry_run` would be.
///
/// # Errors
/// [`ClusterError`].
pub(crate) async fn distribute(
    options: &PgOptions,
    request: DistributionRequest,
    on_progress: OnClusterProgress<'_>,
) -> Result<Vec<DistributionStep>, ClusterError> {
    let mut db = schema::connect(options).await?;
    let schema = (schema::version(&mut db).await?, schema::known());
    let owner: String = sqlx::query(OWNER).fetch_one(&mut db).await?.try_get("name")?;
    let role = Hosts::of(options.first_url(), options.acquire_timeout)?.role().to_owned();
    let (lock, statement) = (options.lock_timeout().as_millis(), options.operation_timeout.as_millis());
    let settings = DistributionSettings {
        shards: request.shards,
        concurrently: request.concurrently,
        timeouts: timeouts(&role, &owner, lock, statement),
        role,
    };
    let steps = if request.dry_run {
        intended(&mut db, schema, &settings).await?.steps().cloned().collect()
    } else {
        let mut watch = schema::connect(options).await?;
        let steps = run::distribute(&mut db, &mut watch, schema, &settings, on_progress).await?;
        watch.close().await?;
        steps
    };
    db.close().await?;
    Ok(steps)
}
