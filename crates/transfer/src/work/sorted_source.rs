//! A place in memory for tests, which sorts like a server and counts requests.

use std::cmp::Ordering;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Memory};

use crate::contract::{OpenedRange, Page, RowReader, TransferSource};
use crate::error::TransferResult;
use crate::protocol::codec::policies::Policy;
use crate::protocol::codec::properties::ServiceProperties;
use crate::protocol::model::Key;
use crate::rows::Row;
use crate::rows::range::{Lower, RowRange};
use crate::rows::selection::NameCase;

/// The order of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyOrder {
    CodePoints,
    Utf16Units,
}

impl KeyOrder {
    fn compare(self, a: &Key, b: &Key) -> Ordering {
        let units = |text: &str| text.encode_utf16().collect::<Vec<_>>();
        match self {
            KeyOrder::CodePoints => a.cmp(b),
            KeyOrder::Utf16Units => {
                (units(&a.partition), units(&a.row)).cmp(&(units(&b.partition), units(&b.row)))
            }
        }
    }
}

/// A place whose tables have the same entities.
pub(crate) struct SortedSource {
    pub tables: Vec<String>,
    pub name_case: NameCase,
    pub order: KeyOrder,
    pub rows: Vec<Row>,
    pub rows_of_page: usize,
    pub is_ordered: bool,
    pub can_change: bool,
    /// Set as soon as an entity is read by its key.
    pub stop_at_get: Option<AtomicBool>,
    pub pages: AtomicUsize,
    pub gets: AtomicUsize,
    pub probes: AtomicUsize,
}

impl SortedSource {
    pub(crate) fn new(order: KeyOrder, mut rows: Vec<Row>, rows_of_page: usize) -> Self {
        rows.sort_by(|a, b| order.compare(&a.key, &b.key));
        let [pages, gets, probes] = std::array::from_fn(|_| AtomicUsize::new(0));
        let (is_ordered, can_change, stop_at_get) = (true, true, None);
        let (tables, name_case) = (vec!["People".into()], NameCase::Ignored);
        Self {
            tables,
            name_case,
            order,
            rows,
            rows_of_page,
            is_ordered,
            can_change,
            stop_at_get,
            pages,
            gets,
            probes,
        }
    }

    fn rows_in<'a>(&'a self, range: &'a RowRange) -> impl Iterator<Item = &'a Row> {
        let is_within = |row: &&Row| {
            let lower = match &range.lower {
                Lower::From(key) => self.order.compare(&row.key, key).is_ge(),
                Lower::After(key) => self.order.compare(&row.key, key).is_gt(),
            };
            lower && range.upper.as_ref().is_none_or(|upper| self.order.compare(&row.key, upper).is_lt())
        };
        self.rows.iter().filter(is_within)
    }
}

struct Pages<'a> {
    place: &'a SortedSource,
    left: Vec<Row>,
}

impl RowReader for Pages<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        self.place.pages.fetch_add(1, Memory::Relaxed);
        let rows = self.left.len().min(self.place.rows_of_page);
        let rows: Vec<Row> = self.left.drain(..rows).collect();
        Ok((!rows.is_empty()).then_some(Page { rows, rejected: Vec::new() }))
    }
}

impl TransferSource for SortedSource {
    fn tables(&self) -> TransferResult<Vec<String>> {
        Ok(self.tables.clone())
    }

    fn name_case(&self) -> NameCase {
        self.name_case
    }

    fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    fn can_change(&self) -> bool {
        self.can_change
    }

    fn open<'a>(&'a self, _: &str, range: &RowRange, _: bool) -> OpenedRange<'a> {
        Ok(Box::new(Pages { place: self, left: self.rows_in(range).cloned().collect() }))
    }

    fn probe(&self, _: &str, range: &RowRange) -> TransferResult<Option<Key>> {
        self.probes.fetch_add(1, Memory::Relaxed);
        Ok(self.rows_in(range).next().map(|row| row.key.clone()))
    }

    fn get(&self, _: &str, key: &Key) -> TransferResult<Option<Row>> {
        self.gets.fetch_add(1, Memory::Relaxed);
        self.stop_at_get.iter().for_each(|stop| stop.store(true, Memory::Relaxed));
        Ok(self.rows.iter().find(|row| row.key == *key).cloned())
    }

    fn policies(&self, _: &str) -> TransferResult<Option<Vec<Policy>>> {
        Ok(None)
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        Ok(None)
    }
}
