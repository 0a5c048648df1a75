//! Reads single entities and pages.

pub(crate) mod filter;
mod narrow;
pub(crate) mod pages;
mod sources;
pub(crate) mod turn;

use crate::postgres::PgStore;
use crate::postgres::batches::reads::{FoundEntity, Lookup, read};
use crate::postgres::connections::sessions::LockWait;
use crate::postgres::fault::StatementError;
use crate::postgres::state::table_ids::TableId;
use crate::protocol::model::Key;

impl PgStore {
    /// Reads the entity with a key in a batch with other reads.
    pub(crate) async fn lookup(&self, table_id: TableId, key: &Key) -> Result<FoundEntity, StatementError> {
        let lookup = Lookup { table_id, key: key.clone() };
        let found = match &self.reads {
            Some(reads) if self.nodes.may_open() => reads.submit(lookup).await,
            _ => Box::pin(self.lookup_alone(lookup, None)).await,
        };
        match found {
            // Another session has locked the whole table, and this session may not wait for locks.
            Err(StatementError::Held) => {
                let lookup = Lookup { table_id, key: key.clone() };
                Box::pin(self.lookup_alone(lookup, Some(LockWait::Long))).await
            }
            found => found,
        }
    }

    async fn lookup_alone(
        &self,
        lookup: Lookup,
        lock_wait: Option<LockWait>,
    ) -> Result<FoundEntity, StatementError> {
        let bucket = lookup.table_id.bucket(&lookup.key.partition);
        let mut lease = self.nodes.acquire_at(bucket, lock_wait).await?;
        FoundEntity::of(read(&mut lease, &lookup).await?.as_ref(), lookup.key)
    }
}
