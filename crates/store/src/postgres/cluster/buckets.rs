//! What writes do for the buckets of a table: on a cluster, each statement that inserts joins the row of its bucket in
//! `buckets`, which has to be there. What is written to a table that is being respread is recorded.

use crate::postgres::cluster::nodes::Nodes;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::statements;
use crate::postgres::statements::respread as texts;
use crate::protocol::model::Key;

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

/// Records that entities may be about to change, if their table is being respread: they are copied again
/// once the transaction has ended. It has to be the first statement of the transaction that writes, before
/// any check of the table: its lock makes the last step of a respread wait, and keeps others from going on
/// with a number that is no longer valid.
pub(crate) async fn record_changes<'k>(
    lease: &mut Lease,
    table_id: TableId,
    keys: impl Iterator<Item = &'k Key>,
) -> Result<(), StatementError> {
    if !table_id.is_respread() {
        return Ok(());
    }
    // In order, so that two transactions cannot deadlock.
    let mut found: Vec<(i64, &Key)> = keys.map(|key| (table_id.bucket(&key.partition), key)).collect();
    found.sort_unstable();
    found.dedup();
    for here in found.chunk_by(|one, other| one.0 == other.0) {
        let pks: Vec<&str> = here.iter().map(|(_, key)| key.partition.as_str()).collect();
        let rks: Vec<&str> = here.iter().map(|(_, key)| key.row.as_str()).collect();
        let record = sqlx::query(texts::RECORD).bind(here[0].0).bind(table_id.table_no).bind(pks).bind(rks);
        lease.changed(record, Effect::Undone).await?;
    }
    Ok(())
}
