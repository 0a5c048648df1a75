//! The connections to PostgreSQL that a server may open, beside those that the database allows.

use std::thread::available_parallelism;

use crate::server::config::Config;
use crate::store::Store;
use crate::store::database::Database;
use crate::store::postgres::ConnectionDemand;

/// Compares the connections that a server with these settings may open with the `allowed` ones;
/// `None` for SQLite.
pub(crate) fn connection_demand(config: &Config, allowed: u32) -> Option<ConnectionDemand> {
    let Database::Postgres { options, .. } = &config.database else { return None };
    let threads = match config.workers {
        Some(workers) => u32::from(workers),
        None => available_parallelism().map_or(1, |threads| u32::try_from(threads.get()).unwrap_or(u32::MAX)),
    };
    Some(ConnectionDemand { most: options.most_connections(threads), allowed })
}

/// Logs how many connections this server may open, and how many the database allows.
pub(crate) async fn log_connections(config: &Config, store: &Store) {
    let Store::Postgres(store) = store else { return };
    let demand = match store.allowed_connections().await {
        Ok(allowed) => connection_demand(config, allowed),
        Err(failure) => {
            return tracing::debug!(?failure, "the connection limit of the database could not be read");
        }
    };
    match demand {
        Some(demand) if demand.fits() => tracing::info!("{demand}"),
        Some(demand) => tracing::warn!("{demand}: {}", ConnectionDemand::ADVICE),
        None => {}
    }
}
