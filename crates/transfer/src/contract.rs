//! What copies read from and write to.

use serde::{Deserialize, Serialize};

use crate::error::{TransferResult, usage};
use crate::protocol::codec::policies::Policy;
use crate::protocol::codec::properties::ServiceProperties;
use crate::protocol::model::Key;
use crate::rows::range::RowRange;
use crate::rows::selection::NameCase;
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

/// An entity that cannot be copied, and why.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Rejected {
    /// The entity as JSON, as far as it could be read.
    pub entity: String,
    pub reason: String,
}

impl Rejected {
    /// Returns an entity, of which the text may not be UTF-8.
    pub(crate) fn of(entity: &[u8], reason: String) -> Self {
        Self { entity: String::from_utf8_lossy(entity).into_owned(), reason }
    }
}

/// Entities of a source, in the order of their keys if the source has one.
#[derive(Debug, Default)]
pub struct Page {
    pub rows: Vec<Row>,
    pub rejected: Vec<Rejected>,
}

/// How many entities had each outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub written: u64,
    /// Already there, and left as they are.
    pub unchanged: u64,
    /// Passed to [`WritePage::reject`].
    pub rejected: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.written += other.written;
        self.unchanged += other.unchanged;
        self.rejected += other.rejected;
    }
}

/// A page to write.
pub struct WritePage<'a> {
    pub table: &'a str,
    /// The number of the range that the page is part of.
    pub range: i64,
    pub rows: Vec<Row>,
    pub mode: Mode,
    /// In the first page after an interruption, how many entities of the range were written before.
    pub resumed: Option<u64>,
    /// The copy, by a name that no other has.
    pub copy: &'a str,
    /// The last key of the page or, in a source without an order, its number.
    pub last: Option<Key>,
    /// How many entities of the page were rejected when they were read.
    pub rejected: u64,
    /// Records an entity that cannot be copied.
    pub reject: &'a (dyn Fn(Rejected) -> TransferResult<()> + Sync),
}

/// Reads a range of a table page by page.
pub trait RowReader: Send {
    /// Returns the next page, which may be empty; `None` at the end.
    fn next(&mut self) -> TransferResult<Option<Page>>;
}

/// What entities are read from.
pub trait TransferSource: Send + Sync {
    /// Returns the names of all tables, in their original case.
    fn tables(&self) -> TransferResult<Vec<String>>;

    /// Whether the place distinguishes tables by the case of their names.
    fn name_case(&self) -> NameCase {
        NameCase::Ignored
    }

    /// Asks the place whether it has a table: a list may be guessed or cut.
    fn has_table(&self, table: &str) -> TransferResult<bool> {
        Ok(self.tables()?.iter().any(|name| self.name_case().is_same(name, table)))
    }

    /// Whether pages are in key order.
    fn is_ordered(&self) -> bool {
        true
    }

    /// Whether entities may change, appear or go while they are read: those of dumps and files do not.
    fn can_change(&self) -> bool {
        true
    }

    /// Returns disjoint ranges, in ascending order, that may be read concurrently. Together they cover
    /// the whole table.
    fn ranges(&self, _table: &str) -> TransferResult<Vec<RowRange>> {
        Ok(vec![RowRange::everything()])
    }

    /// Returns how many entities a table has, if that is cheap to find out.
    fn expected(&self, _table: &str) -> TransferResult<Option<u64>> {
        Ok(None)
    }

    /// Counts the selected entities of a table, if that takes less than reading their keys; `None` if it
    /// does not. `counted` is called for each part, and may end the count.
    fn count(
        &self,
        _table: &str,
        _counted: &mut dyn FnMut(u64) -> TransferResult<()>,
    ) -> TransferResult<Option<u64>> {
        Ok(None)
    }

    /// Opens a range of a table. `keys_only`: properties are not needed.
    fn open<'a>(
        &'a self,
        table: &str,
        range: &RowRange,
        keys_only: bool,
    ) -> TransferResult<Box<dyn RowReader + 'a>>;

    /// Returns some key in a range, preferably the first; `None` if the range is empty.
    fn probe(&self, table: &str, range: &RowRange) -> TransferResult<Option<Key>>;

    /// Reads one entity.
    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>>;

    /// Reads the stored access policies of a table; `None` if the source has none.
    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>>;

    /// Reads the service properties; `None` if the source has none.
    fn properties(&self) -> TransferResult<Option<ServiceProperties>>;

    /// Passes on the entities that were rejected when the source was opened, with their tables.
    fn each_rejected(
        &self,
        _take: &mut dyn FnMut(&str, Rejected) -> TransferResult<()>,
    ) -> TransferResult<()> {
        Ok(())
    }

    /// Returns which file was left out when the source was opened, and why; `None` if all were read.
    fn left_out(&self) -> Option<&str> {
        None
    }

    /// Returns the types of properties that the source does not tell.
    fn inferences(&self) -> Option<&Inferences> {
        None
    }

    /// Returns how many answers asked to slow down, and how many requests were retried.
    fn retries(&self) -> (u64, u64) {
        (0, 0)
    }
}

/// What entities are written to.
pub trait TransferTarget: Send + Sync {
    /// Begins a copy that no earlier run has begun.
    fn begin(&self) -> TransferResult<()> {
        Ok(())
    }

    /// Returns whether a table has entities; `None` if there is no such table, as in a new dump.
    fn has_entities(&self, _table: &str) -> TransferResult<Option<bool>> {
        Ok(None)
    }

    /// Creates a table, unless it exists.
    fn create(&self, table: &str) -> TransferResult<()>;

    /// Deletes a table with all its entities, if it exists.
    fn delete_table(&self, _table: &str) -> TransferResult<()> {
        Err(usage!("a dump or file cannot be changed"))
    }

    /// Writes the next page of a range; it is durable when this returns.
    fn write(&self, page: WritePage<'_>) -> TransferResult<Counts>;

    /// Returns the pages that the target has recorded itself, in the transactions that stored them:
    /// the last one of each range of a copy. `None` if it records none.
    fn marks(&self, _copy: &str) -> TransferResult<Option<Vec<LoadMark>>> {
        Ok(None)
    }

    /// Deletes versions of entities; returns how many there were, and at an endpoint also those that were gone
    /// already. An entity that has changed since stays.
    fn delete(&self, _table: &str, _entities: &[(Key, Version)]) -> TransferResult<u64> {
        Err(usage!("a dump cannot be changed"))
    }

    /// Replaces the stored access policies of a table.
    fn set_policies(&self, table: &str, policies: &[Policy]) -> TransferResult<()>;

    /// Replaces the given service properties; others stay.
    fn set_properties(&self, properties: &ServiceProperties) -> TransferResult<()>;

    /// Completes the target after the last write of a copy. `written` is the number of entities that the copy has
    /// written; `origin` distinguishes the copy from those of other places or with other options.
    fn finish(&self, _copy: &str, _origin: &str, _written: u64) -> TransferResult<()> {
        Ok(())
    }

    /// Returns how many answers asked to slow down, and how many requests were retried.
    fn retries(&self) -> (u64, u64) {
        (0, 0)
    }
}
