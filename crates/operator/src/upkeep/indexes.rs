//! Builds requested property indexes, and removes indexes that no server uses any more.

use std::time::{Duration, Instant};

use super::{IDLE, LONGEST_PAUSE, POLL_PAUSE};
use crate::accounts::Follower;
use crate::protocol::model::Ticks;
use crate::protocol::plan::index::PropertyIndex;
use crate::store::{BuiltIndex, SetAside, Store};

/// Builds the indexes that operators have requested, or that a server has left incomplete. Only one of several servers
/// builds an index.
#[derive(Default)]
pub struct IndexBuilds {
    /// The indexes that could not be built.
    failed: SetAside,
}

impl IndexBuilds {
    /// Builds the indexes that are not built yet, and returns the pause after it.
    pub async fn step(&mut self, store: &Store, follower: &Follower) -> Duration {
        let left_out = self.failed.current();
        let catalog = follower.indexes();
        for index in catalog.unbuilt() {
            if !left_out.contains(&index.index_no) && !build(store, follower, index).await {
                self.failed.add(index.index_no);
            }
        }
        POLL_PAUSE
    }
}

/// Builds one index, unless another process builds it. Returns `false` if the build was refused or failed.
async fn build(store: &Store, follower: &Follower, index: &PropertyIndex) -> bool {
    let begun = Instant::now();
    let (number, property) = (index.index_no, index.property.as_str());
    match store.build_index(index, Ticks::now()).await {
        Ok(BuiltIndex::Ready) => {
            let seconds = begun.elapsed().as_secs_f64();
            tracing::info!(index = number, property, seconds, "built an index");
            follower.follow_own_change(store).await;
            true
        }
        Ok(BuiltIndex::Busy | BuiltIndex::Gone) => true,
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

/// Removes the indexes that no server uses any more.
pub struct IndexRemoval {
    pause: Duration,
}

impl Default for IndexRemoval {
    fn default() -> Self {
        Self { pause: IDLE }
    }
}

impl IndexRemoval {
    /// Removes one index, and returns the pause after it. Failures double the pause, and are not logged as warnings,
    /// because the index may be in use.
    pub async fn step(&mut self, store: &Store) -> Duration {
        match store.remove_index(Ticks::now()).await {
            Ok(true) => {
                tracing::info!("removed an index that was dropped, or whose table was deleted");
                return Duration::ZERO;
            }
            Ok(false) => self.pause = IDLE,
            Err(failure) => {
                tracing::debug!(?failure, "an index could not be removed; will retry");
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
            }
        }
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::auth::AccountSet;
    use crate::protocol::model::TableName;
    use crate::protocol::plan::index::IndexKind;
    use crate::store::sqlite::{Location, SqliteOptions, SqliteStore};
    use crate::store::{AddIndexOutcome, IndexState, Indexes as _, NewIndex, Tables as _};

    #[tokio::test]
    async fn an_index_that_cannot_be_built_delays_no_other() {
        let store = SqliteStore::open(&SqliteOptions::new(Location::Memory)).unwrap();
        let table = TableName::parse("People").unwrap();
        let place = table.in_account("account");
        store.create_table(place, Ticks::now()).await.unwrap();
        for property in ["Broken", "Other"] {
            let new = NewIndex { table: place, property, kind: IndexKind::Number };
            let added = store.add_index(new, Ticks::now()).await.unwrap();
            assert!(matches!(added, AddIndexOutcome::Added(_)), "{added:?}");
        }
        let refuse = "CREATE TRIGGER refuse BEFORE UPDATE ON property_indexes WHEN NEW.property = 'Broken'
                      BEGIN SELECT RAISE(ABORT, 'refused'); END";
        store.execute(refuse).await;
        let store = Store::Sqlite(store);
        let follower = Follower::start(&store, None, AccountSet::development(vec![])).await.unwrap();
        let mut builds = IndexBuilds::default();
        builds.step(&store, &follower).await;
        let listed = store.indexes().await.unwrap();
        let states: Vec<_> =
            listed.iter().map(|stored| (stored.index.property.as_str(), stored.state)).collect();
        assert!(states.contains(&("Broken", IndexState::Building)), "{states:?}");
        assert!(states.contains(&("Other", IndexState::Ready)), "{states:?}");
        assert_eq!(builds.failed.current().len(), 1);
    }
}
