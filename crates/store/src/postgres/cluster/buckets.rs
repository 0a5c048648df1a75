//! Maintains bucket rows and change records for writes. On a cluster, each insert joins the bucket's row in `buckets`,
//! which must exist. Writes to a table that is being respread are recorded.

use crate::postgres::cluster::nodes::Nodes;
use crate::postgres::connections::lease::Lease;
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::statements;
use crate::postgres::statements::respread as texts;
use crate::protocol::model::Key;

/// Adds the bucket's row to `buckets` if it is missing and entities are distributed. Does nothing if the table has
/// been deleted.
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

/// Whether the table still exists, for a write statement that cannot check this itself.
pub(crate) async fn allows_inserts(lease: &mut Lease, table_id: TableId) -> Result<bool, StatementError> {
    Ok(!lease.statements().is_distributed || exists(lease, table_id).await?)
}

/// Same as [`add_bucket`], on its own connection.
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

/// Records keys that may be about to change, if their table is being respread; the respread copies them again after
/// the transaction ends. This must be the first statement of the writing transaction, before any check of the table.
/// Its lock makes the last step of a respread wait, and prevents other writers from continuing with an outdated table
/// number.
pub(crate) async fn record_changes<'k>(
    lease: &mut Lease,
    table_id: TableId,
    keys: impl Iterator<Item = &'k Key>,
) -> Result<(), StatementError> {
    if !table_id.is_respread() {
        return Ok(());
    }
    // A fixed order prevents deadlocks between transactions.
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
