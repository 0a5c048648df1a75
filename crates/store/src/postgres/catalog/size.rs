//! How large tables are.

use sqlx::FromRow;

use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::rows::broken_row;
use crate::postgres::state::table_ids::{TableId, exists};
use crate::postgres::{PgStore, statements};
use crate::{Fault, StoreResult, TableSize};

impl PgStore {
    /// Measures a table by its first entities, `most` at most; `None` if it is gone.
    pub(super) async fn measure_table(&self, table_id: TableId, most: u32) -> StoreResult<Option<TableSize>> {
        let mut lease = self.nodes.acquire().await?;
        if !exists(&mut lease, table_id).await? {
            return Ok(None);
        }
        Ok(Some(measure(&mut lease, table_id, most).await?))
    }
}

/// Measures a table by its first entities, `most` at most.
pub(super) async fn measure(
    lease: &mut Lease,
    table_id: TableId,
    most: u32,
) -> Result<TableSize, StatementError> {
    let most = u64::from(most);
    let mut size = TableSize::default();
    for bucket in table_id.buckets() {
        // One row beyond the maximum shows whether there are more.
        let left = i64::try_from(most - size.entities + 1).unwrap_or(i64::MAX);
        let query = sqlx::query(statements::SIZE).bind(bucket).bind(left);
        let row = lease.row(query, Effect::Undone).await?.ok_or(Fault::Other)?;
        let (entities, bytes): (i64, i64) = FromRow::from_row(&row).map_err(broken_row)?;
        size.entities += u64::try_from(entities).unwrap_or(0);
        size.bytes += u64::try_from(bytes).unwrap_or(0);
        if size.entities > most {
            return Ok(size);
        }
    }
    Ok(TableSize { complete: true, ..size })
}
