//! Key ranges, and how a predicate narrows them (protocol §6.5).
//!
//! A lower bound is inclusive and an upper bound is exclusive. No key contains a control character, so no key lies
//! between a key and the same text followed by U+0001. That text is the upper bound of a range that includes the key.

use std::rc::Rc;

use super::predicate::{Field, Predicate};
use crate::model::names::MAX_KEY;
use crate::model::{CompareOp, EdmValue, Key, PageOrder, TextTest};

/// The keys from `lower`, inclusive, to `upper`, exclusive, in page order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub lower: Key,
    /// `None` is the end of the table.
    pub upper: Option<Key>,
}

/// Maximum number of spans. If there are more, one span covers all keys, and the residual filter decides.
const MAX_SPANS: usize = 1024;
/// Maximum number of intersections of boxes for a predicate. Further conditions do not narrow the spans; the residual
/// filter decides.
const MAX_INTERSECTIONS: usize = 8 * MAX_SPANS;

impl Span {
    pub fn everything() -> Self {
        Span { lower: Key::new("", ""), upper: None }
    }

    pub fn point(key: Key) -> Self {
        let upper = Some(above(&key));
        Span { lower: key, upper }
    }

    /// Returns the only key that this span can contain, if there is at most one.
    pub fn as_point(&self) -> Option<&Key> {
        let upper = self.upper.as_ref()?;
        (upper.partition == self.lower.partition && upper.row == successor(&self.lower.row))
            .then_some(&self.lower)
    }

    /// Returns the partition that contains the whole span, if there is one.
    pub fn partition(&self) -> Option<&str> {
        let upper = self.upper.as_ref()?;
        let p = self.lower.partition.as_str();
        let within = upper.partition == p || (upper.row.is_empty() && upper.partition == successor(p));
        within.then_some(p)
    }

    pub fn is_empty(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| *upper <= self.lower)
    }
}

/// Returns the first partition that lies at or above a bound with all its rows. In a list of tables, a name is a
/// partition, with a single row whose key is empty.
pub fn first_whole_partition(bound: &Key) -> String {
    if bound.row.is_empty() { bound.partition.clone() } else { successor(&bound.partition) }
}

/// Returns an equivalent bound without U+0000, which PostgreSQL's text type cannot contain. No key contains U+0000,
/// so the successor of the text before U+0000 is equivalent.
fn without_nul(key: &Key) -> Key {
    let cut = |text: &str| text.split_once('\u{0}').map(|(head, _)| successor(head));
    match (cut(&key.partition), cut(&key.row)) {
        (Some(partition), _) => Key { partition, row: String::new() },
        (None, Some(row)) => Key { partition: key.partition.clone(), row },
        (None, None) => key.clone(),
    }
}

/// Returns the smallest text above `text` among texts without U+0000.
fn successor(text: &str) -> String {
    format!("{text}\u{1}")
}

/// Returns the smallest bound above a key.
pub(super) fn above(key: &Key) -> Key {
    Key { partition: key.partition.clone(), row: successor(&key.row) }
}

/// Returns ascending, disjoint ranges that contain every key that can satisfy `predicate`.
pub(crate) fn spans_of(predicate: &Predicate) -> Vec<Span> {
    let boxes = Narrowing::default().boxes(predicate, false);
    let mut spans: Vec<Span> = boxes.into_iter().map(KeyBox::into_span).collect();
    spans.retain(|s| !s.is_empty());
    spans.sort_by(|a, b| a.lower.cmp(&b.lower));
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        match merged.last_mut() {
            Some(last) if last.upper.as_ref().is_none_or(|u| span.lower <= *u) => {
                last.upper = match (last.upper.take(), span.upper) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    _ => None,
                };
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// Returns the part of `spans` from `from` on, which may contain U+0000.
pub fn starting_at(spans: Vec<Span>, from: &Key) -> Vec<Span> {
    let from = without_nul(from);
    spans
        .into_iter()
        .filter_map(|mut span| {
            if span.lower < from {
                span.lower = from.clone();
            }
            (!span.is_empty()).then_some(span)
        })
        .collect()
}

/// Returns the part of `spans` from `lower`, inclusive, to `upper`, exclusive; both may contain U+0000.
pub fn within(spans: Vec<Span>, lower: &Key, upper: Option<&Key>) -> Vec<Span> {
    let upper = upper.map(without_nul);
    starting_at(spans, lower)
        .into_iter()
        .filter_map(|mut span| {
            span.upper = match (span.upper.take(), &upper) {
                (Some(own), Some(limit)) => Some(own.min(limit.clone())),
                (own, limit) => own.or_else(|| limit.clone()),
            };
            (!span.is_empty()).then_some(span)
        })
        .collect()
}

/// Returns the keys that lie in the spans, each as a separate span. `order` is the order of `spans` and of the result.
pub fn points_within(mut keys: Vec<Key>, spans: &[Span], order: PageOrder) -> Vec<Span> {
    keys.sort_unstable();
    keys.dedup();
    order.arrange(keys.into_iter().filter(|key| contain(spans, key, order)).map(Span::point).collect())
}

/// Returns whether a key lies in one of these spans, which are sorted in `order`.
pub fn contain(spans: &[Span], key: &Key, order: PageOrder) -> bool {
    let last = match order {
        PageOrder::Ascending => spans.partition_point(|span| span.lower <= *key).checked_sub(1),
        PageOrder::Descending => Some(spans.partition_point(|span| span.lower > *key)),
    };
    let last = last.and_then(|at| spans.get(at));
    last.is_some_and(|span| span.upper.as_ref().is_none_or(|upper| *key < *upper))
}

/// Returns whether the spans decide `predicate` completely, so that no residual filter is needed.
pub(crate) fn is_exact(predicate: &Predicate) -> bool {
    match predicate {
        Predicate::Always(_) => true,
        Predicate::Compare { field: Field::PartitionKey, op, .. } => *op != CompareOp::Ne,
        Predicate::Any(parts) => parts.len() <= MAX_SPANS && parts.iter().all(is_exact_conjunction),
        other => is_exact_conjunction(other),
    }
}

/// Returns whether a conjunction of key comparisons is exact. It is exact if it fixes the partition, because
/// then a range of rows is a range of keys.
fn is_exact_conjunction(predicate: &Predicate) -> bool {
    let parts = match predicate {
        Predicate::All(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    let mut point = false;
    let mut rows = false;
    for part in parts {
        match part {
            Predicate::Compare { op: CompareOp::Ne, .. } => return false,
            Predicate::Compare { field: Field::PartitionKey, op, .. } => point |= *op == CompareOp::Eq,
            Predicate::Compare { field: Field::RowKey, .. } => rows = true,
            other => match prefix_test(other) {
                Some((Field::PartitionKey, _)) => {}
                Some((Field::RowKey, _)) => rows = true,
                _ => return false,
            },
        }
    }
    point || !rows
}

/// A text interval from `low`, inclusive, to `high`, exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Interval {
    low: Rc<str>,
    high: Option<Rc<str>>,
}

impl Interval {
    fn full() -> Self {
        Interval { low: "".into(), high: None }
    }

    fn intersect(&self, other: &Interval) -> Self {
        let high = match (&self.high, &other.high) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.as_ref().or(b.as_ref()),
        };
        Interval { low: (&self.low).max(&other.low).clone(), high: high.cloned() }
    }

    fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|h| *h <= self.low)
    }

    fn is_point(&self) -> bool {
        self.high.as_ref().is_some_and(|h| h.strip_suffix('\u{1}') == Some(&*self.low))
    }
}

/// A set of keys: the product of an interval of partitions and an interval of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyBox {
    partitions: Interval,
    rows: Interval,
}

impl KeyBox {
    fn full() -> Self {
        KeyBox { partitions: Interval::full(), rows: Interval::full() }
    }

    fn intersect(&self, other: &KeyBox) -> KeyBox {
        KeyBox {
            partitions: self.partitions.intersect(&other.partitions),
            rows: self.rows.intersect(&other.rows),
        }
    }

    fn is_empty(&self) -> bool {
        self.partitions.is_empty() || self.rows.is_empty()
    }

    /// Returns a span that covers the box. The span is exact for a single partition. Otherwise the interval of rows
    /// only limits the first partition.
    fn into_span(self) -> Span {
        let lower = Key::new(&*self.partitions.low, &*self.rows.low);
        let upper = match (self.partitions.is_point(), &self.partitions.high, &self.rows.high) {
            (true, _, Some(row)) => Some(Key::new(&*self.partitions.low, &**row)),
            (_, Some(partition), _) => Some(Key::new(&**partition, "")),
            (_, None, _) => None,
        };
        Span { lower, upper }
    }
}

/// Narrows a predicate to boxes, with a bounded number of intersections.
#[derive(Default)]
struct Narrowing {
    /// The number of boxes that were intersected so far.
    intersections: usize,
}

impl Narrowing {
    /// Returns boxes that cover `predicate` or its negation. Every matching key lies in one of the boxes,
    /// which may contain other keys too.
    fn boxes(&mut self, predicate: &Predicate, negated: bool) -> Vec<KeyBox> {
        match (predicate, negated) {
            (Predicate::All(parts), false) | (Predicate::Any(parts), true) => {
                let parts = parts.iter().map(|part| self.boxes(part, negated)).collect();
                self.intersect_all(parts)
            }
            (Predicate::Any(parts), false) | (Predicate::All(parts), true) => {
                limit_boxes(parts.iter().flat_map(|part| self.boxes(part, negated)).collect())
            }
            (Predicate::Not(inner), _) => self.boxes(inner, !negated),
            (Predicate::Always(value), _) if *value == negated => vec![],
            // These comparisons exclude one row of each partition, which would not save enough reads.
            (Predicate::Compare { field: Field::RowKey, op: CompareOp::Ne, .. }, false)
            | (Predicate::Compare { field: Field::RowKey, op: CompareOp::Eq, .. }, true) => {
                vec![KeyBox::full()]
            }
            (Predicate::Compare { field, op, literal: EdmValue::String(text) }, _) => {
                boxes_of_field(field, || intervals(*op, text, negated))
            }
            (other, _) => match prefix_test(other) {
                Some((field, prefix)) => boxes_of_field(field, || prefix_intervals(prefix, negated)),
                None => vec![KeyBox::full()],
            },
        }
    }

    /// Returns boxes that cover the intersection of all parts. Parts with few boxes come first: they narrow most.
    fn intersect_all(&mut self, mut parts: Vec<Vec<KeyBox>>) -> Vec<KeyBox> {
        parts.sort_by_key(Vec::len);
        let mut product = vec![KeyBox::full()];
        for part in parts {
            product = self.intersect(product, part);
        }
        product
    }

    fn intersect(&mut self, left: Vec<KeyBox>, right: Vec<KeyBox>) -> Vec<KeyBox> {
        let work = left.len().saturating_mul(right.len());
        let is_cheap = work <= 1 || self.intersections + work <= MAX_INTERSECTIONS;
        if work > MAX_SPANS || !is_cheap {
            // There are too many boxes to multiply out. One side alone still covers the result.
            return if left.len() <= right.len() { left } else { right };
        }
        self.intersections += work;
        left.iter().flat_map(|a| right.iter().map(|b| a.intersect(b))).filter(|b| !b.is_empty()).collect()
    }
}

/// Returns the boxes for the intervals of a field.
fn boxes_of_field(field: &Field, intervals: impl FnOnce() -> Vec<Interval>) -> Vec<KeyBox> {
    let full = Interval::full;
    match field {
        Field::PartitionKey => {
            intervals().into_iter().map(|partitions| KeyBox { partitions, rows: full() }).collect()
        }
        Field::RowKey => intervals().into_iter().map(|rows| KeyBox { partitions: full(), rows }).collect(),
        Field::Timestamp | Field::Custom(_) => vec![KeyBox::full()],
    }
}

/// Returns the field and the prefix of a prefix test. A prefix of a key is a range of keys.
fn prefix_test(predicate: &Predicate) -> Option<(&Field, &str)> {
    match predicate {
        Predicate::Text { field, fold: None, test: TextTest::StartsWith, needle } => Some((field, needle)),
        _ => None,
    }
}

/// Returns the intervals of the keys that begin with `prefix`, or of all other keys.
fn prefix_intervals(prefix: &str, negated: bool) -> Vec<Interval> {
    let matches_no_key = prefix.contains(|c: char| c <= '\u{1}') || truncate(prefix).1;
    let (low, high) = (Rc::from(prefix), after_prefix(prefix).map(Rc::from));
    match (matches_no_key, negated) {
        (true, true) => vec![Interval::full()],
        (true, false) => vec![],
        (false, false) => vec![Interval { low, high }],
        (false, true) => {
            let below = Interval { low: "".into(), high: Some(low) };
            let above = high.map(|low| Interval { low, high: None });
            [Some(below), above].into_iter().flatten().filter(|interval| !interval.is_empty()).collect()
        }
    }
}

/// Returns the smallest text above all texts that begin with `prefix`, or `None` if there is none.
pub(super) fn after_prefix(prefix: &str) -> Option<String> {
    let next = |c: char| match c {
        '\u{d7ff}' => Some('\u{e000}'),
        c => char::from_u32(u32::from(c) + 1),
    };
    let (at, next) = prefix.char_indices().rev().find_map(|(at, c)| Some((at, next(c)?)))?;
    Some(format!("{}{next}", &prefix[..at]))
}

fn limit_boxes(boxes: Vec<KeyBox>) -> Vec<KeyBox> {
    if boxes.len() <= MAX_SPANS { boxes } else { vec![KeyBox::full()] }
}

/// Truncates a literal that is longer than any key, and returns whether it was. No key lies between the truncated
/// and the whole literal. Whole literals of megabytes would be copied into each of a thousand spans.
fn truncate(literal: &str) -> (&str, bool) {
    match literal.char_indices().nth(MAX_KEY + 1) {
        Some((end, _)) => (&literal[..end], true),
        None => (literal, false),
    }
}

/// Returns the intervals in which `key op literal` (or its negation) holds. A literal may contain U+0000, see
/// [`without_nul`].
fn intervals(op: CompareOp, literal: &str, negated: bool) -> Vec<Interval> {
    let (literal, is_truncated) = truncate(literal);
    let (at, after, exists): (Rc<str>, Rc<str>, bool) = match literal.split_once('\u{0}') {
        None if is_truncated => (literal.into(), literal.into(), false),
        None => (literal.into(), successor(literal).into(), true),
        Some((head, _)) => (successor(head).into(), successor(head).into(), false),
    };
    let below = |high| Interval { low: "".into(), high: Some(high) };
    let from = |low| Interval { low, high: None };
    let op = if negated { negate(op) } else { op };
    match op {
        CompareOp::Eq if exists => vec![Interval { low: at, high: Some(after) }],
        CompareOp::Eq => vec![],
        CompareOp::Ne if exists => vec![below(at), from(after)],
        CompareOp::Ne => vec![Interval::full()],
        CompareOp::Lt => vec![below(at)],
        CompareOp::Le => vec![below(after)],
        CompareOp::Gt => vec![from(after)],
        CompareOp::Ge => vec![from(at)],
    }
    .into_iter()
    .filter(|i| !i.is_empty())
    .collect()
}

/// Returns the negated operator. Keys always exist and always compare, so their comparisons can be negated.
const fn negate(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Eq => CompareOp::Ne,
        CompareOp::Ne => CompareOp::Eq,
        CompareOp::Lt => CompareOp::Ge,
        CompareOp::Le => CompareOp::Gt,
        CompareOp::Gt => CompareOp::Le,
        CompareOp::Ge => CompareOp::Lt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Ticks;
    use crate::plan::predicate::EntityView;
    use proptest::prelude::*;

    fn compare(field: Field, op: CompareOp, text: &str) -> Predicate {
        Predicate::Compare { field, op, literal: EdmValue::String(text.into()) }
    }
    fn pk(op: CompareOp, text: &str) -> Predicate {
        compare(Field::PartitionKey, op, text)
    }
    fn rk(op: CompareOp, text: &str) -> Predicate {
        compare(Field::RowKey, op, text)
    }
    fn starts(field: Field, prefix: &str) -> Predicate {
        Predicate::Text { field, fold: None, test: TextTest::StartsWith, needle: prefix.into() }
    }
    fn span(lower: (&str, &str), upper: Option<(&str, &str)>) -> Span {
        Span { lower: Key::new(lower.0, lower.1), upper: upper.map(|(p, r)| Key::new(p, r)) }
    }

    #[test]
    fn query_classes_become_the_spans_one_would_draw() {
        use CompareOp::*;
        let all = Predicate::All;
        let any = Predicate::Any;
        for (predicate, spans, exact) in [
            (all(vec![]), vec![span(("", ""), None)], true),
            (pk(Eq, "p"), vec![span(("p", ""), Some(("p\u{1}", "")))], true),
            (all(vec![pk(Eq, "p"), rk(Eq, "r")]), vec![span(("p", "r"), Some(("p", "r\u{1}")))], true),
            (
                all(vec![pk(Eq, "p"), rk(Ge, "a"), rk(Lt, "b")]),
                vec![span(("p", "a"), Some(("p", "b")))],
                true,
            ),
            (all(vec![pk(Eq, "p"), rk(Gt, "a")]), vec![span(("p", "a\u{1}"), Some(("p\u{1}", "")))], true),
            (all(vec![pk(Ge, "a"), pk(Le, "c")]), vec![span(("a", ""), Some(("c\u{1}", "")))], true),
            (
                any(vec![pk(Eq, "b"), pk(Eq, "a")]),
                vec![span(("a", ""), Some(("a\u{1}", ""))), span(("b", ""), Some(("b\u{1}", "")))],
                true,
            ),
            (pk(Ne, "b"), vec![span(("", ""), Some(("b", ""))), span(("b\u{1}", ""), None)], false),
            (rk(Eq, "r"), vec![span(("", "r"), None)], false),
            (all(vec![pk(Eq, "a"), pk(Eq, "b")]), vec![], true),
            (Predicate::Not(Box::new(pk(Ge, "b"))), vec![span(("", ""), Some(("b", "")))], false),
            (Predicate::Always(false), vec![], true),
            (pk(Eq, "a\u{0}b"), vec![], true),
            (starts(Field::PartitionKey, "ab"), vec![span(("ab", ""), Some(("ac", "")))], true),
            (starts(Field::PartitionKey, ""), vec![span(("", ""), None)], true),
            (starts(Field::PartitionKey, "a\u{0}"), vec![], true),
            (
                starts(Field::PartitionKey, "a\u{10ffff}"),
                vec![span(("a\u{10ffff}", ""), Some(("b", "")))],
                true,
            ),
            (
                starts(Field::PartitionKey, "\u{d7ff}"),
                vec![span(("\u{d7ff}", ""), Some(("\u{e000}", "")))],
                true,
            ),
            (
                all(vec![pk(Eq, "p"), starts(Field::RowKey, "a")]),
                vec![span(("p", "a"), Some(("p", "b")))],
                true,
            ),
            (
                Predicate::Not(Box::new(starts(Field::PartitionKey, "b"))),
                vec![span(("", ""), Some(("b", ""))), span(("c", ""), None)],
                false,
            ),
            (starts(Field::RowKey, "a"), vec![span(("", "a"), None)], false),
        ] {
            assert_eq!(spans_of(&predicate), spans, "{predicate:?}");
            assert_eq!(is_exact(&predicate), exact, "{predicate:?}");
        }
    }

    #[test]
    fn a_hundred_rows_by_or_are_a_hundred_points() {
        let rows = (0..100).map(|i| rk(CompareOp::Eq, &format!("{i:03}"))).collect();
        let predicate = Predicate::All(vec![pk(CompareOp::Eq, "p"), Predicate::Any(rows)]);
        let spans = spans_of(&predicate);
        assert_eq!(spans.len(), 100);
        assert!(spans.iter().all(|s| s.as_point().is_some() && s.partition() == Some("p")));
    }

    #[test]
    fn keys_become_points_of_the_spans_that_hold_them() {
        let spans = [span(("a", "2"), Some(("b", ""))), span(("c", ""), None)];
        let keys = [("c", "1"), ("a", "2"), ("a", "1"), ("b", ""), ("c", "1"), ("a", "9")];
        let keys = keys.map(|(p, r)| Key::new(p, r)).to_vec();
        let mut expected = vec![Key::new("a", "2"), Key::new("a", "9"), Key::new("c", "1")];
        for order in [PageOrder::Ascending, PageOrder::Descending] {
            let points = points_within(keys.clone(), &order.arrange(spans.to_vec()), order);
            let found: Vec<Key> = points.iter().filter_map(Span::as_point).cloned().collect();
            assert_eq!(found, expected);
            expected.reverse();
            assert_eq!(points_within(vec![Key::new("a", "1")], &[], order), []);
        }
    }

    #[test]
    fn too_many_alternatives_fall_back_to_one_span() {
        let rows = (0..MAX_SPANS + 1).map(|i| pk(CompareOp::Eq, &i.to_string())).collect();
        assert_eq!(spans_of(&Predicate::Any(rows)), vec![Span::everything()]);
    }

    #[test]
    fn a_continuation_cuts_the_spans() {
        let spans = vec![span(("a", ""), Some(("a\u{1}", ""))), span(("b", ""), Some(("b\u{1}", "")))];
        assert_eq!(starting_at(spans, &Key::new("b", "x")), vec![span(("b", "x"), Some(("b\u{1}", "")))]);
    }

    #[test]
    fn a_range_cuts_the_spans_on_both_sides() {
        let spans = || vec![span(("a", ""), Some(("c", ""))), span(("d", ""), None)];
        assert_eq!(
            within(spans(), &Key::new("b", "x"), Some(&Key::new("e", "y"))),
            vec![span(("b", "x"), Some(("c", ""))), span(("d", ""), Some(("e", "y")))]
        );
        assert_eq!(within(spans(), &Key::new("c", ""), Some(&Key::new("d", ""))), vec![]);
        assert_eq!(within(spans(), &Key::new("", ""), None), spans());
    }

    fn any_of(parts: impl Iterator<Item = Predicate>) -> Predicate {
        Predicate::Any(parts.collect())
    }

    #[test]
    fn the_work_of_narrowing_is_bounded_however_conditions_are_connected() {
        let differs = |field: Field, from: usize, count: usize| {
            let names = (from..from + count).map(|n| format!("{n:04}"));
            Predicate::All(names.map(|name| compare(field.clone(), CompareOp::Ne, &name)).collect())
        };
        let all = |fields: [Field; 2]| Predicate::All(fields.map(|f| differs(f, 0, 450)).to_vec());
        let groups = |field: Field| any_of((0..30).map(|n| differs(field.clone(), 30 * n, 30)));
        for predicate in [
            differs(Field::RowKey, 0, 900),
            differs(Field::PartitionKey, 0, 900),
            all([Field::PartitionKey, Field::RowKey]),
            groups(Field::RowKey),
            groups(Field::PartitionKey),
            Predicate::Not(Box::new(groups(Field::PartitionKey))),
        ] {
            let (mut narrowing, one) = (Narrowing::default(), pk(CompareOp::Eq, "p"));
            let point = Predicate::All(vec![predicate, one]);
            narrowing.boxes(&point, false);
            assert!(narrowing.intersections <= MAX_INTERSECTIONS + 900, "{}", narrowing.intersections);
            let spans = spans_of(&point);
            assert!(spans.iter().all(|span| span.partition() == Some("p")), "{spans:?}");
        }
    }

    #[test]
    fn a_row_key_that_differs_is_no_reason_for_another_span() {
        let others = (0..900).map(|n| rk(CompareOp::Ne, &n.to_string())).collect();
        assert_eq!(spans_of(&Predicate::All(others)), [Span::everything()]);
    }

    #[test]
    fn literals_longer_than_keys_are_not_copied_into_every_span() {
        let long = |n: usize| format!("{n:02}{}", "a".repeat(20 * MAX_KEY));
        for op in [CompareOp::Eq, CompareOp::Ge, CompareOp::Lt] {
            let partitions = any_of((0..32).map(|n| pk(op, &long(n))));
            let rows = any_of((0..32).map(|n| rk(CompareOp::Eq, &n.to_string())));
            let boxes = Narrowing::default().boxes(&Predicate::All(vec![partitions, rows]), false);
            let bytes = |i: &Interval| i.low.len() + i.high.as_ref().map_or(0, |high| high.len());
            let total: usize = boxes.iter().map(|b| bytes(&b.partitions) + bytes(&b.rows)).sum();
            assert!(total <= boxes.len() * 4 * MAX_KEY, "{op:?}: {total} bytes in {} boxes", boxes.len());
        }
    }

    #[test]
    fn keys_of_any_length_are_told_from_longer_literals() {
        let keys = ["a".repeat(MAX_KEY - 1), "a".repeat(MAX_KEY), "b".to_owned(), String::new()];
        let literals =
            ["a".repeat(MAX_KEY), "a".repeat(MAX_KEY + 1), "a".repeat(2 * MAX_KEY), "é".repeat(2 * MAX_KEY)];
        for (op, literal) in CompareOp::ALL.iter().flat_map(|op| literals.iter().map(move |l| (*op, l))) {
            let predicate = pk(op, literal);
            for key in keys.iter().map(|partition| Key::new(partition, "r")) {
                let view = EntityView {
                    partition: &key.partition,
                    row: "r",
                    modified: Ticks::MIN,
                    properties: vec![],
                };
                let spans = spans_of(&predicate);
                let is_inside =
                    spans.iter().any(|s| s.lower <= key && s.upper.as_ref().is_none_or(|u| key < *u));
                assert_eq!(
                    is_inside,
                    predicate.eval(&view),
                    "{op:?} {} {}",
                    literal.len(),
                    key.partition.len()
                );
            }
        }
    }

    fn key_text() -> impl Strategy<Value = String> {
        "[ab]{0,2}"
    }

    fn predicate() -> impl Strategy<Value = Predicate> {
        let leaf = (any::<bool>(), prop::sample::select(CompareOp::ALL.to_vec()), key_text(), any::<u8>())
            .prop_map(|(is_pk, op, text, kind)| match kind % 8 {
                0 => Predicate::Always(is_pk),
                1 => Predicate::Flag("X".into()),
                2 => pk(op, &format!("{text}\u{0}b")),
                3 if is_pk => starts(Field::PartitionKey, &text),
                3 => starts(Field::RowKey, &text),
                _ if is_pk => pk(op, &text),
                _ => rk(op, &text),
            });
        leaf.prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Predicate::All),
                prop::collection::vec(inner.clone(), 0..3).prop_map(Predicate::Any),
                inner.prop_map(|p| Predicate::Not(Box::new(p))),
            ]
        })
    }

    proptest! {
        #[test]
        fn spans_cover_every_match_and_exact_ones_nothing_else(
            predicate in predicate(), p in key_text(), r in key_text()
        ) {
            let key = Key::new(p, r);
            let modified = Ticks::MIN;
            let matches = predicate.eval(&EntityView { partition: &key.partition, row: &key.row, modified, properties: vec![] });
            let spans = spans_of(&predicate);
            let inside = spans.iter()
                .filter(|s| s.lower <= key && s.upper.as_ref().is_none_or(|u| key < *u))
                .count();
            prop_assert!(inside <= 1, "spans overlap: {:?}", spans);
            prop_assert!(!matches || inside == 1, "{:?} lost {:?}", spans, key);
            if is_exact(&predicate) {
                prop_assert_eq!(matches, inside == 1);
            }
            prop_assert!(spans.windows(2).all(|w| w[0].upper.as_ref().is_some_and(|u| *u < w[1].lower)));
        }
    }
}
