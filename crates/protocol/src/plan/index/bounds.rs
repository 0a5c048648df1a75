//! The index entries that one comparison can match.

use std::cmp::Ordering;
use std::sync::Arc;

use super::{IndexKind, PropertyIndex};
use crate::model::{CompareOp, EdmValue, Ticks, lexical};
use crate::plan::span::after_prefix;

/// Maximum characters of a string in an index, to keep index rows small.
pub const MAX_TEXT: usize = 256;

/// A bound in an index.
#[derive(Debug, Clone, PartialEq)]
pub enum IndexValue {
    /// The text of a string, a time or a Guid.
    Text(String),
    Number(f64),
    Boolean(bool),
    Timestamp(Ticks),
}

/// The entries of an index from `lower` to `upper`, both inclusive.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexRange {
    pub index: Arc<PropertyIndex>,
    /// `None` starts at the lowest entry.
    pub lower: Option<IndexValue>,
    /// `None` ends at the highest entry.
    pub upper: Option<IndexValue>,
}

impl IndexRange {
    /// Returns whether the range has only a lower bound, so that it is read from the highest entry down.
    pub fn is_from_above(&self) -> bool {
        self.lower.is_some() && self.upper.is_none()
    }

    /// Returns the only bound of the range, or `None` if it has two bounds or none.
    pub fn only_bound(&self) -> Option<&IndexValue> {
        match (&self.lower, &self.upper) {
            (Some(only), None) | (None, Some(only)) => Some(only),
            _ => None,
        }
    }

    /// Ranks the likely size of the range: 0 for one value, 1 for a range with two ends, 2 for one end.
    pub(super) fn rank(&self) -> u8 {
        match (&self.lower, &self.upper) {
            (Some(lower), Some(upper)) if lower == upper => 0,
            (Some(_), Some(_)) => 1,
            _ => 2,
        }
    }
}

impl PartialOrd for IndexValue {
    /// Orders entries of one index. Returns `None` for values that cannot be in the same index.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (IndexValue::Text(a), IndexValue::Text(b)) => Some(a.cmp(b)),
            (IndexValue::Number(a), IndexValue::Number(b)) => a.partial_cmp(b),
            (IndexValue::Boolean(a), IndexValue::Boolean(b)) => Some(a.cmp(b)),
            (IndexValue::Timestamp(a), IndexValue::Timestamp(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

/// The bounds that a comparison puts on the values of an index.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Bounds {
    pub lower: Option<IndexValue>,
    pub upper: Option<UpperBound>,
    /// The types that compare with the literal of `lower`.
    pub lower_types: Option<ComparedTypes>,
}

/// An upper bound and the types that compare with its literal. All other types sort below the literal, so the range
/// can only use the bound if a lower bound excludes them.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UpperBound {
    pub value: IndexValue,
    pub types: ComparedTypes,
}

/// The stored types that compare with a literal by value. Each variant includes the types of the variants above.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ComparedTypes {
    /// The types that compare with a Double.
    Double,
    /// The types that compare with an Int64, which include Double.
    Int64,
    /// All types whose values an index holds.
    All,
}

/// Returns the kind of index that can find a literal.
pub(super) const fn index_kind_of(literal: &EdmValue) -> Option<IndexKind> {
    Some(match literal {
        EdmValue::String(_) => IndexKind::Text,
        EdmValue::Int32(_) | EdmValue::Int64(_) | EdmValue::Double(_) => IndexKind::Number,
        EdmValue::DateTime(_) => IndexKind::Time,
        EdmValue::Guid(_) => IndexKind::Guid,
        EdmValue::Boolean(_) => IndexKind::Boolean,
        EdmValue::Binary(_) => return None,
    })
}

impl Bounds {
    /// Returns the bounds of the values for which a comparison holds. Returns `None` if the comparison holds
    /// for values without entries, or has no bounds.
    pub(super) fn of(op: CompareOp, literal: &EdmValue) -> Option<Self> {
        index_kind_of(literal)?;
        // NaN compares with nothing: no value matches, but other types sort below NaN.
        if matches!(literal, EdmValue::Double(value) if value.is_nan()) {
            return None;
        }
        Self::between(op, lower_entry(literal), upper_entry(literal), types_of(literal))
    }

    /// Returns the bounds of the times for which a comparison of Timestamp holds, or `None` if it has no bounds.
    pub(super) fn of_timestamp(op: CompareOp, literal: &EdmValue) -> Option<Self> {
        let EdmValue::DateTime(at) = literal else { return None };
        let at = IndexValue::Timestamp(*at);
        Self::between(op, at.clone(), at, ComparedTypes::All)
    }

    fn between(op: CompareOp, lower: IndexValue, upper: IndexValue, types: ComparedTypes) -> Option<Self> {
        let (has_lower, has_upper) = match op {
            CompareOp::Eq => (true, true),
            CompareOp::Gt | CompareOp::Ge => (true, false),
            CompareOp::Lt | CompareOp::Le => (false, true),
            CompareOp::Ne => return None,
        };
        Some(Self {
            lower: has_lower.then_some(lower),
            upper: has_upper.then_some(UpperBound { value: upper, types }),
            lower_types: has_lower.then_some(types),
        })
    }

    /// Returns the bounds of the strings that begin with `prefix`, or `None` if every string does.
    pub(super) fn of_prefix(prefix: &str) -> Option<Self> {
        let prefix = first_characters(before_control(prefix, '\u{1}'));
        if prefix.is_empty() {
            return None;
        }
        let types = ComparedTypes::All;
        let upper = after_prefix(&prefix);
        let upper = upper.map(|above| UpperBound { value: IndexValue::Text(above), types });
        Some(Self { lower: Some(IndexValue::Text(prefix)), upper, lower_types: Some(types) })
    }

    /// Intersects these bounds with those of another comparison of the same property.
    pub(super) fn and(self, other: Self) -> Self {
        let (lower, lower_types) = match (self.lower, other.lower) {
            (Some(a), Some(b)) => {
                let types = self.lower_types.min(other.lower_types);
                (Some(if a < b { b } else { a }), types)
            }
            (a, None) => (a, self.lower_types),
            (None, b) => (b, other.lower_types),
        };
        let upper = match (self.upper, other.upper) {
            (Some(a), Some(b)) => Some(choose_tighter(a, b, lower_types)),
            (a, b) => a.or(b),
        };
        Self { lower, upper, lower_types }
    }

    /// Returns the range of an index that contains all matches, or `None` if the bounds narrow nothing.
    pub(super) fn range(&self, index: &Arc<PropertyIndex>) -> Option<IndexRange> {
        let needed = self.lower_types.unwrap_or(ComparedTypes::All);
        let upper = self.upper.as_ref().filter(|upper| upper.types >= needed).map(|u| u.value.clone());
        if self.lower.is_none() && upper.is_none() {
            return None;
        }
        Some(IndexRange { index: Arc::clone(index), lower: self.lower.clone(), upper })
    }
}

/// Returns the smaller of two upper bounds, or the only one that [`Bounds::range`] can use.
fn choose_tighter(a: UpperBound, b: UpperBound, lower_types: Option<ComparedTypes>) -> UpperBound {
    let needed = lower_types.unwrap_or(ComparedTypes::All);
    match (a.types >= needed, b.types >= needed) {
        (true, false) => a,
        (false, true) => b,
        _ if a.value < b.value => a,
        _ => b,
    }
}

const fn types_of(literal: &EdmValue) -> ComparedTypes {
    match literal {
        EdmValue::Double(_) => ComparedTypes::Double,
        EdmValue::Int64(_) => ComparedTypes::Int64,
        _ => ComparedTypes::All,
    }
}

/// Returns a lower bound for the entries of values at or above the literal. The entry of a string that contains U+0000
/// ends before its first U+0000 or U+0001, so the bound of every string ends there.
fn lower_entry(literal: &EdmValue) -> IndexValue {
    match literal {
        EdmValue::String(text) => IndexValue::Text(first_characters(before_control(text, '\u{1}'))),
        other => exact_entry(other),
    }
}

/// Returns an upper bound for the entries of values at or below the literal.
fn upper_entry(literal: &EdmValue) -> IndexValue {
    match literal {
        EdmValue::String(text) => IndexValue::Text(first_characters(before_control(text, '\u{0}'))),
        other => exact_entry(other),
    }
}

fn exact_entry(literal: &EdmValue) -> IndexValue {
    match literal {
        EdmValue::Boolean(value) => IndexValue::Boolean(*value),
        EdmValue::Double(value) => IndexValue::Number(*value),
        EdmValue::Int32(value) => IndexValue::Number(f64::from(*value)),
        EdmValue::Int64(value) => IndexValue::Number(*value as f64),
        // Without the Z, times sort as text regardless of their fractions.
        EdmValue::DateTime(time) => IndexValue::Text(time.to_canonical().trim_end_matches('Z').to_owned()),
        EdmValue::Guid(guid) => IndexValue::Text(lexical::format_guid(guid)),
        EdmValue::String(text) => IndexValue::Text(text.clone()),
        EdmValue::Binary(_) => IndexValue::Text(String::new()),
    }
}

/// Returns the part of a text before the first character that is at most `last`.
fn before_control(text: &str, last: char) -> &str {
    text.find(|c| c <= last).map_or(text, |at| &text[..at])
}

fn first_characters(text: &str) -> String {
    let end = text.char_indices().nth(MAX_TEXT).map_or(text.len(), |(end, _)| end);
    text[..end].to_owned()
}
