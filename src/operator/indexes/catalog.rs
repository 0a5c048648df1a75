//! The indexes that a server knows, as requests use them.

use std::collections::HashMap;
use std::sync::Arc;

use crate::protocol::model::TableName;
use crate::protocol::plan::Scan;
use crate::protocol::plan::index::{PropertyIndex, choices};
use crate::store::{IndexState, StoredIndex};

/// The indexes of all tables, as last read from the database.
#[derive(Debug, Default)]
pub(crate) struct IndexCatalog {
    /// The complete indexes, by account and table.
    ready: HashMap<String, Vec<Arc<PropertyIndex>>>,
    unbuilt: Vec<PropertyIndex>,
}

impl IndexCatalog {
    /// Sorts what the database has.
    pub(crate) fn new(stored: Vec<StoredIndex>) -> Self {
        let mut catalog = Self::default();
        for StoredIndex { account, table, index, state, .. } in stored {
            match state {
                IndexState::Building => catalog.unbuilt.push(index),
                IndexState::Ready => {
                    let indexes = catalog.ready.entry(table_key(&account, &table)).or_default();
                    indexes.push(Arc::new(index));
                }
            }
        }
        catalog
    }

    /// The indexes that are still to be built.
    pub(crate) fn unbuilt(&self) -> &[PropertyIndex] {
        &self.unbuilt
    }

    /// Adds to a scan how indexes can find its matches. A scan of single partitions is left as it is: it
    /// reads fewer rows.
    pub(crate) fn narrow(&self, account: &str, table: &TableName, scan: &mut Scan) {
        if self.ready.is_empty() {
            return;
        }
        let Some(residual) = &scan.residual else { return };
        if scan.spans.iter().all(|span| span.partition().is_some()) {
            return;
        }
        if let Some(indexes) = self.ready.get(&table_key(account, table.lower())) {
            scan.indexed = choices(residual, indexes);
        }
    }
}

/// Account names have no slash, so no two pairs share a text.
fn table_key(account: &str, table: &str) -> String {
    format!("{account}/{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::{CompareOp, EdmValue, Key, PageOrder, Ticks};
    use crate::protocol::plan::index::IndexKind;
    use crate::protocol::plan::{Field, Predicate, Projection, Span};

    fn stored(index_no: i64, state: IndexState) -> StoredIndex {
        let index = PropertyIndex { index_no, table_no: 1, property: "N".into(), kind: IndexKind::Number };
        StoredIndex { account: "account".into(), table: "people".into(), index, state, changed: Ticks::MIN }
    }

    fn scan(spans: Vec<Span>) -> Scan {
        let (field, literal) = (Field::Custom("N".into()), EdmValue::Int32(1));
        let residual = Some(Predicate::Compare { field, op: CompareOp::Eq, literal });
        let (time, projection) = (crate::protocol::plan::scan::MAX_TIME, Projection::Full);
        let order = PageOrder::Ascending;
        Scan { spans, order, residual, rows: 1, bytes: 1, time, projection, indexed: Vec::new() }
    }

    #[test]
    fn complete_indexes_narrow_scans_that_name_no_partition() {
        let catalog = IndexCatalog::new(vec![stored(1, IndexState::Building), stored(2, IndexState::Ready)]);
        assert_eq!(catalog.unbuilt().iter().map(|index| index.index_no).collect::<Vec<_>>(), [1]);
        let used = |account: &str, table: &str, spans| {
            let mut scan = scan(spans);
            catalog.narrow(account, &TableName::parse(table).unwrap(), &mut scan);
            scan.indexed.first().map(|choice| choice.ranges[0].index.index_no)
        };
        let everything = || vec![Span::everything()];
        assert_eq!(used("account", "PEOPLE", everything()), Some(2));
        assert_eq!(used("account", "Others", everything()), None);
        assert_eq!(used("another", "People", everything()), None);
        let partition = Span { lower: Key::new("p", ""), upper: Some(Key::new("p\u{1}", "")) };
        assert_eq!(used("account", "People", vec![partition]), None);
    }
}
