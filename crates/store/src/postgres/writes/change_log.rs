//! Recording what is written to a table whose spread is being changed.

use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::respread as texts;
use crate::protocol::model::Key;

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
