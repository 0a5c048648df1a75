//! The background work of property indexes: building those that were asked for, and removing those that
//! nothing uses any more.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Service;
use crate::store::{Backend as _, BuiltIndex};

/// Pause between two looks for indexes to build.
const POLL_PAUSE: Duration = Duration::from_secs(2);
/// Pause after an index could not be built.
const BUILD_PAUSE: Duration = Duration::from_secs(60);
/// Builds the indexes that operators have asked for, or that a server has left incomplete. Several servers
/// may try to; one of them does.
pub(crate) async fn build_indexes(service: Arc<Service>) {
    loop {
        let mut pause = POLL_PAUSE;
        let catalog = service.follower.indexes();
        for index in catalog.unbuilt() {
            let begun = Instant::now();
            match service.primary.build_index(index, service.version_clock.now()).await {
                Ok(BuiltIndex::Ready) => {
                    let seconds = begun.elapsed().as_secs_f64();
                    tracing::info!(
                        index = index.index_no,
                        property = index.property,
                        seconds,
                        "built an index"
                    );
                    service.follower.follow_own_change(&service.primary).await;
                }
                Ok(BuiltIndex::Elsewhere | BuiltIndex::Gone) => {}
                Err(failure) => {
                    let index = index.index_no;
                    tracing::warn!(index, ?failure, "an index could not be built; will retry");
                    pause = BUILD_PAUSE;
                }
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// Removes the indexes that nothing uses any more.
pub(crate) async fn remove_indexes(service: &Service) {
    loop {
        match service.primary.remove_index(service.version_clock.now()).await {
            Ok(true) => tracing::info!("removed an index that was dropped, or whose table was deleted"),
            Ok(false) => return,
            Err(failure) => return tracing::debug!(?failure, "an index could not be removed; will retry"),
        }
    }
}
