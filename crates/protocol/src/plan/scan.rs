//! A page of a query in the form that the stores execute (protocol §7).

use std::time::Duration;

use super::index::{IndexChoice, IndexPosition, ValueOrder};
use super::predicate::Predicate;
use super::span::{Span, above, starting_at, within};
use crate::model::{Key, PageOrder, Ticks};

/// Maximum number of rows in a page; `$top` can lower it.
pub(crate) const MAX_ROWS: usize = 1000;
/// Bytes of stored text after which a page ends.
pub(crate) const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Time after which a page ends with the rows found so far.
pub const MAX_TIME: Duration = Duration::from_secs(5);

/// One page of entities. The store reads the spans in order, keeps rows for which the residual filter holds,
/// and stops at the first limit.
#[derive(Debug, Clone)]
pub struct Scan {
    /// The key ranges to read: disjoint, in the order of the page, and cut at the continuation token.
    pub spans: Vec<Span>,
    /// The direction of the page.
    pub order: PageOrder,
    /// The order by values, or `None` for the order of keys. With an order by values, the spans are ascending
    /// and not cut at the continuation token, and the residual filter is the whole filter.
    pub by: Option<Box<ValueOrder>>,
    /// The part of the filter that the spans do not decide.
    pub residual: Option<Predicate>,
    /// Maximum rows; 1 to `MAX_ROWS`.
    pub rows: usize,
    /// Maximum bytes of stored text. A page holds at least one row.
    pub bytes: usize,
    /// Maximum time. A page that exceeds it ends with a continuation at the key that it reached.
    pub time: Duration,
    /// The parts of each row that the page needs.
    pub projection: Projection,
    /// The ways in which indexes can find the matches, the most promising first.
    pub indexed: Vec<IndexChoice>,
}

impl Scan {
    /// Returns the scan of the same rows in the order of keys.
    pub fn by_keys(&self) -> Self {
        Self { by: None, order: PageOrder::Ascending, ..self.clone() }
    }

    /// Returns a scan of whole entities in these ascending ranges, with the maximum limits.
    pub fn of_spans(spans: Vec<Span>) -> Self {
        Self {
            spans,
            order: PageOrder::Ascending,
            by: None,
            residual: None,
            rows: MAX_ROWS,
            bytes: MAX_BYTES,
            time: MAX_TIME,
            projection: Projection::Full,
            indexed: Vec::new(),
        }
    }
}

/// The parts of a row that a page needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Projection {
    /// Everything.
    Full,
    /// Keys and Timestamp only. The rows have empty properties.
    SystemOnly,
}

/// The totals of a page whose entities have been returned, and the start of the next page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PageEnd {
    /// The number of entities.
    pub entities: usize,
    /// The approximate number of rows and index entries that were examined.
    pub examined: u64,
    /// The position in [`Scan::indexed`] of the choice that named the rows, or `None` if the rows were read
    /// in the order of keys.
    pub narrowed_by: Option<usize>,
    /// Where the next page starts, or `None` at the end. An ascending page starts with this key, a descending
    /// page below it.
    pub next: Option<Key>,
    /// Where the next page in an order by values starts, or `None` at the end.
    pub next_in_index: Option<IndexPosition>,
}

/// One page of an account's tables. In the spans and the residual filter, a lower-case name takes the place
/// of the PartitionKey, and the RowKey is empty.
#[derive(Debug, Clone)]
pub struct TableScan {
    pub spans: Vec<Span>,
    pub residual: Option<Predicate>,
    /// Maximum tables; 1 to `MAX_ROWS`.
    pub rows: usize,
    /// Maximum time. A page that exceeds it ends with a continuation at the table that it reached.
    pub time: Duration,
}

/// A table in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    /// The name as spelled at creation.
    pub name: String,
    /// The creation time, which is part of the continuation token.
    pub created: Ticks,
}

/// One page of tables, in order of their lower-case names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TablePage {
    pub tables: Vec<TableEntry>,
    /// The first table of the next page.
    pub next: Option<TableEntry>,
}

impl PageOrder {
    /// Converts parts from ascending order to this order, or back.
    pub fn arrange<T>(self, mut parts: Vec<T>) -> Vec<T> {
        if self == Self::Descending {
            parts.reverse();
        }
        parts
    }

    pub const fn reversed(self) -> Self {
        match self {
            Self::Ascending => Self::Descending,
            Self::Descending => Self::Ascending,
        }
    }

    /// Returns the bound from which a read continues with `key`.
    pub fn at(self, key: Key) -> Key {
        match self {
            Self::Ascending => key,
            Self::Descending => above(&key),
        }
    }

    /// Returns the bound from which a read continues after `key`.
    pub fn after(self, key: Key) -> Key {
        match self {
            Self::Ascending => above(&key),
            Self::Descending => key,
        }
    }

    /// Returns the bound at which a span begins, or `None` if the span begins at the end of the table.
    pub const fn start(self, span: &Span) -> Option<&Key> {
        match self {
            Self::Ascending => Some(&span.lower),
            Self::Descending => span.upper.as_ref(),
        }
    }

    /// Returns the rest of a span from a bound within it.
    pub fn rest(self, span: Span, bound: Key) -> Span {
        match self {
            Self::Ascending => Span { lower: bound, ..span },
            Self::Descending => Span { upper: Some(bound), ..span },
        }
    }

    /// Returns the rest of spans from a bound, which may contain U+0000.
    pub fn rest_of(self, spans: Vec<Span>, bound: &Key) -> Vec<Span> {
        match self {
            Self::Ascending => starting_at(spans, bound),
            Self::Descending => within(spans, &Key::new("", ""), Some(bound)),
        }
    }
}

#[cfg(test)]
mod tests {
    mod order {
        use super::super::*;

        fn span(lower: (&str, &str), upper: Option<(&str, &str)>) -> Span {
            Span { lower: Key::new(lower.0, lower.1), upper: upper.map(|(p, r)| Key::new(p, r)) }
        }

        #[test]
        fn a_read_goes_on_with_the_keys_that_it_has_not_returned() {
            let holds = |spans: &[Span], key: &Key| {
                spans
                    .iter()
                    .any(|span| span.lower <= *key && span.upper.as_ref().is_none_or(|upper| key < upper))
            };
            let keys: Vec<Key> =
                ["", "a", "b"].iter().flat_map(|p| ["", "r", "rr", "s"].map(|r| Key::new(*p, r))).collect();
            let spans = vec![span(("", "r"), Some(("a", "s"))), span(("b", ""), None)];
            for order in [PageOrder::Ascending, PageOrder::Descending] {
                let mut left = keys.clone();
                if order == PageOrder::Descending {
                    left.reverse();
                }
                left.retain(|key| holds(&spans, key));
                while let Some(key) = left.first().cloned() {
                    let from = order.rest_of(order.arrange(spans.clone()), &order.at(key.clone()));
                    assert!(
                        keys.iter().all(|key| holds(&from, key) == left.contains(key)),
                        "{order:?} {key:?}"
                    );
                    left.remove(0);
                    let rest = order.rest_of(order.arrange(spans.clone()), &order.after(key.clone()));
                    assert!(
                        keys.iter().all(|key| holds(&rest, key) == left.contains(key)),
                        "{order:?} {key:?}"
                    );
                }
            }
        }

        #[test]
        fn a_span_begins_at_the_end_that_is_read_first() {
            let one = span(("a", ""), Some(("c", "")));
            assert_eq!(PageOrder::Ascending.start(&one), Some(&Key::new("a", "")));
            assert_eq!(PageOrder::Descending.start(&one), Some(&Key::new("c", "")));
            assert_eq!(PageOrder::Descending.start(&Span::everything()), None);
            let bound = Key::new("b", "x");
            assert_eq!(
                PageOrder::Ascending.rest(one.clone(), bound.clone()),
                span(("b", "x"), Some(("c", "")))
            );
            assert_eq!(PageOrder::Descending.rest(one, bound), span(("a", ""), Some(("b", "x"))));
        }
    }
}
