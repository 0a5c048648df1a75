//! Table numbers and their cache.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::rows::broken_row;
use crate::postgres::statements;
use crate::protocol::model::TableRef;
use crate::{Fault, bucket};

/// Maximum tables in the cache. A full cache is emptied.
const MAX_CACHED: usize = 10_000;

/// Maximum age of a cached id. A deleted table can return under a different name only after ten times as long, so
/// that no server takes its number for a table of the former name.
const MAX_AGE: Duration = Duration::from_secs(60);

/// The numbers of a table. Only a respread changes them. A respread also changes `table_no`, so that statements
/// detect the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableId {
    /// The table's number in `tables`, which statements check.
    pub table_no: i64,
    /// The number that buckets are derived from. Differs from `table_no` only during a respread.
    pub layout_no: i64,
    pub spread: u16,
}

impl TableId {
    /// A table without a respread in progress.
    pub(crate) const fn new(table_no: i64, spread: u16) -> Self {
        TableId { table_no, layout_no: table_no, spread }
    }

    pub(crate) fn bucket(self, partition: &str) -> i64 {
        bucket::bucket(self.layout_no, self.spread, partition)
    }

    pub(crate) fn buckets(self) -> impl Iterator<Item = i64> {
        bucket::buckets(self.layout_no, self.spread)
    }

    /// Whether a respread is in progress, so that writes must be recorded.
    pub(crate) const fn is_respread(self) -> bool {
        self.table_no != self.layout_no
    }

    /// Reads a row of [`statements::RESOLVE_TABLE`].
    pub(crate) fn read(row: &PgRow) -> Result<Self, StatementError> {
        let spread: i32 = row.try_get("spread").map_err(broken_row)?;
        Ok(TableId {
            table_no: row.try_get("table_no").map_err(broken_row)?,
            layout_no: row.try_get("layout_no").map_err(broken_row)?,
            spread: u16::try_from(spread).map_err(|_| Fault::Other)?,
        })
    }
}

/// A table, or one of its buckets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TablePart {
    pub table_id: TableId,
    /// `None` for all buckets.
    pub bucket: Option<i64>,
}

/// Table ids by account and name. They may be stale, so statements check them.
#[derive(Debug, Default)]
pub(crate) struct TableCache(RwLock<HashMap<String, CachedId>>);

#[derive(Debug, Clone, Copy)]
struct CachedId {
    table_id: TableId,
    read: Instant,
}

impl TableCache {
    pub(crate) fn get(&self, name: &str) -> Option<TableId> {
        let map = self.0.read();
        map.get(name).filter(|cached| cached.read.elapsed() < MAX_AGE).map(|cached| cached.table_id)
    }

    /// Adds an id that was read or created no earlier than `read`.
    pub(crate) fn put(&self, name: String, table_id: TableId, read: Instant) {
        let mut map = self.0.write();
        if map.len() >= MAX_CACHED {
            map.clear();
        }
        map.insert(name, CachedId { table_id, read });
    }

    pub(crate) fn remove(&self, name: &str) {
        self.0.write().remove(name);
    }

    pub(crate) fn drop_if(&self, name: &str, wrong: TableId) {
        let mut map = self.0.write();
        if map.get(name).is_some_and(|cached| cached.table_id == wrong) {
            map.remove(name);
        }
    }
}

/// Table names have no slash, so each pair has its own text.
pub(crate) fn cache_key(table: TableRef<'_>) -> String {
    format!("{}/{}", table.account, table.name.lower())
}

/// Whether the table still has this id.
pub(crate) async fn exists(lease: &mut Lease, table_id: TableId) -> Result<bool, StatementError> {
    let query = sqlx::query(statements::CHECK_TABLE).bind(table_id.table_no);
    Ok(lease.row(query, Effect::Undone).await?.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_not_used_for_longer_than_a_deleted_table_keeps_its_name() {
        let cache = TableCache::default();
        let table_id = TableId::new(7, 1);
        cache.put("a/people".into(), table_id, Instant::now());
        assert_eq!(cache.get("a/people"), Some(table_id));
        if let Some(read) = Instant::now().checked_sub(MAX_AGE) {
            cache.put("a/people".into(), table_id, read);
            assert_eq!(cache.get("a/people"), None);
        }
        let pause = crate::contract::deleted::RENAME_PAUSE / crate::protocol::model::ticks::TICKS_PER_SECOND;
        assert_eq!(MAX_AGE * 10, Duration::from_secs(pause.unsigned_abs()));
    }
}
