//! Pages in the order of an index: by the values of a property, then by keys. Entities without an entry come
//! first in ascending order and last in descending order.

use std::sync::Arc;

use super::{IndexRange, IndexValue, PropertyIndex};
use crate::model::{Key, PageOrder};

/// The order of a page by the values of a property.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueOrder {
    /// The name of the property, or Timestamp.
    pub property: String,
    /// Where the page starts. `None` is the first entity.
    pub from: Option<IndexPosition>,
    /// The index with this order, which the server looks up. The order is refused without an index.
    pub index: Option<Arc<PropertyIndex>>,
    /// The index entries that contain every match. `None` means all entries, and the entities without an entry.
    pub range: Option<IndexRange>,
}

/// An entity in the order of an index.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexPosition {
    pub index_no: i64,
    /// The entity's entry, or `None` if it has none.
    pub entry: Option<IndexValue>,
    pub key: Key,
}

/// A part of a page in the order of an index: either entities with entries, or entities without.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OrderPart<'a> {
    pub has_entries: bool,
    /// The first entity of the part, or `None` for the start of the order.
    pub from: Option<&'a IndexPosition>,
}

impl ValueOrder {
    /// Returns the order by a property whose index is not known yet.
    pub fn by(property: &str) -> Self {
        Self { property: property.to_owned(), from: None, index: None, range: None }
    }

    /// Returns the parts of the page in the order of the page.
    pub fn parts(&self, order: PageOrder) -> Vec<OrderPart<'_>> {
        let from = self.from.as_ref();
        let part = |has_entries: bool| {
            let from = from.filter(|from| from.entry.is_some() == has_entries);
            OrderPart { has_entries, from }
        };
        let mut parts = order.arrange(vec![part(false), part(true)]);
        let is_behind = |part: &OrderPart<'_>| from.is_some() && part.from.is_none();
        if parts.first().is_some_and(is_behind) {
            parts.remove(0);
        }
        parts.retain(|part| part.has_entries || self.range.is_none());
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_on_in_the_part_of_its_position() {
        let (ascending, descending) = (PageOrder::Ascending, PageOrder::Descending);
        let at = |entry: Option<f64>| IndexPosition {
            index_no: 1,
            entry: entry.map(IndexValue::Number),
            key: Key::new("p", "r"),
        };
        let parts = |from: Option<IndexPosition>, order| {
            let by = ValueOrder { from, ..ValueOrder::by("N") };
            let parts: Vec<_> =
                by.parts(order).iter().map(|part| (part.has_entries, part.from.is_some())).collect();
            parts
        };
        assert_eq!(parts(None, ascending), [(false, false), (true, false)]);
        assert_eq!(parts(None, descending), [(true, false), (false, false)]);
        assert_eq!(parts(Some(at(None)), ascending), [(false, true), (true, false)]);
        assert_eq!(parts(Some(at(Some(1.0))), ascending), [(true, true)]);
        assert_eq!(parts(Some(at(Some(1.0))), descending), [(true, true), (false, false)]);
        assert_eq!(parts(Some(at(None)), descending), [(false, true)]);
    }
}
