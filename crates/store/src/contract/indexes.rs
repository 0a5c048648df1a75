//! Property indexes as stored in the database, and the logic for reading them that both stores share.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::StoreResult;
use crate::protocol::model::{Key, TableRef, Ticks};
use crate::protocol::plan::Scan;
use crate::protocol::plan::index::{IndexChoice, IndexKind, IndexRange, IndexValue, PropertyIndex};
use crate::sql::{SqlRow, SqlText, counted_change};

/// Maximum number of indexes of a table. Each index slows down every write to the table.
pub const MAX_TABLE_INDEXES: i64 = 8;
/// Maximum number of indexes of a database. PostgreSQL opens all of them for every write.
pub const MAX_INDEXES: i64 = 64;
/// Time for which an unused index stays in the database, so that every server notices its removal.
pub(crate) const REMOVAL_GRACE: Duration = Duration::from_secs(5);
/// Maximum number of index entries that a page looks up. If a filter has more entries, the page is read in key order.
pub(crate) const MAX_ENTRIES: usize = 4000;
/// With at most this many entries, no other index is tried.
pub(crate) const FEW_ENTRIES: usize = 64;

/// Why a store rejects an order whose index it cannot use.
pub(crate) const MISSING_ORDER: &str = "the index of this order is missing in the database, or was created by an older \
     version of Rowhouse: drop it and create it again";

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum IndexState {
    /// The index is incomplete, and no page uses it.
    Building,
    Ready,
}

/// An index of an existing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredIndex {
    pub account: String,
    /// The table's name as created.
    pub table: String,
    pub index: PropertyIndex,
    pub state: IndexState,
    /// Time of the last state change.
    pub changed: Ticks,
}

impl StoredIndex {
    /// Query for the indexes of existing tables, read by [`StoredIndex::read`].
    pub(crate) const LIST: &str = "SELECT i.index_no, i.table_no, i.property, i.kind, i.state, i.changed, t.account, t.name \
         FROM property_indexes AS i JOIN tables AS t ON t.table_no = i.table_no \
         ORDER BY t.account, t.name_lower, i.property, i.kind";

    /// Query for the table's spread; no row unless index $1 still has to be built.
    pub(crate) const WANTED: &str = "SELECT t.spread FROM property_indexes AS i \
         JOIN tables AS t ON t.table_no = i.table_no WHERE i.index_no = $1 AND i.state = 0";
    /// Makes servers use index $1 from time $2 on; no row if the index is no longer needed.
    pub(crate) const COMPLETE: SqlText = counted_change!(
        "property_index_changes",
        "UPDATE property_indexes AS i SET state = 1, changed = $2 WHERE i.index_no = $1 AND i.state = 0 \
         AND EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = i.table_no) RETURNING index_no"
    );
    pub(crate) const FORGET: SqlText =
        counted_change!("property_index_changes", "DELETE FROM property_indexes WHERE index_no = $1");

    /// Returns `None` for an index kind of a newer version, and for an index that is to be removed.
    pub(crate) fn read(row: &SqlRow) -> StoreResult<Option<Self>> {
        let (kind, state): (String, i32) = (row.get(3)?, row.get(4)?);
        let (Ok(kind), Some(state)) = (kind.parse::<IndexKind>(), IndexState::read(state)) else {
            return Ok(None);
        };
        let (index_no, table_no, property) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let index = PropertyIndex { index_no, table_no, property, kind };
        Ok(Some(Self { account: row.get(6)?, table: row.get(7)?, index, state, changed: row.ticks(5)? }))
    }

    /// Describes the indexed table, property and kind, for messages.
    pub(crate) fn named(&self) -> String {
        let Self { account, table, index, .. } = self;
        format!("{account}/{table} over {} ({})", index.property, index.kind)
    }
}

/// Result of adding an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddIndexOutcome {
    /// The index, with this number, has yet to be built.
    Added(i64),
    /// The table already has an index for this property and kind.
    Exists,
    /// The table already has [`MAX_TABLE_INDEXES`] indexes, or the database [`MAX_INDEXES`].
    TooMany,
    /// The spread of the table is being changed.
    Respread,
}

/// Result of an attempt to build an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltIndex {
    Ready,
    /// The database refused to create the index, for this reason.
    Refused(String),
    /// Another process is building or removing an index, or waiting to drop this one.
    Busy,
    /// The index was dropped, or its table was deleted.
    Gone,
}

/// Statistics of an index; `None` where the database has none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IndexFigures {
    /// Size in the database, in bytes.
    pub bytes: Option<u64>,
    /// Number of reads of the index.
    pub uses: Option<u64>,
    /// Completed fraction of the build, from 0 to 1.
    pub progress: Option<f64>,
}

/// Stored as 0 and 1. The number 2 marks an index that is to be removed.
impl IndexState {
    pub(crate) const fn read(stored: i32) -> Option<Self> {
        match stored {
            0 => Some(IndexState::Building),
            1 => Some(IndexState::Ready),
            _ => None,
        }
    }
}

/// Returns the start of the removal grace period, in raw ticks. Indexes dropped since then must stay.
pub(crate) fn removable_until(now: Ticks) -> i64 {
    let grace = i64::try_from(REMOVAL_GRACE.as_nanos() / 100).unwrap_or(i64::MAX);
    now.raw().saturating_sub(grace)
}

/// Returns a scan's choices for this table number, with their positions. The table may have been created anew since
/// the scan was planned.
pub(crate) fn choices_of(scan: &Scan, table_no: i64) -> impl Iterator<Item = (usize, &IndexChoice)> {
    let is_current = move |choice: &IndexChoice| choice.ranges.iter().all(|r| r.index.table_no == table_no);
    scan.indexed.iter().enumerate().filter(move |(_, choice)| is_current(choice))
}

/// Keys found through the indexes of a choice.
#[derive(Debug, PartialEq)]
pub(crate) struct NamedKeys {
    /// The position of the choice in the scan.
    pub choice: usize,
    pub keys: Vec<Key>,
}

/// Compares the choices of a page. The choice with the fewest entries wins.
#[derive(Default)]
pub(crate) struct BestChoice {
    best: Option<NamedKeys>,
    /// Number of entries read.
    pub entries: u64,
}

impl BestChoice {
    /// Maximum number of entries for the next choice.
    pub(crate) fn limit(&self) -> usize {
        self.best.as_ref().map_or(MAX_ENTRIES, |best| best.keys.len())
    }

    /// Considers a choice, whose keys were read up to one beyond the limit. Returns whether no other choice needs to
    /// be tried.
    pub(crate) fn offer(&mut self, choice: usize, keys: Vec<Key>) -> bool {
        self.entries += keys.len() as u64;
        if keys.len() <= self.limit() {
            self.best = Some(NamedKeys { choice, keys });
        }
        self.best.as_ref().is_some_and(|best| best.keys.len() <= FEW_ENTRIES)
    }

    /// Whether choices were read and all have too many entries. `false` if all choices belong to a former table,
    /// because the density is then unknown.
    pub(crate) fn is_dense(&self) -> bool {
        self.best.is_none() && self.entries > 0
    }

    /// Returns the best choice with its keys; `None` if every choice has too many.
    pub(crate) fn into_named(self) -> Option<NamedKeys> {
        self.best
    }
}

/// Time for which the presence or absence of an index in the database is cached.
const LOOKED: Duration = Duration::from_secs(5);
/// Time for which a filter with too many entries is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Maximum number of findings in each map.
const MAX_REMEMBERED: usize = 4096;

/// Findings by key, with their time. A full map is cleared.
#[derive(Debug)]
struct RecentFindings<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for RecentFindings<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> RecentFindings<K, V> {
    /// Passes a finding to `read` if it is younger than `age`.
    fn read<R>(&self, key: &K, age: Duration, read: impl FnOnce(&V) -> R) -> Option<R> {
        let known = self.0.lock();
        known.get(key).filter(|(_, since)| since.elapsed() < age).map(|(found, _)| read(found))
    }

    fn put(&self, key: K, found: V) {
        let mut known = self.0.lock();
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(key, (found, Instant::now()));
    }
}

/// Remembers filters with too many entries, so that their next pages skip the lookup.
#[derive(Debug, Default)]
pub(crate) struct DenseFilters(RecentFindings<u64, ()>);

impl DenseFilters {
    pub(crate) fn has(&self, filter: u64) -> bool {
        self.0.read(&filter, REMEMBERED, |()| ()).is_some()
    }

    pub(crate) fn put(&self, filter: u64) {
        self.0.put(filter, ());
    }
}

/// Remembers the extent at which an open range of an index has too many entries, so that a filter with a different
/// literal skips the lookup. The key is the index and whether the range is read from above.
#[derive(Debug, Default)]
pub(crate) struct DenseBounds(RecentFindings<(i64, bool), IndexValue>);

impl DenseBounds {
    /// Whether a choice has too many entries, because one of its ranges extends at least as far as a remembered one.
    pub(crate) fn has(&self, choice: &IndexChoice) -> bool {
        choice.ranges.iter().any(|range| {
            let (Some(bound), is_from_above) = (range.only_bound(), range.is_from_above()) else {
                return false;
            };
            let is_far =
                |reached: &IndexValue| if is_from_above { bound <= reached } else { bound >= reached };
            self.0.read(&(range.index.index_no, is_from_above), REMEMBERED, is_far).unwrap_or(false)
        })
    }

    /// Remembers the entry at which this range exceeded the limit.
    pub(crate) fn put(&self, range: &IndexRange, reached: IndexValue) {
        self.0.put((range.index.index_no, range.is_from_above()), reached);
    }
}

/// Returns the range to remember for a choice with too many entries: its only range, if that range is open.
pub(crate) fn open_range(choice: &IndexChoice) -> Option<&IndexRange> {
    let [only] = choice.ranges.as_slice() else { return None };
    only.only_bound().is_some().then_some(only)
}

/// Counts reads of indexes since the start of this process.
#[derive(Debug, Default)]
pub(crate) struct IndexUses(Mutex<HashMap<i64, u64>>);

impl IndexUses {
    /// Counts a read of each index of a choice.
    pub(crate) fn count(&self, choice: &IndexChoice) {
        let mut counted = 0;
        for range in &choice.ranges {
            if range.index.index_no != counted {
                counted = range.index.index_no;
                self.count_one(counted);
            }
        }
    }

    pub(crate) fn count_one(&self, index_no: i64) {
        let mut uses = self.0.lock();
        if uses.len() > MAX_REMEMBERED {
            uses.clear();
        }
        *uses.entry(index_no).or_default() += 1;
    }

    /// Returns the number of reads by this process; `None` if there were none.
    pub(crate) fn of(&self, index_no: i64) -> Option<u64> {
        self.0.lock().get(&index_no).copied()
    }
}

/// Remembers briefly whether the database has an index with at least a given number of columns.
#[derive(Debug, Default)]
pub(crate) struct IndexPresence(RecentFindings<(i64, i16), bool>);

impl IndexPresence {
    /// Whether the database had an index at the last check; `None` if that check is too old.
    pub(crate) fn of(&self, index_no: i64, columns: i16) -> Option<bool> {
        self.0.read(&(index_no, columns), LOOKED, |is_there| *is_there)
    }

    pub(crate) fn put(&self, index_no: i64, columns: i16, is_there: bool) {
        self.0.put((index_no, columns), is_there);
    }
}

/// State that a store keeps to narrow pages by indexes.
#[derive(Debug, Default)]
pub(crate) struct NarrowingMemory {
    pub presence: IndexPresence,
    pub dense: DenseFilters,
    pub bounds: DenseBounds,
    pub uses: IndexUses,
}

/// Hashes a table number and a filter. After a collision, one filter may be read as slowly as the other.
pub(crate) fn filter_number(table_no: i64, scan: &Scan) -> u64 {
    let mut hashed = HashedText(DefaultHasher::new());
    // Hashing cannot fail.
    let _ = write!(hashed, "{table_no} {:?}", scan.residual);
    hashed.0.finish()
}

struct HashedText(DefaultHasher);

impl std::fmt::Write for HashedText {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
pub struct NewIndex<'a> {
    pub table: TableRef<'a>,
    pub property: &'a str,
    pub kind: IndexKind,
}

store_trait! {
pub trait Indexes {
    /// Lists the property indexes of existing tables.
    async fn indexes(&self) -> StoreResult<Vec<StoredIndex>>;

    /// Adds an index, to be built by [`Indexes::build_index`]. The property name must be valid.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn add_index(&self, index: NewIndex<'_>, now: Ticks) -> StoreResult<AddIndexOutcome>;

    /// Builds an index, without a timeout; remains of an earlier attempt are rebuilt. Pages use the index once the
    /// servers have read the list of indexes. On SQLite, writes wait during the build.
    async fn build_index(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex>;

    /// Makes servers stop using an index, and cancels its build; `false` if there is no such index.
    async fn drop_index(&self, index_no: i64, now: Ticks) -> StoreResult<bool>;

    /// Removes from the database one index that was dropped a while ago or whose table is gone. Returns whether an
    /// index was removed.
    async fn remove_index(&self, now: Ticks) -> StoreResult<bool>;

    /// Reads the statistics of an index.
    async fn index_figures(&self, index: &PropertyIndex) -> StoreResult<IndexFigures>;
}}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::protocol::plan::index::IndexKind;

    fn keys(count: usize) -> Vec<Key> {
        (0..count).map(|n| Key::new("p", n.to_string())).collect()
    }

    #[test]
    fn the_choice_with_the_fewest_entries_wins() {
        let mut best = BestChoice::default();
        assert!(!best.offer(0, keys(MAX_ENTRIES + 1)), "too many");
        assert!(!best.offer(1, keys(100)));
        assert_eq!(best.limit(), 100);
        assert!(!best.offer(2, keys(101)));
        assert!(best.offer(3, keys(FEW_ENTRIES)));
        assert_eq!(best.entries, MAX_ENTRIES as u64 + 1 + 100 + 101 + FEW_ENTRIES as u64);
        assert!(!best.is_dense());
        let named = best.into_named().unwrap();
        assert_eq!((named.choice, named.keys.len()), (3, FEW_ENTRIES));
        let mut dense = BestChoice::default();
        assert!(!dense.is_dense(), "nothing was read");
        dense.offer(0, keys(MAX_ENTRIES + 1));
        assert!(dense.is_dense());
        assert_eq!(dense.into_named(), None);
    }

    #[test]
    fn a_range_that_reaches_further_is_dense_too() {
        let index = PropertyIndex { index_no: 7, table_no: 1, property: "N".into(), kind: IndexKind::Number };
        let index = Arc::new(index);
        let range = |lower: Option<f64>, upper: Option<f64>| IndexRange {
            index: Arc::clone(&index),
            lower: lower.map(IndexValue::Number),
            upper: upper.map(IndexValue::Number),
        };
        let choice = |range| IndexChoice { ranges: vec![range] };
        let bounds = DenseBounds::default();
        let from_above = choice(range(Some(10.0), None));
        assert!(!bounds.has(&from_above));
        bounds.put(open_range(&from_above).expect("it is open"), IndexValue::Number(500.0));
        assert!(bounds.has(&from_above) && bounds.has(&choice(range(Some(500.0), None))));
        assert!(!bounds.has(&choice(range(Some(501.0), None))), "it may have few");
        assert!(!bounds.has(&choice(range(None, Some(600.0)))), "that is the other end");
        assert!(!bounds.has(&choice(range(Some(10.0), Some(20.0)))), "it has two bounds");
        let from_below = choice(range(None, Some(90.0)));
        bounds.put(open_range(&from_below).expect("it is open"), IndexValue::Number(50.0));
        assert!(
            bounds.has(&choice(range(None, Some(50.0)))) && !bounds.has(&choice(range(None, Some(49.0))))
        );
        assert!(open_range(&choice(range(Some(1.0), Some(2.0)))).is_none());
    }

    #[test]
    fn as_many_filters_are_remembered_as_fit() {
        let dense = DenseFilters::default();
        (0..2 * MAX_REMEMBERED as u64).for_each(|filter| dense.put(filter));
        assert!(dense.has(2 * MAX_REMEMBERED as u64 - 1) && !dense.has(0));
        assert!(dense.0.0.lock().len() <= MAX_REMEMBERED);
    }
}
