//! The rows of `buckets`: on a cluster, each statement that inserts joins the row of its bucket, which has to be there.

use crate::postgres::cluster::nodes::Nodes;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::statements;

/// Adds the row of `buckets` that a bucket may lack, where entities are distributed. Nothing for a
/// table that is gone.
pub(crate) async fn add_bucket(
    lease: &mut Lease,
    table_id: TableId,
    bucket: i64,
) -> Result<(), StatementError> {
    if !lease.statements().is_distributed || !exists(lease, table_id).await? {
        return Ok(());
    }
    let add = sqlx::query(statements::ADD_BUCKET).bind(bucket);
    lease.changed(add, Effect::Unknown).await.map(|_| ())
}

/// Whether a table is there for a write, before a statement that cannot look itself.
pub(crate) async fn allows_inserts(lease: &mut Lease, table_id: TableId) -> Result<bool, StatementError> {
    Ok(!lease.statements().is_distributed || exists(lease, table_id).await?)
}

/// As [`add_bucket`], on a connection of its own.
pub(crate) async fn add_missing_bucket(
    nodes: &Nodes,
    table_id: TableId,
    bucket: i64,
) -> Result<(), StatementError> {
    if !nodes.is_distributed() {
        return Ok(());
    }
    let mut lease = nodes.acquire_at(bucket, Some(LockWait::Long)).await?;
    add_bucket(&mut lease, table_id, bucket).await
}
