//! Any of the stores, with the whole contract.

use rowhouse_protocol::model::{Key, Stored, TableRef};
use rowhouse_protocol::plan::Scan;
use rowhouse_store::postgres::PgStore;
use rowhouse_store::sqlite::SqliteStore;
use rowhouse_store::{
    DeletedTables, Entities, Expiry, Indexes, Loads, Reset, StoreResult, StoredAccounts, Tables, Totals,
    Upkeep,
};

/// A page whose entities were collected.
#[derive(Debug, Clone, PartialEq)]
pub struct EntityPage {
    pub entities: Vec<Stored>,
    /// Where the next page begins.
    pub next: Option<Key>,
}

/// A store, whichever it is.
pub trait AnyStore:
    StoredAccounts + DeletedTables + Entities + Expiry + Indexes + Loads + Reset + Tables + Totals + Upkeep
{
    /// Reads one page.
    fn query(
        &self,
        table: TableRef<'_>,
        scan: &Scan,
    ) -> impl Future<Output = StoreResult<EntityPage>> + Send {
        async move {
            let (entities, end) = self.page(table, scan, Vec::new()).await?;
            Ok(EntityPage { entities, next: end.next })
        }
    }
}

impl AnyStore for PgStore {}

impl AnyStore for SqliteStore {}
