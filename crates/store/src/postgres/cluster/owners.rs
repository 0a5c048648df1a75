//! The servers that have buckets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::Fault;
use crate::observe::metrics::METRICS;
use crate::postgres::cluster::shards::{ServerNumber, ShardMap};
use crate::postgres::connections::breaker::Breaker;
use crate::postgres::fault::StatementError;

/// Maximum buckets that are tried to find one of a server.
const MAX_TRIED: i64 = 100_000;

/// A server that has buckets.
pub(crate) struct BucketOwner {
    pub number: ServerNumber,
    pub breaker: Arc<Breaker>,
    /// Limits its statements that are routed through other nodes.
    routing_permits: Arc<Semaphore>,
}

impl BucketOwner {
    pub(crate) fn new(number: ServerNumber, breaker: Breaker, max_routed: usize) -> Self {
        Self { number, breaker: Arc::new(breaker), routing_permits: Arc::new(Semaphore::new(max_routed)) }
    }

    /// Notes whether it answers; returns whether that is news.
    pub(crate) fn note(&self, answers: bool) -> bool {
        let is_news = self.breaker.set_open(!answers);
        if is_news {
            METRICS.open_breakers.add(if answers { -1 } else { 1 });
        }
        is_news
    }

    /// A permit to route a statement through another node.
    ///
    /// # Errors
    /// [`Fault::Busy`] if none is free within the limit.
    pub(crate) async fn routing_permit(
        &self,
        limit: Duration,
    ) -> Result<OwnedSemaphorePermit, StatementError> {
        let permit = timeout(limit, Arc::clone(&self.routing_permits).acquire_owned()).await;
        permit.map_err(|_| Fault::Busy)?.map_err(|_| Fault::Unavailable.into())
    }
}

impl Drop for BucketOwner {
    fn drop(&mut self) {
        self.note(true);
    }
}

/// Which server has which buckets.
#[derive(Default)]
pub(crate) struct Owners {
    map: ShardMap,
    owners: BTreeMap<ServerNumber, Arc<BucketOwner>>,
}

impl Owners {
    /// Those of a new map. Owners that were known stay the same.
    pub(crate) fn of_map(
        map: ShardMap,
        known: &Self,
        new: impl Fn(ServerNumber) -> Arc<BucketOwner>,
    ) -> Self {
        let owner = |number| known.get(number).map_or_else(|| new(number), Arc::clone);
        let owners = map.servers().into_iter().map(|number| (number, owner(number))).collect();
        Self { map, owners }
    }

    /// The number of the server that has a bucket; `None` if that is not known.
    pub(crate) fn server_of(&self, bucket: i64) -> Option<ServerNumber> {
        self.map.server_of(bucket)
    }

    /// That server.
    pub(crate) fn of_bucket(&self, bucket: i64) -> Option<&Arc<BucketOwner>> {
        self.get(self.server_of(bucket)?)
    }

    pub(crate) fn get(&self, number: ServerNumber) -> Option<&Arc<BucketOwner>> {
        self.owners.get(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<BucketOwner>> {
        self.owners.values()
    }

    /// How many servers have buckets.
    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }

    /// A bucket that this server has.
    pub(crate) fn bucket_on(&self, number: ServerNumber) -> Option<i64> {
        (0..MAX_TRIED).find(|bucket| self.server_of(*bucket) == Some(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(ranges: Vec<(i32, ServerNumber)>, known: &Owners) -> Owners {
        let new = |number| Arc::new(BucketOwner::new(number, Breaker::new(Duration::from_secs(1)).0, 1));
        Owners::of_map(ShardMap::new(ranges), known, new)
    }

    #[test]
    fn an_owner_stays_the_same_when_shards_move() {
        let before = owners(vec![(0, 1), (i32::MAX, 2)], &Owners::default());
        assert!(before.get(2).expect("server 2").note(false));
        let after = owners(vec![(0, 2), (i32::MAX, 3)], &before);
        assert!(after.get(2).expect("server 2").breaker.is_open());
        assert!(!after.get(3).expect("server 3").breaker.is_open());
        assert!(after.get(1).is_none());
        assert_eq!(after.len(), 2);
    }

    #[test]
    fn each_server_has_a_bucket() {
        let owners = owners(vec![(0, 1), (1_000_000_000, 2), (i32::MAX, 3)], &Owners::default());
        for number in 1..=3 {
            let bucket = owners.bucket_on(number).expect("a bucket");
            assert_eq!(owners.of_bucket(bucket).expect("an owner").number, number);
        }
        assert_eq!(owners.bucket_on(4), None);
    }
}
