//! The sources and targets of copies.

use serde::{Deserialize, Serialize};

use crate::error::{TransferResult, usage};
use crate::protocol::codec::policies::Policy;
use crate::protocol::codec::properties::ServiceProperties;
use crate::protocol::model::{Key, Ticks};
use crate::rows::range::RowRange;
use crate::rows::selection::{NameCase, Selection};
use crate::rows::type_inference::Inferences;
use crate::rows::{Row, Version};
use crate::store::LoadMark;

/// What a copy does with an entity whose key exists in the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// Reject the entity, unless both are equal
    Insert,
    /// Keep the existing entity
    Skip,
    /// Merge into the existing entity
    Merge,
    /// Replace the existing entity
    Replace,
}

/// An entity that cannot be copied, with the reason.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rejected {
    /// The entity as JSON, as far as it could be parsed.
    pub entity: String,
    pub reason: String,
}

impl Rejected {
    /// Returns a rejected entity whose text may not be UTF-8.
    pub(crate) fn from_bytes(entity: &[u8], reason: String) -> Self {
        Self { entity: String::from_utf8_lossy(entity).into_owned(), reason }
    }
}

/// Entities of a source, in the order of their keys if the source has one.
#[derive(Debug, Default)]
pub struct Page {
    pub rows: Vec<Row>,
    pub rejected: Vec<Rejected>,
}

/// The number of entities with each outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub written: u64,
    /// Entities that the target already had and that were not changed.
    pub unchanged: u64,
    /// Entities that were passed to [`WritePage::reject`].
    pub rejected: u64,
}

impl std::iter::Sum for Counts {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, counts| {
            sum += counts;
            sum
        })
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.written += other.written;
        self.unchanged += other.unchanged;
        self.rejected += other.rejected;
    }
}

pub struct WritePage<'a> {
    pub table: &'a str,
    /// The number of the range that the page is part of.
    pub range: i64,
    pub rows: Vec<Row>,
    pub mode: Mode,
    /// In the first page after an interruption, the number of entities of the range that were written before.
    pub resumed: Option<u64>,
    /// The unique name of the copy.
    pub copy: &'a str,
    /// The last key of the page or, if the source has no order, the page's number.
    pub last: Option<Key>,
    /// The number of entities of the page that were rejected while it was read.
    pub rejected: u64,
    /// Records an entity that cannot be copied.
    pub reject: &'a (dyn Fn(Rejected) -> TransferResult<()> + Sync),
}

pub trait RowReader: Send {
    /// Returns the next page, which may be empty; `None` at the end.
    fn next(&mut self) -> TransferResult<Option<Page>>;
}

/// A range of a table that is being read.
pub(crate) type OpenedRange<'a> = TransferResult<Box<dyn RowReader + 'a>>;

/// A place that entities are read from.
pub trait TransferSource: Send + Sync {
    /// Returns the names of all tables, in their original case.
    fn tables(&self) -> TransferResult<Vec<String>>;

    fn selected_tables(&self, selection: &Selection) -> TransferResult<Vec<String>> {
        let mut tables = self.tables()?;
        tables.retain(|name| selection.has_table(name));
        Ok(tables)
    }

    /// Whether the place distinguishes tables by the case of their names.
    fn name_case(&self) -> NameCase {
        NameCase::Ignored
    }

    /// Asks the place whether it has a table, because its list of tables may be incomplete.
    fn has_table(&self, table: &str) -> TransferResult<bool> {
        Ok(self.tables()?.iter().any(|name| self.name_case().is_same(name, table)))
    }

    /// Whether pages are in key order.
    fn is_ordered(&self) -> bool {
        true
    }

    /// Whether entities may change while they are read. Entities in dumps and files do not.
    fn can_change(&self) -> bool {
        true
    }

    /// Returns disjoint ranges, in ascending order, that may be read concurrently. Together they cover
    /// the whole table.
    fn ranges(&self, _table: &str) -> TransferResult<Vec<RowRange>> {
        Ok(vec![RowRange::everything()])
    }

    /// Returns the number of entities in a table, if the place knows it.
    fn expected(&self, _table: &str) -> TransferResult<Option<u64>> {
        Ok(None)
    }

    /// Counts the selected entities of a table; `None` if a count costs as much as reading their keys. `counted` is
    /// called for each part of the count, and may end the count.
    fn count(
        &self,
        _table: &str,
        _counted: &mut dyn FnMut(u64) -> TransferResult<()>,
    ) -> TransferResult<Option<u64>> {
        Ok(None)
    }

    /// Reads the clock of the place. `None` if the place has no clock.
    fn time(&self) -> TransferResult<Option<Ticks>> {
        Ok(None)
    }

    /// Returns the ticks by which Timestamps can lag behind [`time`](Self::time) at most. `None` if this is unknown.
    fn max_lag(&self) -> Option<i64> {
        None
    }

    /// Returns the same place with only the entities that changed at this time or later.
    fn changed_since(&self, _since: Ticks) -> TransferResult<Box<dyn TransferSource + '_>> {
        Err(usage!("dumps and files do not change, so they cannot be followed"))
    }

    /// Opens a range of a table. With `keys_only`, properties are not needed.
    fn open<'a>(&'a self, table: &str, range: &RowRange, keys_only: bool) -> OpenedRange<'a>;

    /// Returns a key in a range, preferably the first; `None` if the range is empty.
    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>>;

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>>;

    /// Reads the stored access policies of a table; `None` if the source has none.
    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>>;

    fn properties(&self) -> TransferResult<Option<ServiceProperties>>;

    /// Calls the callback with each entity that was rejected when the source was opened, and with its table.
    fn each_rejected(
        &self,
        _take: &mut dyn FnMut(&str, Rejected) -> TransferResult<()>,
    ) -> TransferResult<()> {
        Ok(())
    }

    /// Returns the file that was left out when the source was opened, with the reason; `None` if all were
    /// read.
    fn left_out(&self) -> Option<&str> {
        None
    }

    /// Returns the types of properties that the source does not state.
    fn inferences(&self) -> Option<&Inferences> {
        None
    }

    /// Returns the number of throttled answers and of retried requests.
    fn retries(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// A place that entities are written to.
pub trait TransferTarget: Send + Sync {
    /// Prepares the target for a copy that is not resumed.
    fn begin(&self) -> TransferResult<()> {
        Ok(())
    }

    /// Returns whether a table has entities; `None` if there is no such table, as in a new dump.
    fn has_entities(&self, _table: &str) -> TransferResult<Option<bool>> {
        Ok(None)
    }

    /// Creates a table, unless it exists. Returns `false` if it exists, which may be due to a repeated request.
    fn create(&self, table: &str) -> TransferResult<bool>;

    /// Deletes a table with all its entities, if it exists.
    fn delete_table(&self, _table: &str) -> TransferResult<()> {
        Err(usage!("a dump or file cannot be changed"))
    }

    /// Writes the next page of a range; it is durable when this returns.
    fn write(&self, page: WritePage<'_>) -> TransferResult<Counts>;

    /// Returns the last page of each range that the target has recorded itself, in the transactions that
    /// stored them. `None` if it keeps no such records.
    fn marks(&self, _copy: &str) -> TransferResult<Option<Vec<LoadMark>>> {
        Ok(None)
    }

    /// Deletes versions of entities, and keeps entities that have changed since. Returns the number of deleted
    /// entities, which at an endpoint includes entities that were already deleted.
    fn delete(&self, _table: &str, _entities: &[(Key, Version)]) -> TransferResult<u64> {
        Err(usage!("a dump cannot be changed"))
    }

    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()>;

    /// Replaces the given service properties; others stay.
    fn set_properties(&self, properties: &ServiceProperties) -> TransferResult<()>;

    /// Completes the target after the last write of a copy. `written` is the number of entities written by
    /// the copy; `origin` identifies its places and options.
    fn finish(&self, _copy: &str, _origin: &str, _written: u64) -> TransferResult<()> {
        Ok(())
    }

    fn retries(&self) -> (u64, u64) {
        (0, 0)
    }
}
