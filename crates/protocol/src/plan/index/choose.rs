//! Chooses the indexes that can narrow a predicate.

use std::sync::Arc;

use super::bounds::{Bounds, index_kind_of};
use super::{IndexKind, IndexRange, PropertyIndex, TIMESTAMP};
use crate::model::{CompareOp, EdmValue, TextTest};
use crate::plan::predicate::{Field, Predicate};

/// Maximum number of alternatives for one predicate.
const MAX_CHOICES: usize = 4;
/// Maximum number of ranges in an alternative, one for each part of an `or`.
const MAX_RANGES: usize = 64;

/// One way to answer a predicate: ranges that together contain every match.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexChoice {
    pub ranges: Vec<IndexRange>,
}

impl IndexChoice {
    fn rank(&self) -> (u8, usize) {
        (self.ranges.iter().map(IndexRange::rank).max().unwrap_or(0), self.ranges.len())
    }
}

/// Returns the ways in which a table's indexes can answer a predicate, the most promising first. The list is
/// empty if no index helps.
pub fn choices(predicate: &Predicate, indexes: &[Arc<PropertyIndex>]) -> Vec<IndexChoice> {
    if indexes.is_empty() {
        return Vec::new();
    }
    let mut found = find_choices(predicate, false, indexes);
    found.truncate(MAX_CHOICES);
    found
}

/// Returns the properties and kinds of the comparisons that an index could narrow, each once.
pub fn indexable(predicate: &Predicate) -> Vec<(&str, IndexKind)> {
    let mut found = Vec::new();
    collect_indexable(predicate, &mut found);
    found.sort_unstable();
    found.dedup();
    found
}

fn collect_indexable<'p>(predicate: &'p Predicate, found: &mut Vec<(&'p str, IndexKind)>) {
    match predicate {
        Predicate::All(parts) | Predicate::Any(parts) => {
            parts.iter().for_each(|part| collect_indexable(part, found))
        }
        other => found.extend(index_bounds(other).map(|(name, kind, _)| (name, kind))),
    }
}

/// Returns the property and the bounds of a comparison that an index of this kind could narrow.
fn index_bounds(comparison: &Predicate) -> Option<(&str, IndexKind, Bounds)> {
    match comparison {
        Predicate::Compare { field: Field::Custom(name), op, literal } => {
            Some((name, index_kind_of(literal)?, Bounds::of(*op, literal)?))
        }
        Predicate::Compare { field: Field::Timestamp, op, literal } => {
            Some((TIMESTAMP, IndexKind::Timestamp, Bounds::of_timestamp(*op, literal)?))
        }
        Predicate::Text { field: Field::Custom(name), fold: None, test: TextTest::StartsWith, needle } => {
            Some((name, IndexKind::Text, Bounds::of_prefix(needle)?))
        }
        Predicate::Flag(name) => {
            Some((name, IndexKind::Boolean, Bounds::of(CompareOp::Eq, &EdmValue::Boolean(true))?))
        }
        _ => None,
    }
}

/// Returns the ways to answer a predicate or its negation. A negated comparison also holds for entities
/// without the property, which have no entry, so no index narrows it.
fn find_choices(predicate: &Predicate, negated: bool, indexes: &[Arc<PropertyIndex>]) -> Vec<IndexChoice> {
    match (predicate, negated) {
        (Predicate::Not(inner), _) => find_choices(inner, !negated, indexes),
        (Predicate::All(parts), false) | (Predicate::Any(parts), true) => {
            conjunction(parts, negated, indexes)
        }
        (Predicate::Any(parts), false) | (Predicate::All(parts), true) => {
            disjunction(parts, negated, indexes).into_iter().collect()
        }
        (Predicate::Flag(_) | Predicate::Compare { .. } | Predicate::Text { .. }, false) => {
            conjunction(std::slice::from_ref(predicate), false, indexes)
        }
        (_, _) => Vec::new(),
    }
}

/// Returns the ways to answer a conjunction: any index that narrows one of its parts suffices.
fn conjunction(parts: &[Predicate], negated: bool, indexes: &[Arc<PropertyIndex>]) -> Vec<IndexChoice> {
    let mut bounds = Vec::new();
    let mut found = Vec::new();
    gather_bounds(parts, negated, indexes, &mut bounds, &mut found);
    let ranges = bounds.iter().filter_map(|(index, bounds)| Some(vec![bounds.range(index)?]));
    found.extend(ranges.map(|ranges| IndexChoice { ranges }));
    found.sort_by_key(IndexChoice::rank);
    found
}

/// Collects the bounds of comparisons by index, and the ways to answer the other parts.
fn gather_bounds<'i>(
    parts: &[Predicate],
    negated: bool,
    indexes: &'i [Arc<PropertyIndex>],
    bounds: &mut Vec<(&'i Arc<PropertyIndex>, Bounds)>,
    found: &mut Vec<IndexChoice>,
) {
    for part in parts {
        match (part, negated) {
            (Predicate::All(inner), false) | (Predicate::Any(inner), true) => {
                gather_bounds(inner, negated, indexes, bounds, found);
            }
            (Predicate::Flag(_) | Predicate::Compare { .. } | Predicate::Text { .. }, false) => {
                add_bounds(part, indexes, bounds);
            }
            (other, _) => found.extend(find_choices(other, negated, indexes)),
        }
    }
}

fn add_bounds<'i>(
    comparison: &Predicate,
    indexes: &'i [Arc<PropertyIndex>],
    bounds: &mut Vec<(&'i Arc<PropertyIndex>, Bounds)>,
) {
    let Some((name, kind, new)) = index_bounds(comparison) else { return };
    let index = indexes.iter().find(|index| index.property == name && index.kind == kind);
    let Some(index) = index else { return };
    match bounds.iter_mut().find(|(known, _)| Arc::ptr_eq(known, index)) {
        Some((_, known)) => *known = known.clone().and(new),
        None => bounds.push((index, new)),
    }
}

/// Returns the way to answer a disjunction, in which each part needs an index.
fn disjunction(parts: &[Predicate], negated: bool, indexes: &[Arc<PropertyIndex>]) -> Option<IndexChoice> {
    let mut ranges: Vec<IndexRange> = Vec::new();
    for part in parts {
        // `or false` adds nothing.
        if matches!(part, Predicate::Always(value) if *value == negated) {
            continue;
        }
        let first = find_choices(part, negated, indexes).into_iter().next()?;
        for range in first.ranges {
            if !ranges.contains(&range) {
                ranges.push(range);
            }
        }
        if ranges.len() > MAX_RANGES {
            return None;
        }
    }
    Some(IndexChoice { ranges })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::model::Ticks;
    use crate::plan::index::IndexValue;
    use crate::plan::predicate::EntityView;

    fn index(property: &str, kind: IndexKind) -> Arc<PropertyIndex> {
        Arc::new(PropertyIndex { index_no: 1, table_no: 1, property: property.into(), kind })
    }

    fn compare(name: &str, op: CompareOp, literal: EdmValue) -> Predicate {
        Predicate::Compare { field: Field::Custom(name.into()), op, literal }
    }

    fn int(name: &str, op: CompareOp, value: i32) -> Predicate {
        compare(name, op, EdmValue::Int32(value))
    }

    fn text(value: &str) -> EdmValue {
        EdmValue::String(value.into())
    }

    /// Returns the ranges of the first choice as text.
    fn ranges_of(predicate: &Predicate) -> Vec<String> {
        let indexes = [index("N", IndexKind::Number), index("S", IndexKind::Text)];
        let first = choices(predicate, &indexes).into_iter().next();
        let bound = |bound: &Option<IndexValue>| match bound {
            None => String::new(),
            Some(IndexValue::Text(text)) => text.clone(),
            Some(IndexValue::Number(number)) => number.to_string(),
            Some(IndexValue::Boolean(value)) => value.to_string(),
            Some(IndexValue::Timestamp(at)) => at.to_canonical(),
        };
        let ranges = first.map(|choice| choice.ranges).unwrap_or_default();
        ranges
            .iter()
            .map(|r| format!("{}:{}..{}", r.index.property, bound(&r.lower), bound(&r.upper)))
            .collect()
    }

    #[test]
    fn comparisons_become_the_ranges_one_would_draw() {
        use CompareOp::*;
        use Predicate::{All, Any};
        let not = |inner| Predicate::Not(Box::new(inner));
        let double = |op, value| compare("N", op, EdmValue::Double(value));
        let long = |op, value| compare("N", op, EdmValue::Int64(value));
        let string = |op, value| compare("S", op, text(value));
        for (predicate, ranges) in [
            (int("N", Eq, 5), vec!["N:5..5"]),
            (int("N", Ge, 5), vec!["N:5.."]),
            (int("N", Lt, 5), vec!["N:..5"]),
            // Every Int32 sorts below a literal of a different type.
            (long(Lt, 5), vec![]),
            (double(Le, 5.0), vec![]),
            (int("N", Ne, 5), vec![]),
            (double(Ge, f64::NAN), vec![]),
            (int("Other", Eq, 5), vec![]),
            (compare("N", Eq, text("x")), vec![]),
            (All(vec![int("N", Ge, 5), int("N", Lt, 9), int("N", Le, 12)]), vec!["N:5..9"]),
            (All(vec![double(Ge, 5.0), double(Lt, 9.0)]), vec!["N:5..9"]),
            (All(vec![long(Ge, 5), double(Lt, 9.0)]), vec!["N:5.."]),
            (All(vec![double(Ge, 5.0), long(Lt, 9)]), vec!["N:5..9"]),
            (All(vec![int("N", Ge, 5), string(Eq, "a")]), vec!["S:a..a"]),
            (All(vec![int("N", Ge, 5), int("Other", Eq, 1)]), vec!["N:5.."]),
            (Any(vec![int("N", Eq, 5), string(Eq, "a"), int("N", Eq, 5)]), vec!["N:5..5", "S:a..a"]),
            (Any(vec![int("N", Eq, 5), int("Other", Eq, 1)]), vec![]),
            (Any(vec![int("N", Eq, 5), Predicate::Always(false)]), vec!["N:5..5"]),
            (not(int("N", Eq, 5)), vec![]),
            (not(not(int("N", Eq, 5))), vec!["N:5..5"]),
            (not(Any(vec![not(int("N", Eq, 5)), int("N", Eq, 6)])), vec!["N:5..5"]),
            (string(Eq, "a\u{1}b\u{0}c"), vec!["S:a..a\u{1}b"]),
            (string(Eq, &"ä".repeat(300)), vec![&*format!("S:{0}..{0}", "ä".repeat(256))]),
        ] {
            assert_eq!(ranges_of(&predicate), ranges, "{predicate:?}");
        }
    }

    #[test]
    fn flags_times_and_guids_have_their_kinds() {
        let time = Ticks::parse("2020-01-01T00:00:00.5Z").unwrap();
        for (predicate, kind, bound) in [
            (Predicate::Flag("P".into()), IndexKind::Boolean, IndexValue::Boolean(true)),
            (
                compare("P", CompareOp::Eq, EdmValue::DateTime(time)),
                IndexKind::Time,
                IndexValue::Text("2020-01-01T00:00:00.5".into()),
            ),
            (
                compare("P", CompareOp::Eq, EdmValue::Guid(Uuid::nil())),
                IndexKind::Guid,
                IndexValue::Text(Uuid::nil().to_string()),
            ),
        ] {
            let found = choices(&predicate, &[index("P", kind)]);
            assert_eq!(found[0].ranges[0].lower, Some(bound), "{predicate:?}");
            assert_eq!(indexable(&predicate), [("P", kind)]);
        }
    }

    #[test]
    fn the_ranges_of_an_or_are_limited() {
        let many = |count| Predicate::Any((0..count).map(|n| int("N", CompareOp::Eq, n)).collect());
        assert_eq!(ranges_of(&many(64)).len(), 64);
        assert_eq!(ranges_of(&many(65)).len(), 0);
    }

    /// Returns the index entry of a value, as the databases compute it.
    fn entry(kind: IndexKind, value: &EdmValue) -> Option<IndexValue> {
        use EdmValue::*;
        let characters = |text: &str| IndexValue::Text(text.chars().take(256).collect());
        Some(match (kind, value) {
            (IndexKind::Text, String(text)) if text.contains('\u{0}') => {
                characters(text.split(['\u{0}', '\u{1}']).next().unwrap_or_default())
            }
            (IndexKind::Text, String(text)) => characters(text),
            (IndexKind::Number, Double(value)) if value.is_nan() => return None,
            (IndexKind::Number, Double(value)) => IndexValue::Number(*value),
            (IndexKind::Number, Int32(value)) => IndexValue::Number(f64::from(*value)),
            (IndexKind::Number, Int64(value)) => IndexValue::Number(*value as f64),
            (IndexKind::Time, DateTime(time)) => characters(time.to_canonical().trim_end_matches('Z')),
            (IndexKind::Guid, Guid(guid)) => characters(&guid.to_string()),
            (IndexKind::Boolean, Boolean(value)) => IndexValue::Boolean(*value),
            (IndexKind::Number, _) => IndexValue::Number(f64::NEG_INFINITY),
            (IndexKind::Boolean, _) => IndexValue::Boolean(false),
            _ => IndexValue::Text(std::string::String::new()),
        })
    }

    fn holds(range: &IndexRange, entry: &IndexValue) -> bool {
        let at_most = |a: &IndexValue, b: &IndexValue| match (a, b) {
            (IndexValue::Text(a), IndexValue::Text(b)) => a <= b,
            (IndexValue::Number(a), IndexValue::Number(b)) => a <= b,
            (IndexValue::Boolean(a), IndexValue::Boolean(b)) => a <= b,
            _ => panic!("bounds of another kind"),
        };
        range.lower.as_ref().is_none_or(|lower| at_most(lower, entry))
            && range.upper.as_ref().is_none_or(|upper| at_most(entry, upper))
    }

    fn value() -> impl Strategy<Value = EdmValue> {
        let near = |n: i32| f64::from(n) / 2.0;
        prop_oneof![
            (-3_i32..3).prop_map(EdmValue::Int32),
            (-3_i64..3).prop_map(EdmValue::Int64),
            (-2_i64..3).prop_map(|n| EdmValue::Int64((1 << 53) + n)),
            (-6_i32..6).prop_map(move |n| EdmValue::Double(near(n))),
            prop::sample::select(vec![
                f64::NAN,
                -0.0,
                f64::INFINITY,
                f64::NEG_INFINITY,
                9_007_199_254_740_994.0
            ])
            .prop_map(EdmValue::Double),
            "[ab\u{0}\u{1}\u{2}]{0,3}".prop_map(EdmValue::String),
            "[ab\u{0}]{0,2}".prop_map(|end| EdmValue::String("x".repeat(255) + &end)),
            any::<bool>().prop_map(EdmValue::Boolean),
            (0_i64..3).prop_map(|n| {
                EdmValue::DateTime(Ticks::from_raw(600_000_000_000_000_000 + n * 5_000_000).unwrap())
            }),
            (0_u128..3).prop_map(|n| EdmValue::Guid(Uuid::from_u128(n))),
            prop::collection::vec(0_u8..2, 0..2).prop_map(EdmValue::Binary),
        ]
    }

    fn text_test() -> impl Strategy<Value = TextTest> {
        prop::sample::select(vec![TextTest::StartsWith, TextTest::StartsWith, TextTest::Contains])
    }

    fn predicate() -> impl Strategy<Value = Predicate> {
        let name = || prop::sample::select(vec!["A", "B"]);
        let leaf = prop_oneof![
            8 => (name(), prop::sample::select(CompareOp::ALL.to_vec()), value())
                .prop_map(|(name, op, literal)| compare(name, op, literal)),
            1 => name().prop_map(|name| Predicate::Flag(name.into())),
            2 => (name(), text_test(), value()).prop_map(|(name, test, value)| match value {
                EdmValue::String(needle) => {
                    Predicate::Text { field: Field::Custom(name.into()), fold: None, test, needle }
                }
                _ => Predicate::Present(name.into()),
            }),
            1 => any::<bool>().prop_map(Predicate::Always),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                3 => prop::collection::vec(inner.clone(), 0..4).prop_map(Predicate::All),
                2 => prop::collection::vec(inner.clone(), 0..4).prop_map(Predicate::Any),
                1 => inner.prop_map(|p| Predicate::Not(Box::new(p))),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn every_match_has_an_entry_in_each_choice(
            predicate in predicate(),
            a in prop::option::of(value()),
            b in prop::option::of(value()),
        ) {
            let indexes: Vec<_> =
                ["A", "B"].into_iter().flat_map(|name| IndexKind::ALL.map(|kind| index(name, kind))).collect();
            let properties: Vec<(&str, EdmValue)> =
                [("A", a), ("B", b)].into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
            let view = EntityView { partition: "", row: "", modified: Ticks::MIN, properties: properties.clone() };
            if predicate.eval(&view) {
                for choice in choices(&predicate, &indexes) {
                    let found = choice.ranges.iter().any(|range| {
                        let stored = properties.iter().find(|(name, _)| *name == range.index.property);
                        let entry = stored.and_then(|(_, value)| entry(range.index.kind, value));
                        entry.is_some_and(|entry| holds(range, &entry))
                    });
                    prop_assert!(found, "{choice:?}");
                }
            }
        }
    }
}
