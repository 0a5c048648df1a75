//! Property indexes as stored in the database, and what both stores share in reading them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::StoreResult;
use crate::protocol::model::{Key, TableRef, Ticks};
use crate::protocol::plan::Scan;
use crate::protocol::plan::index::{IndexChoice, IndexKind, IndexRange, IndexValue, PropertyIndex};
use crate::sql::{SqlRow, SqlText, counted_change};

/// Maximum number of indexes of a table: each costs every write of the table.
pub const MAX_TABLE_INDEXES: i64 = 8;
/// Maximum number of indexes of a database: PostgreSQL opens all of them for every write.
pub const MAX_INDEXES: i64 = 64;
/// How long an index that is no longer used stays in the database, until every server has noticed.
pub(crate) const REMOVAL_GRACE: Duration = Duration::from_secs(5);
/// Entries that a page looks up in indexes at most. If a filter has more, the page is read in the order
/// of keys.
pub(crate) const MAX_ENTRIES: usize = 4000;
/// So few entries that no other index is tried.
pub(crate) const FEW_ENTRIES: usize = 64;

/// Why a store refuses an order whose index it cannot use.
pub(crate) const MISSING_ORDER: &str = "the index of this order is missing in the database, or was made by an older \
     version of Rowhouse: drop it and make it again";

/// The state of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum IndexState {
    /// Not complete: no page uses it.
    Building,
    /// Complete.
    Ready,
}

/// An index of an existing table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredIndex {
    pub account: String,
    /// The name of the table, as it was created.
    pub table: String,
    pub index: PropertyIndex,
    pub state: IndexState,
    /// When it got into this state.
    pub changed: Ticks,
}

impl StoredIndex {
    /// Lists those of existing tables, for [`StoredIndex::read`].
    pub(crate) const LIST: &str = "SELECT i.index_no, i.table_no, i.property, i.kind, i.state, i.changed, t.account, t.name \
         FROM property_indexes AS i JOIN tables AS t ON t.table_no = i.table_no \
         ORDER BY t.account, t.name_lower, i.property, i.kind";

    /// The spread of the table, while the index $1 is still to be built.
    pub(crate) const WANTED: &str = "SELECT t.spread FROM property_indexes AS i \
         JOIN tables AS t ON t.table_no = i.table_no WHERE i.index_no = $1 AND i.state = 0";
    /// Has servers use the index $1 from the time $2 on; no row if it is no longer wanted.
    pub(crate) const COMPLETE: SqlText = counted_change!(
        "property_index_changes",
        "UPDATE property_indexes AS i SET state = 1, changed = $2 WHERE i.index_no = $1 AND i.state = 0 \
         AND EXISTS (SELECT 1 FROM tables AS t WHERE t.table_no = i.table_no) RETURNING index_no"
    );
    pub(crate) const FORGET: SqlText =
        counted_change!("property_index_changes", "DELETE FROM property_indexes WHERE index_no = $1");

    /// `None` for a kind of a newer version, and for an index that is to be removed.
    pub(crate) fn read(row: &SqlRow) -> StoreResult<Option<Self>> {
        let (kind, state): (String, i32) = (row.get(3)?, row.get(4)?);
        let (Ok(kind), Some(state)) = (kind.parse::<IndexKind>(), IndexState::read(state)) else {
            return Ok(None);
        };
        let (index_no, table_no, property) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let index = PropertyIndex { index_no, table_no, property, kind };
        Ok(Some(Self { account: row.get(6)?, table: row.get(7)?, index, state, changed: row.ticks(5)? }))
    }

    /// What it is over, for messages.
    pub(crate) fn named(&self) -> String {
        let Self { account, table, index, .. } = self;
        format!("{account}/{table} over {} ({})", index.property, index.kind)
    }
}

/// Result of adding an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedIndex {
    /// It has to be built now.
    Added(i64),
    /// There is one for this property and kind.
    Exists,
    /// The table has [`MAX_TABLE_INDEXES`], or the database [`MAX_INDEXES`].
    TooMany,
    /// The spread of the table is being changed.
    Respread,
}

/// Result of an attempt to build an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuiltIndex {
    Ready,
    /// The database does not make it, for this reason.
    Refused(String),
    /// Another process builds or removes an index, or somebody waits to drop this one.
    Busy,
    /// It was dropped, or its table deleted.
    Gone,
}

/// What a database says about an index; `None` where it does not.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IndexFigures {
    /// Size in the database.
    pub bytes: Option<u64>,
    /// How many times it was read.
    pub uses: Option<u64>,
    /// The part that is built, from 0 to 1.
    pub progress: Option<f64>,
}

/// In the database: 0, 1, and 2 for an index that is to be removed.
impl IndexState {
    pub(crate) const fn read(stored: i32) -> Option<Self> {
        match stored {
            0 => Some(IndexState::Building),
            1 => Some(IndexState::Ready),
            _ => None,
        }
    }
}

/// The time from which on removed indexes must stay, in raw ticks.
pub(crate) fn removable_until(now: Ticks) -> i64 {
    let grace = i64::try_from(REMOVAL_GRACE.as_nanos() / 100).unwrap_or(i64::MAX);
    now.raw().saturating_sub(grace)
}

/// The choices of a scan that are about a table, with their numbers. The table may have been made anew
/// since they were planned.
pub(crate) fn choices_of(scan: &Scan, table_no: i64) -> impl Iterator<Item = (usize, &IndexChoice)> {
    let is_current = move |choice: &IndexChoice| choice.ranges.iter().all(|r| r.index.table_no == table_no);
    scan.indexed.iter().enumerate().filter(move |(_, choice)| is_current(choice))
}

/// Keys that a choice has named.
#[derive(Debug, PartialEq)]
pub(crate) struct NamedKeys {
    /// The number of the choice.
    pub choice: usize,
    pub keys: Vec<Key>,
}

/// Compares the choices of a page: the one with the fewest entries wins.
#[derive(Default)]
pub(crate) struct BestChoice {
    best: Option<NamedKeys>,
    /// Entries that were read.
    pub entries: u64,
}

impl BestChoice {
    /// How many entries the next choice may have.
    pub(crate) fn limit(&self) -> usize {
        self.best.as_ref().map_or(MAX_ENTRIES, |best| best.keys.len())
    }

    /// Takes the keys of a choice, of which one more than the limit were read; returns whether no
    /// other choice needs to be tried.
    pub(crate) fn offer(&mut self, choice: usize, keys: Vec<Key>) -> bool {
        self.entries += keys.len() as u64;
        if keys.len() <= self.limit() {
            self.best = Some(NamedKeys { choice, keys });
        }
        self.best.as_ref().is_some_and(|best| best.keys.len() <= FEW_ENTRIES)
    }

    /// Whether choices were read and every one has too many entries. It is not known of a filter whose
    /// choices are all about a former table.
    pub(crate) fn is_dense(&self) -> bool {
        self.best.is_none() && self.entries > 0
    }

    /// The best choice with its keys; `None` if every choice has too many.
    pub(crate) fn into_named(self) -> Option<NamedKeys> {
        self.best
    }
}

/// How long it is believed that the database has an index, or has it not.
const LOOKED: Duration = Duration::from_secs(5);
/// How long a filter is known to have too many entries.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Filters that are remembered at most; then all are forgotten.
const MAX_REMEMBERED: usize = 4096;

/// What was found by a key, and when. Once it is full, all is forgotten.
#[derive(Debug)]
struct RecentFindings<K, V>(Mutex<HashMap<K, (V, Instant)>>);

impl<K, V> Default for RecentFindings<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> RecentFindings<K, V> {
    /// Reads what was found no longer ago than `age`.
    fn read<R>(&self, key: &K, age: Duration, read: impl FnOnce(&V) -> R) -> Option<R> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(key).filter(|(_, since)| since.elapsed() < age).map(|(found, _)| read(found))
    }

    fn put(&self, key: K, found: V) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED {
            known.clear();
        }
        known.insert(key, (found, Instant::now()));
    }
}

/// Remembers filters that have too many entries, so that their next pages do not look them up again.
#[derive(Debug, Default)]
pub(crate) struct DenseFilters(RecentFindings<u64, ()>);

impl DenseFilters {
    /// Whether this filter had too many entries recently.
    pub(crate) fn has(&self, filter: u64) -> bool {
        self.0.read(&filter, REMEMBERED, |()| ()).is_some()
    }

    /// Remembers that this filter has too many entries.
    pub(crate) fn put(&self, filter: u64) {
        self.0.put(filter, ());
    }
}

/// Remembers how far an open range of an index must reach to have too many entries, so that a filter with
/// another literal does not look them up again. By index, and whether the range is read from above.
#[derive(Debug, Default)]
pub(crate) struct DenseBounds(RecentFindings<(i64, bool), IndexValue>);

impl DenseBounds {
    /// Whether a choice had too many entries recently: one of its ranges reaches far enough.
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

    /// Remembers the entry at which this range had too many.
    pub(crate) fn put(&self, range: &IndexRange, reached: IndexValue) {
        self.0.put((range.index.index_no, range.is_from_above()), reached);
    }
}

/// The range to remember of a choice that has too many entries: its only one, if that is open.
pub(crate) fn open_range(choice: &IndexChoice) -> Option<&IndexRange> {
    let [only] = choice.ranges.as_slice() else { return None };
    only.only_bound().is_some().then_some(only)
}

/// Counts how often indexes are read, since the start of this process.
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

    /// Counts a read of an index.
    pub(crate) fn count_one(&self, index_no: i64) {
        let mut uses = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if uses.len() > MAX_REMEMBERED {
            uses.clear();
        }
        *uses.entry(index_no).or_default() += 1;
    }

    /// How often this process has read an index; `None` if never.
    pub(crate) fn of(&self, index_no: i64) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&index_no).copied()
    }
}

/// Remembers for a moment which indexes the database has, with how many columns at least.
#[derive(Debug, Default)]
pub(crate) struct IndexPresence(RecentFindings<(i64, i16), bool>);

impl IndexPresence {
    /// Whether the database had an index when it was last read; `None` if that was too long ago.
    pub(crate) fn of(&self, index_no: i64, columns: i16) -> Option<bool> {
        self.0.read(&(index_no, columns), LOOKED, |is_there| *is_there)
    }

    /// Remembers whether the database has an index.
    pub(crate) fn put(&self, index_no: i64, columns: i16, is_there: bool) {
        self.0.put((index_no, columns), is_there);
    }
}

/// What a store remembers for narrowing pages.
#[derive(Debug, Default)]
pub(crate) struct NarrowingMemory {
    pub presence: IndexPresence,
    pub dense: DenseFilters,
    pub bounds: DenseBounds,
    pub uses: IndexUses,
}

/// Identifies a filter on a table. Two filters that share a number only share a memory of speed.
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

/// An index to add.
#[derive(Debug, Clone, Copy)]
pub struct NewIndex<'a> {
    pub table: TableRef<'a>,
    pub property: &'a str,
    pub kind: IndexKind,
}

store_trait! {
/// Property indexes.
pub trait Indexes {
    /// Lists the property indexes of existing tables.
    async fn indexes(&self) -> StoreResult<Vec<StoredIndex>>;

    /// Adds an index, to be built by [`Indexes::build_index`]. The property has a valid name.
    ///
    /// # Errors
    /// `TableNotFound`.
    async fn add_index(&self, index: NewIndex<'_>, now: Ticks) -> StoreResult<AddedIndex>;

    /// Builds an index, for as long as that takes; what a former attempt has left is made again. Pages
    /// use it once the servers have read the list. On SQLite, writes wait meanwhile.
    async fn build_index(&self, index: &PropertyIndex, now: Ticks) -> StoreResult<BuiltIndex>;

    /// Has servers no longer use an index, and cancels its build; `false` if there is none.
    async fn drop_index(&self, index_no: i64, now: Ticks) -> StoreResult<bool>;

    /// Removes one index from the database that was dropped a while ago, or whose table is gone. Returns
    /// whether it did.
    async fn remove_index(&self, now: Ticks) -> StoreResult<bool>;

    /// Measures an index.
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
        assert!(dense.0.0.lock().unwrap().len() <= MAX_REMEMBERED);
    }
}
