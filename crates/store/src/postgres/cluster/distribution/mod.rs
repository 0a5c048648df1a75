//! Distributes the tables over the nodes of a Citus cluster: `rowhouse distribute` on PostgreSQL.

mod plan;
mod run;
mod state;

pub use plan::DistributionStep;
pub use run::DistributionError;
pub(crate) use run::add_tables;
pub use state::status;
pub(crate) use state::{cluster, is_worker};

use sqlx::Connection;

use crate::postgres::connections::hosts::Hosts;
use crate::postgres::connections::{PgOptions, schema};
use plan::{DistributionSettings, timeouts};
use run::{OnStep, intended};

const OWNER: &str = "SELECT current_user::text AS name";

/// Options of `rowhouse distribute`.
#[derive(Debug, Clone, Copy)]
pub struct DistributionRequest {
    /// Only report the steps.
    pub dry_run: bool,
    /// Number of shards of `entities`; `None` for the cluster's setting.
    pub shards: Option<u32>,
}

/// Distributes the tables over the nodes of a cluster. Returns the completed steps or, with `dry_run`, the planned
/// ones.
pub async fn distribute(
    options: &PgOptions,
    request: DistributionRequest,
    on_step: OnStep<'_>,
) -> Result<Vec<DistributionStep>, DistributionError> {
    let mut db = schema::connect(options).await?;
    let schema = (schema::version(&mut db).await?, schema::known());
    let owner: String = sqlx::query_scalar(OWNER).fetch_one(&mut db).await?;
    let role = Hosts::of(options.first_url(), options.acquire_timeout)?.role().to_owned();
    let (lock, statement) = (options.lock_timeout().as_millis(), options.operation_timeout.as_millis());
    let settings = DistributionSettings {
        shards: request.shards,
        timeouts: timeouts(&role, &owner, lock, statement),
        role,
    };
    let steps = match request.dry_run {
        true => intended(&mut db, schema, &settings).await?,
        false => run::distribute(&mut db, schema, &settings, on_step).await?,
    };
    db.close().await?;
    Ok(steps)
}
