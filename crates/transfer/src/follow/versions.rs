//! The versions of entities that the target is known to have.

use std::collections::HashSet;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

use crate::contract::Rejected;
use crate::rows::Row;

/// Maximum versions that are kept from a round. For others, the target is read again.
const MAX_VERSIONS: usize = 1 << 20;

/// A digest of a version (table, key and Timestamp) or of a rejected entity.
pub(super) type VersionDigest = [u8; 16];

/// Entities that were rejected, so that each is recorded once.
#[derive(Debug, Default)]
pub(super) struct RecordedRejects(Mutex<HashSet<VersionDigest>>);

impl RecordedRejects {
    /// Records a rejected entity; returns whether it is new.
    pub(super) fn is_new(&self, table: &str, rejected: &Rejected) -> bool {
        let mut recorded = self.0.lock();
        let digest = digest_of(&[table.as_bytes(), rejected.entity.as_bytes()]);
        recorded.len() < MAX_VERSIONS && recorded.insert(digest)
    }
}

/// The versions that this round or the last one has written or compared. A round reads the changes of the last minutes
/// again, because of its overlap.
#[derive(Debug, Default)]
pub(super) struct KnownVersions(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    last: HashSet<VersionDigest>,
    current: HashSet<VersionDigest>,
}

impl KnownVersions {
    /// Whether the target has a version. The version then stays known in the next round.
    pub(super) fn has(&self, table: &str, row: &Row) -> bool {
        let Some(digest) = digest(table, row) else { return false };
        let mut versions = self.0.lock();
        let is_known = versions.has(&digest);
        if is_known {
            versions.add(digest);
        }
        is_known
    }

    pub(super) fn digests(table: &str, rows: &[Row]) -> Vec<VersionDigest> {
        rows.iter().filter_map(|row| digest(table, row)).collect()
    }

    pub(super) fn add(&self, versions: Vec<VersionDigest>) {
        let mut known = self.0.lock();
        versions.into_iter().for_each(|version| known.add(version));
    }

    /// Ends a round, and forgets the versions that the round has not read.
    pub(super) fn end_round(&self) {
        let mut versions = self.0.lock();
        versions.last = std::mem::take(&mut versions.current);
    }
}

impl Generations {
    fn has(&self, digest: &VersionDigest) -> bool {
        self.last.contains(digest) || self.current.contains(digest)
    }

    fn add(&mut self, digest: VersionDigest) {
        if self.current.len() < MAX_VERSIONS {
            self.current.insert(digest);
        }
    }
}

/// Returns `None` for an entity without a Timestamp.
fn digest(table: &str, row: &Row) -> Option<VersionDigest> {
    let modified = row.modified?.raw().to_be_bytes();
    let [table, partition, row] = [table, &row.key.partition, &row.key.row].map(str::as_bytes);
    Some(digest_of(&[table, partition, row, &modified]))
}

fn digest_of(parts: &[&[u8]]) -> VersionDigest {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let mut digest = VersionDigest::default();
    digest.copy_from_slice(&hash.finalize()[..size_of::<VersionDigest>()]);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_known_until_a_round_does_not_read_them() {
        let row = |key: &str, second: u8| {
            let time = format!("2026-01-01T00:00:{second:02}Z");
            let json = serde_json::json!({ "PartitionKey": "p", "RowKey": key, "Timestamp": time });
            Row::from_json(&json.to_string()).unwrap()
        };
        let known = KnownVersions::default();
        known.add(KnownVersions::digests("People", &[row("a", 1)]));
        assert!(known.has("People", &row("a", 1)));
        for other in [row("a", 2), row("b", 1)] {
            assert!(!known.has("People", &other));
        }
        assert!(!known.has("Places", &row("a", 1)));
        known.end_round();
        assert!(known.has("People", &row("a", 1)));
        known.end_round();
        assert!(known.has("People", &row("a", 1)), "the last round has read it");
        known.end_round();
        known.end_round();
        assert!(!known.has("People", &row("a", 1)));
    }
}
