//! The cost of filters: the numbers of rows that were examined and returned.

use parking_lot::Mutex;
use std::collections::HashMap;

use super::cells::{Counter, metrics};

/// Filtered pages, by how their rows were found.
pub struct FilterMetrics {
    pub scans: FilteredRows,
    pub by_index: FilteredRows,
}

metrics! {
    /// Rows of filtered pages.
    pub struct FilteredRows {} {
        examined: Counter, "rowhouse_filter_rows_examined",
            "About how many rows and index entries filtered queries examined.";
        returned: Counter, "rowhouse_filter_rows_returned",
            "Rows that filtered queries returned.";
    }
}

impl FilterMetrics {
    pub(super) const fn new() -> Self {
        Self { scans: FilteredRows::new(), by_index: FilteredRows::new() }
    }

    /// Counts a filtered page.
    pub fn page(&self, examined: u64, returned: usize, by_index: bool) {
        let rows = if by_index { &self.by_index } else { &self.scans };
        rows.examined.add(examined);
        rows.returned.add(returned as u64);
    }
}

/// Maximum number of properties. A new property replaces the property with the lowest cost.
const MAX_PROPERTIES: usize = 256;
/// Minimum number of rows that a page must examine before an index may help.
const MIN_EXAMINED: u64 = 1000;
/// Minimum number of examined rows per returned row before an index may help.
const MIN_RATIO: u64 = 10;

/// A property of a table, and the kind of index that would narrow filters on it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScannedProperty {
    pub account: String,
    pub table: String,
    pub property: String,
    pub kind: &'static str,
}

/// The cost of pages without an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ScanCost {
    pub pages: u64,
    pub examined: u64,
    pub returned: u64,
}

/// Returns whether an index may help, because a page returned few of the rows that it examined.
pub const fn is_costly(examined: u64, returned: usize) -> bool {
    examined >= MIN_EXAMINED && examined >= MIN_RATIO * (returned as u64)
}

/// The costs of scans by property, for suggestions.
#[derive(Debug)]
pub struct ScanCosts(Mutex<Option<HashMap<ScannedProperty, ScanCost>>>);

impl ScanCosts {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Adds a page that examined a property without an index.
    pub fn add(&self, scanned: ScannedProperty, examined: u64, returned: usize) {
        let mut known = self.0.lock();
        let known = known.get_or_insert_default();
        if known.len() >= MAX_PROPERTIES && !known.contains_key(&scanned) {
            let least = known.iter().min_by_key(|(_, cost)| cost.examined).map(|(least, _)| least.clone());
            least.map(|least| known.remove(&least));
        }
        let cost = known.entry(scanned).or_default();
        cost.pages += 1;
        cost.examined += examined;
        cost.returned += returned as u64;
    }

    /// Lists the costs, the highest first.
    pub fn list(&self) -> Vec<(ScannedProperty, ScanCost)> {
        let known = self.0.lock();
        let mut costs: Vec<_> =
            known.iter().flatten().map(|(scanned, cost)| (scanned.clone(), *cost)).collect();
        drop(known);
        costs.sort_unstable_by(|(a, x), (b, y)| y.examined.cmp(&x.examined).then_with(|| a.cmp(b)));
        costs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn property(number: usize) -> ScannedProperty {
        let (account, table, kind) = ("account".to_owned(), "people".to_owned(), "text");
        ScannedProperty { account, table, property: format!("P{number}"), kind }
    }

    #[test]
    fn costs_add_up_and_the_lowest_makes_room() {
        let costs = ScanCosts::new();
        for number in 0..MAX_PROPERTIES {
            costs.add(property(number), 1000 + number as u64, 1);
        }
        costs.add(property(5), 9000, 2);
        costs.add(property(MAX_PROPERTIES), 5000, 0);
        let listed = costs.list();
        assert_eq!(listed.len(), MAX_PROPERTIES);
        assert_eq!(listed[0], (property(5), ScanCost { pages: 2, examined: 10_005, returned: 3 }));
        assert_eq!(listed[1].0, property(MAX_PROPERTIES));
        assert!(listed.iter().all(|(scanned, _)| *scanned != property(0)));
    }

    #[test]
    fn pages_that_return_what_they_look_at_need_no_index() {
        assert!(is_costly(1000, 0) && is_costly(10_000, 1000));
        assert!(!is_costly(999, 0) && !is_costly(1009, 101));
    }
}
