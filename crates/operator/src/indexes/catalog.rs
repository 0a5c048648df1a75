//! The property indexes of all tables, and their selection for queries.

use std::collections::HashMap;
use std::sync::Arc;

use crate::protocol::error::{Code, Error, Result};
use crate::protocol::model::TableName;
use crate::protocol::plan::index::{IndexPosition, PropertyIndex, ValueOrder, choices};
use crate::protocol::plan::{Plan, Predicate, Scan};
use crate::store::{IndexState, StoredIndex};

/// The indexes of all tables, as last read from the database.
#[derive(Debug, Default)]
pub struct IndexCatalog {
    /// Whether the indexes were read from the database. A secondary may not have answered yet.
    is_read: bool,
    /// The complete indexes, by account and table.
    ready: HashMap<String, Vec<Arc<PropertyIndex>>>,
    unbuilt: Vec<PropertyIndex>,
}

impl IndexCatalog {
    /// Sorts the stored indexes by their tables and states.
    pub fn new(stored: Vec<StoredIndex>) -> Self {
        let mut catalog = Self { is_read: true, ..Self::default() };
        for StoredIndex { account, table, index, state, .. } in stored {
            match state {
                IndexState::Building => catalog.unbuilt.push(index),
                IndexState::Ready => {
                    let indexes =
                        catalog.ready.entry(table_key(&account, &table.to_ascii_lowercase())).or_default();
                    indexes.push(Arc::new(index));
                }
            }
        }
        catalog
    }

    pub(crate) fn unbuilt(&self) -> &[PropertyIndex] {
        &self.unbuilt
    }

    /// Adds to a query of entities the indexes that it can use.
    pub fn apply_to(&self, account: &str, plan: &mut Plan) -> Result<()> {
        match plan.entities_scan() {
            Some((table, scan)) => self.apply(account, table, scan),
            None => Ok(()),
        }
    }

    /// Adds to a scan the indexes that can find its matches, and the index that provides its order. A scan of single
    /// partitions uses no index for its matches, because it reads fewer rows.
    ///
    /// # Errors
    /// [`Code::NotImplemented`] for an order by a property that has no index or several indexes; [`Code::ServerBusy`]
    /// for an order while the indexes are not known yet; [`Code::InvalidInput`] if the continuation token belongs to
    /// another index.
    pub fn apply(&self, account: &str, table: &TableName, scan: &mut Scan) -> Result<()> {
        if self.ready.is_empty() && scan.by.is_none() {
            return Ok(());
        }
        let found = self.ready.get(&table_key(account, table.lower()));
        let indexes = found.map(Vec::as_slice).unwrap_or_default();
        let ordering = match &mut scan.by {
            Some(_) if !self.is_read => return Err(Code::ServerBusy.into()),
            Some(by) => Some(find_order(by, scan.residual.as_ref(), indexes, (account, table))?),
            None => None,
        };
        let Some(residual) = &scan.residual else { return Ok(()) };
        if scan.spans.iter().any(|span| span.partition().is_none()) {
            let others = indexes.iter().filter(|index| ordering.as_ref() != Some(index));
            scan.indexed = choices(residual, &others.cloned().collect::<Vec<_>>());
        }
        Ok(())
    }
}

/// Finds the index that provides an order, and the range of it that holds the matches.
fn find_order(
    by: &mut ValueOrder,
    residual: Option<&Predicate>,
    indexes: &[Arc<PropertyIndex>],
    (account, table): (&str, &TableName),
) -> Result<Arc<PropertyIndex>> {
    let mut of_property = indexes.iter().filter(|index| index.property == by.property);
    let (Some(index), None) = (of_property.next(), of_property.next()) else {
        let advice = missing_order(account, table.as_given(), &by.property);
        return Err(Error::from(Code::NotImplemented).with_reason(advice));
    };
    let is_of_index = |from: &IndexPosition| {
        from.index_no == index.index_no && from.entry.as_ref().is_none_or(|entry| index.kind.can_hold(entry))
    };
    if !by.from.as_ref().is_none_or(is_of_index) {
        return Err(Code::InvalidInput.into());
    }
    let own = residual.map(|filter| choices(filter, std::slice::from_ref(index))).unwrap_or_default();
    by.range = match own.into_iter().next().map(|choice| choice.ranges) {
        Some(ranges) if ranges.len() == 1 => ranges.into_iter().next(),
        _ => None,
    };
    by.index = Some(Arc::clone(index));
    Ok(Arc::clone(index))
}

/// Describes a refused order, with the command that enables it.
fn missing_order(account: &str, table: &str, property: &str) -> String {
    format!(
        "an order by {property} needs exactly one complete index of that property: \
         rowhouse index create {table} {property} --account {account}"
    )
}

/// Account names have no slash, so different tables have different keys.
fn table_key(account: &str, table: &str) -> String {
    format!("{account}/{table}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::{CompareOp, EdmValue, Key, Ticks};
    use crate::protocol::plan::index::IndexKind;
    use crate::protocol::plan::{Field, Predicate, Span};

    fn stored(index_no: i64, state: IndexState) -> StoredIndex {
        let index = PropertyIndex { index_no, table_no: 1, property: "N".into(), kind: IndexKind::Number };
        StoredIndex { account: "account".into(), table: "people".into(), index, state, changed: Ticks::MIN }
    }

    fn scan(spans: Vec<Span>) -> Scan {
        let (field, literal) = (Field::Custom("N".into()), EdmValue::Int32(1));
        let residual = Some(Predicate::Compare { field, op: CompareOp::Eq, literal });
        Scan { residual, rows: 1, ..Scan::of_spans(spans) }
    }

    #[test]
    fn complete_indexes_narrow_scans_that_name_no_partition() {
        let catalog = IndexCatalog::new(vec![stored(1, IndexState::Building), stored(2, IndexState::Ready)]);
        assert_eq!(catalog.unbuilt().iter().map(|index| index.index_no).collect::<Vec<_>>(), [1]);
        let used = |account: &str, table: &str, spans| {
            let mut scan = scan(spans);
            catalog.apply(account, &TableName::parse(table).unwrap(), &mut scan).unwrap();
            scan.indexed.first().map(|choice| choice.ranges[0].index.index_no)
        };
        let everything = || vec![Span::everything()];
        assert_eq!(used("account", "PEOPLE", everything()), Some(2));
        assert_eq!(used("account", "Others", everything()), None);
        assert_eq!(used("another", "People", everything()), None);
        let partition = Span { lower: Key::new("p", ""), upper: Some(Key::new("p\u{1}", "")) };
        assert_eq!(used("account", "People", vec![partition]), None);
    }

    #[test]
    fn an_order_by_a_property_is_refused_for_good_only_if_the_indexes_are_known() {
        let refused = |catalog: IndexCatalog| {
            let by = ValueOrder { property: "A".into(), from: None, index: None, range: None };
            let mut scan = Scan { by: Some(Box::new(by)), ..Scan::of_spans(vec![Span::everything()]) };
            catalog.apply("account", &TableName::parse("People").unwrap(), &mut scan).unwrap_err().code
        };
        assert_eq!(refused(IndexCatalog::default()), Code::ServerBusy);
        assert_eq!(refused(IndexCatalog::new(vec![])), Code::NotImplemented);
    }
}
