//! Bucket ownership on Citus: which server owns which buckets.
//!
//! A map may be stale: any server forwards a statement to the bucket's owner.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::Fault;
use crate::observe::metrics::METRICS;
use crate::postgres::connections::breaker::Breaker;
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::rows::broken_row;
use crate::postgres::statements;

/// Buckets whose hashes must match the database's before a map is trusted.
const SAMPLES: [i64; 4] = [0, -1, 5, 0x1234_5678_9abc_def0];

/// The number of a server in Citus (its group).
pub(crate) type ServerNumber = i32;

/// Hash ranges, each with the server that owns its buckets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShardMap {
    /// The last hash of each range, ascending.
    ranges: Vec<(i32, ServerNumber)>,
}

impl ShardMap {
    pub(super) fn new(mut ranges: Vec<(i32, ServerNumber)>) -> Self {
        ranges.sort_unstable();
        Self { ranges }
    }

    /// Reads the map; empty if the database's hash function differs from [`hash_of`].
    pub(crate) async fn read(lease: &mut Lease) -> Result<Self, StatementError> {
        let samples = sqlx::query(statements::HASHES).bind(SAMPLES.to_vec());
        let hashes = lease.rows(samples, Effect::Undone).await?;
        let hashes: Vec<i32> =
            hashes.iter().map(|row| row.try_get("hash").map_err(broken_row)).collect::<Result<_, _>>()?;
        if hashes != SAMPLES.map(hash_of) {
            return Ok(Self::default());
        }
        let rows = lease.rows(sqlx::query(statements::SHARDS).bind("entities"), Effect::Undone).await?;
        let range = |row: &PgRow| -> Result<(i32, ServerNumber), StatementError> {
            let last: String = row.try_get("last").map_err(broken_row)?;
            Ok((last.parse().map_err(|_| Fault::Other)?, row.try_get("server").map_err(broken_row)?))
        };
        Ok(Self::new(rows.iter().map(range).collect::<Result<_, _>>()?))
    }

    /// Returns the server that owns a bucket; `None` if unknown.
    pub(crate) fn server_of(&self, bucket: i64) -> Option<ServerNumber> {
        let hash = hash_of(bucket);
        let at = self.ranges.partition_point(|(last, _)| *last < hash);
        self.ranges.get(at).map(|(_, server)| *server)
    }

    pub(crate) fn servers(&self) -> BTreeSet<ServerNumber> {
        self.ranges.iter().map(|(_, server)| *server).collect()
    }
}

/// Computes PostgreSQL's hash of a bigint: the last step of Bob Jenkins' lookup3 over both halves, folded. Indexes and
/// partitions on disk rely on this hash, so it does not change.
fn hash_of(value: i64) -> i32 {
    let high = (value >> 32) as u32;
    let folded = value as u32 ^ if value >= 0 { high } else { !high };
    let start = 0x9e37_79b9_u32.wrapping_add(4 + 3_923_095);
    let mut words = [start.wrapping_add(folded), start, start];
    // The word that changes, the word that changes it, and the rotation.
    for (to, from, turn) in
        [(2, 1, 14), (0, 2, 11), (1, 0, 25), (2, 1, 16), (0, 2, 4), (1, 0, 14), (2, 1, 24)]
    {
        words[to] = (words[to] ^ words[from]).wrapping_sub(words[from].rotate_left(turn));
    }
    words[2] as i32
}

/// Maximum number of buckets tried in the search for a bucket of one server.
const MAX_TRIED: i64 = 100_000;

pub(crate) struct BucketOwner {
    pub number: ServerNumber,
    pub breaker: Arc<Breaker>,
    /// Limits the server's statements that are routed through other nodes.
    routing_permits: Arc<Semaphore>,
}

impl BucketOwner {
    pub(crate) fn new(number: ServerNumber, breaker: Breaker, max_routed: usize) -> Self {
        Self { number, breaker: Arc::new(breaker), routing_permits: Arc::new(Semaphore::new(max_routed)) }
    }

    /// Records whether the server answers; returns whether that changed.
    pub(crate) fn note(&self, answers: bool) -> bool {
        let is_news = self.breaker.set_open(!answers);
        if is_news {
            METRICS.open_breakers.add(if answers { -1 } else { 1 });
        }
        is_news
    }

    /// Acquires a permit to route a statement through another node.
    ///
    /// # Errors
    /// [`Fault::Busy`] if no permit becomes free within the limit.
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

#[derive(Default)]
pub(crate) struct Owners {
    map: ShardMap,
    owners: BTreeMap<ServerNumber, Arc<BucketOwner>>,
}

impl Owners {
    /// Builds the owners of a new map. Known owners are kept.
    pub(crate) fn of_map(
        map: ShardMap,
        known: &Self,
        new: impl Fn(ServerNumber) -> Arc<BucketOwner>,
    ) -> Self {
        let owner = |number| known.get(number).map_or_else(|| new(number), Arc::clone);
        let owners = map.servers().into_iter().map(|number| (number, owner(number))).collect();
        Self { map, owners }
    }

    /// Returns the number of the server that owns a bucket; `None` if unknown.
    pub(crate) fn server_of(&self, bucket: i64) -> Option<ServerNumber> {
        self.map.server_of(bucket)
    }

    /// Returns the owner of a bucket; `None` if unknown.
    pub(crate) fn of_bucket(&self, bucket: i64) -> Option<&Arc<BucketOwner>> {
        self.get(self.server_of(bucket)?)
    }

    pub(crate) fn get(&self, number: ServerNumber) -> Option<&Arc<BucketOwner>> {
        self.owners.get(&number)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<BucketOwner>> {
        self.owners.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.owners.len()
    }

    /// Finds a bucket that this server owns.
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

    #[test]
    fn the_hash_is_that_of_postgresql() {
        // SELECT hashint8(n).
        for (value, hash) in HASHES {
            assert_eq!(hash_of(value), hash, "{value}");
        }
    }

    const HASHES: [(i64, i32); 8] = [
        (0, -272711505),
        (1, -1905060026),
        (-1, 385747274),
        (5, -1330264708),
        (-5, 1412886042),
        (65536, 32085720),
        (1311768467463790320, -325855130),
        (9223372036854775807, -1524351049),
    ];

    #[test]
    fn a_bucket_is_on_the_server_of_its_range() {
        let middle = ShardMap::new(vec![(hash_of(5) - 1, 1), (hash_of(5), 2), (i32::MAX, 3)]);
        assert_eq!(middle.server_of(5), Some(2));
        assert_eq!(middle.servers().len(), 3);
        assert_eq!(ShardMap::default().server_of(5), None);
        let part = ShardMap::new(vec![(hash_of(5) - 1, 1)]);
        assert_eq!(part.server_of(5), None, "beyond the last range");
    }
}
