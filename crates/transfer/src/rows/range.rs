//! A range of the keys of a table.

use std::cmp::Ordering;

use crate::protocol::model::Key;
use crate::protocol::plan::span::Span;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lower {
    /// At this key, which is in the range.
    From(Key),
    /// Right after this key, which is not in the range.
    After(Key),
}

/// A range of keys, in code point order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowRange {
    pub lower: Lower,
    /// The key before which the range ends; `None` means the end of the table.
    pub upper: Option<Key>,
}

impl Lower {
    pub(crate) fn start() -> Self {
        Lower::From(Key::new("", ""))
    }

    pub(crate) const fn key(&self) -> &Key {
        match self {
            Lower::From(key) | Lower::After(key) => key,
        }
    }

    /// Whether the range begins after a key.
    pub(crate) fn is_beyond(&self, key: &Key) -> bool {
        match self {
            Lower::From(lower) => key < lower,
            Lower::After(lower) => key <= lower,
        }
    }
}

impl RowRange {
    pub(crate) fn everything() -> Self {
        Self { lower: Lower::start(), upper: None }
    }

    /// Returns the range in the form that the stores use.
    pub(crate) fn span(&self) -> Span {
        let lower = match &self.lower {
            Lower::From(key) => key.clone(),
            Lower::After(key) => Key::new(key.partition.as_str(), format!("{}\u{1}", key.row)),
        };
        Span { lower, upper: self.upper.clone() }
    }

    /// Returns filters that together select the range, in key order. A server can answer each without a scan.
    /// An empty filter selects everything.
    pub(crate) fn filters(&self) -> Vec<String> {
        let (key, op) = match &self.lower {
            Lower::From(key) => (key, "ge"),
            Lower::After(key) => (key, "gt"),
        };
        let (p, r) = (quoted(&key.partition), quoted(&key.row));
        let is_whole = key.row.is_empty() && op == "ge";
        let mut filters = Vec::new();
        let mut middle = match (is_whole, key.partition.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!("PartitionKey ge {p}"),
            (false, _) => format!("PartitionKey gt {p}"),
        };
        let within = |upper: &str| format!("PartitionKey eq {p} and RowKey {op} {r}{upper}");
        let Some(upper) = &self.upper else {
            filters.extend((!is_whole).then(|| within("")));
            filters.push(middle);
            return filters;
        };
        let (q, s) = (quoted(&upper.partition), quoted(&upper.row));
        if upper.partition == key.partition {
            return vec![within(&format!(" and RowKey lt {s}"))];
        }
        filters.extend((!is_whole).then(|| within("")));
        if !middle.is_empty() {
            middle.push_str(" and ");
        }
        filters.push(format!("{middle}PartitionKey lt {q}"));
        if !upper.row.is_empty() {
            filters.push(format!("PartitionKey eq {q} and RowKey lt {s}"));
        }
        filters
    }
}

/// The first character of one UTF-16 unit that sorts after the characters of two units.
const FIRST_REORDERED: char = '\u{e000}';

/// Whether code-point and UTF-16 order agree on the position of a key. Some servers sort by the former, some by the
/// latter.
pub(crate) fn sorts_alike(key: &Key) -> bool {
    // The first byte of U+E000 in UTF-8.
    key.partition.bytes().chain(key.row.bytes()).all(|byte| byte < 0xee)
}

/// Compares keys by code point and by UTF-16 unit; `None` if the orders differ.
pub(crate) fn order_in_both(a: &Key, b: &Key) -> Option<Ordering> {
    match texts_in_both(&a.partition, &b.partition) {
        Some(Ordering::Equal) => texts_in_both(&a.row, &b.row),
        different => different,
    }
}

/// Whether a key may follow another key in code-point or UTF-16 order.
pub(crate) fn may_follow(key: &Key, before: &Key) -> bool {
    !matches!(order_in_both(key, before), Some(Ordering::Less | Ordering::Equal))
}

fn texts_in_both(a: &str, b: &str) -> Option<Ordering> {
    match a.chars().zip(b.chars()).find(|(x, y)| x != y) {
        Some((x, y)) if x.min(y) >= FIRST_REORDERED && x.len_utf16() != y.len_utf16() => None,
        Some((x, y)) => Some(x.cmp(&y)),
        None => Some(a.len().cmp(&b.len())),
    }
}

pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_order_in_both_is_that_of_code_points_and_of_utf_16_units(
            a in "[a\u{d7ff}\u{e000}\u{ffff}\u{10000}😀]{0,4}", b in "[a\u{d7ff}\u{e000}\u{ffff}\u{10000}😀]{0,4}",
        ) {
            let (points, units) = (a.cmp(&b), a.encode_utf16().cmp(b.encode_utf16()));
            let (key, other) = (Key::new("p", a), Key::new("p", b));
            prop_assert_eq!(order_in_both(&key, &other), (points == units).then_some(points));
            prop_assert!(!sorts_alike(&key) || points == units);
        }
    }

    fn filters(lower: Lower, upper: Option<(&str, &str)>) -> Vec<String> {
        RowRange { lower, upper: upper.map(|(p, r)| Key::new(p, r)) }.filters()
    }

    #[test]
    fn a_range_is_selected_by_conjunctions() {
        let from = |p, r| Lower::From(Key::new(p, r));
        let after = |p, r| Lower::After(Key::new(p, r));
        assert_eq!(filters(Lower::start(), None), [""]);
        assert_eq!(filters(Lower::start(), Some(("b", ""))), ["PartitionKey lt 'b'"]);
        assert_eq!(filters(from("a", ""), None), ["PartitionKey ge 'a'"]);
        assert_eq!(
            filters(after("it's", "x"), None),
            ["PartitionKey eq 'it''s' and RowKey gt 'x'", "PartitionKey gt 'it''s'"]
        );
        assert_eq!(
            filters(after("a", ""), Some(("a", "y"))),
            ["PartitionKey eq 'a' and RowKey gt '' and RowKey lt 'y'"]
        );
        assert_eq!(
            filters(from("a", "x"), Some(("c", "z"))),
            [
                "PartitionKey eq 'a' and RowKey ge 'x'",
                "PartitionKey gt 'a' and PartitionKey lt 'c'",
                "PartitionKey eq 'c' and RowKey lt 'z'"
            ]
        );
    }

    #[test]
    fn a_lower_bound_tells_what_lies_before() {
        let key = |r| Key::new("a", r);
        assert!(Lower::From(key("b")).is_beyond(&key("a")) && !Lower::From(key("b")).is_beyond(&key("b")));
        assert!(Lower::After(key("b")).is_beyond(&key("b")) && !Lower::After(key("b")).is_beyond(&key("c")));
    }
}
