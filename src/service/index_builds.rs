//! The background work of property indexes: building those that were asked for, and removing those that
//! nothing uses any more.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Service;
use crate::protocol::model::Ticks;
use crate::protocol::plan::index::PropertyIndex;
use crate::store::{Backend as _, BuiltIndex};

/// Pause between two looks for indexes to build.
const POLL_PAUSE: Duration = Duration::from_secs(2);
/// Pause before the next attempt to build an index that could not be built.
const RETRY_PAUSE: Duration = Duration::from_secs(60);

/// Pause between two looks for indexes to remove; failures double it.
const REMOVE_PAUSE: Duration = Duration::from_secs(5);

/// Builds the indexes that operators have asked for, or that a server has left incomplete. Several servers
/// may try to; one of them does.
pub(crate) async fn build_indexes(service: Arc<Service>) {
    // When an index could not be built; it delays no other one.
    let mut failed: BTreeMap<i64, Instant> = BTreeMap::new();
    loop {
        failed.retain(|_, at| at.elapsed() < RETRY_PAUSE);
        let catalog = service.follower.indexes();
        for index in catalog.unbuilt() {
            if !failed.contains_key(&index.index_no) && !build(&service, index).await {
                failed.insert(index.index_no, Instant::now());
            }
        }
        tokio::time::sleep(POLL_PAUSE).await;
    }
}

/// Builds one index, unless another process does; returns whether all is well.
async fn build(service: &Service, index: &PropertyIndex) -> bool {
    let begun = Instant::now();
    let (number, property) = (index.index_no, index.property.as_str());
    match service.primary.build_index(index, Ticks::now()).await {
        Ok(BuiltIndex::Ready) => {
            let seconds = begun.elapsed().as_secs_f64();
            tracing::info!(index = number, property, seconds, "built an index");
            service.follower.follow_own_change(&service.primary).await;
            true
        }
        Ok(BuiltIndex::Elsewhere | BuiltIndex::Gone) => true,
        Ok(BuiltIndex::Refused(reason)) => {
            tracing::warn!(index = number, property, reason, "the database refuses an index; will retry");
            false
        }
        Err(failure) => {
            tracing::warn!(index = number, property, ?failure, "an index could not be built; will retry");
            false
        }
    }
}

/// Removes the indexes that nothing uses any more, until the server ends.
pub(crate) async fn remove_indexes(service: Arc<Service>) {
    let mut pause = REMOVE_PAUSE;
    loop {
        match service.primary.remove_index(Ticks::now()).await {
            Ok(true) => {
                tracing::info!("removed an index that was dropped, or whose table was deleted");
                continue;
            }
            Ok(false) => pause = REMOVE_PAUSE,
            Err(failure) => {
                tracing::debug!(?failure, "an index could not be removed; will retry");
                pause = (pause * 2).min(RETRY_PAUSE);
            }
        }
        tokio::time::sleep(pause).await;
    }
}
