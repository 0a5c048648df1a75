//! An enum over the two stores, used instead of a trait object.

use super::contract::cluster::Cluster;
use super::postgres::{self, PgStore, StartError};
use super::sqlite::SqliteStore;

/// The store of a server. The contract's traits define its methods.
pub enum Store {
    Postgres(Box<PgStore>),
    Sqlite(SqliteStore),
}

/// Calls a method of the store, and measures the time spent in the database.
macro_rules! on_either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            // Boxed because this large future would enlarge every future that contains it.
            $crate::Store::Postgres($store) => {
                $crate::observe::metrics::database_time::in_database(Box::pin($call)).await
            }
            $crate::Store::Sqlite($store) => {
                $crate::observe::metrics::database_time::in_database($call).await
            }
        }
    };
}
pub(super) use on_either;

impl Store {
    /// Returns the Citus cluster of the database, after querying each node; `None` without Citus.
    pub async fn cluster(&self) -> Result<Option<Cluster>, StartError> {
        match self {
            Store::Postgres(store) => postgres::status(store.options()).await,
            Store::Sqlite(_) => Ok(None),
        }
    }

    /// Closes the database at shutdown. Skipping this call loses no data.
    pub async fn close(&self) {
        if let Store::Sqlite(store) = self {
            store.close().await;
        }
    }
}
