//! One type for either store: an enum, not a trait object.

use super::contract::cluster::Cluster;
use super::postgres::{self, PgStore, StartError};
use super::sqlite::SqliteStore;

/// The database of a server. The traits of the contract are implemented where they are defined.
pub enum Store {
    Postgres(Box<PgStore>),
    Sqlite(SqliteStore),
}

/// Calls a method of the store, and counts the time in the database.
macro_rules! on_either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            // Boxed because the future is large, and every future that contains it would be as large.
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
    /// The cluster that the database is a node of, of which each node is asked; `None` for a single server.
    pub async fn cluster(&self) -> Result<Option<Cluster>, StartError> {
        match self {
            Store::Postgres(store) => postgres::status(store.options()).await,
            Store::Sqlite(_) => Ok(None),
        }
    }

    /// Closes the database at shutdown. No data is lost without it.
    pub async fn close(&self) {
        if let Store::Sqlite(store) = self {
            store.close().await;
        }
    }
}
