//! The eight Edm types, their values and their order (protocol §5.1, §6.4).

use std::borrow::Cow;
use std::cmp::Ordering;

use uuid::Uuid;

use super::ticks::Ticks;

named_enum! {
    /// A primitive type of the data model, with the name that annotations use.
    EdmType, name {
        String => "Edm.String",
        Binary => "Edm.Binary",
        Boolean => "Edm.Boolean",
        DateTime => "Edm.DateTime",
        Double => "Edm.Double",
        Guid => "Edm.Guid",
        Int32 => "Edm.Int32",
        Int64 => "Edm.Int64",
    }
}

impl EdmType {
    /// Returns the type with this name. Other `Edm.*` names are not part of the model.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|t| t.name() == name)
    }
}

/// A typed property value.
#[derive(Debug, Clone, PartialEq)]
pub enum EdmValue {
    String(String),
    Binary(Vec<u8>),
    Boolean(bool),
    DateTime(Ticks),
    Double(f64),
    Guid(Uuid),
    Int32(i32),
    Int64(i64),
}

impl EdmValue {
    pub(crate) const fn edm_type(&self) -> EdmType {
        match self {
            EdmValue::String(_) => EdmType::String,
            EdmValue::Binary(_) => EdmType::Binary,
            EdmValue::Boolean(_) => EdmType::Boolean,
            EdmValue::DateTime(_) => EdmType::DateTime,
            EdmValue::Double(_) => EdmType::Double,
            EdmValue::Guid(_) => EdmType::Guid,
            EdmValue::Int32(_) => EdmType::Int32,
            EdmValue::Int64(_) => EdmType::Int64,
        }
    }

    /// Returns the number of bytes that the value adds to an entity's size (protocol §5.7).
    pub(crate) fn counted_size(&self) -> usize {
        match self {
            EdmValue::String(s) => 2 * utf16_len(s) + 4,
            EdmValue::Binary(b) => b.len() + 4,
            EdmValue::Boolean(_) => 1,
            EdmValue::Int32(_) => 4,
            EdmValue::DateTime(_) | EdmValue::Double(_) | EdmValue::Int64(_) => 8,
            EdmValue::Guid(_) => 16,
        }
    }
}

/// Returns the length in UTF-16 code units, the unit of every string limit in Azure.
pub fn utf16_len(s: &str) -> usize {
    if s.is_ascii() { s.len() } else { s.chars().map(char::len_utf16).sum() }
}

/// Returns whether a text has at most `max` UTF-16 code units. A text never has more code units than bytes, so the code
/// units are seldom counted.
pub(crate) fn is_within(s: &str, max: usize) -> bool {
    s.len() <= max || utf16_len(s) <= max
}

named_enum! {
    /// A comparison operator, with its keyword in `$filter`.
    CompareOp, word {
        Eq => "eq",
        Ne => "ne",
        Lt => "lt",
        Le => "le",
        Gt => "gt",
        Ge => "ge",
    }
}

impl CompareOp {
    /// Returns the operator for swapped operands: `3 lt N` is `N gt 3`.
    pub(crate) const fn mirrored(self) -> Self {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::Le => CompareOp::Ge,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::Ge => CompareOp::Le,
            same => same,
        }
    }

    /// Returns whether the operator holds for operands in this order. `None` is a comparison with NaN, for which only
    /// `ne` holds.
    pub const fn holds(self, order: Option<Ordering>) -> bool {
        match order {
            None => matches!(self, CompareOp::Ne),
            Some(Ordering::Less) => matches!(self, CompareOp::Ne | CompareOp::Lt | CompareOp::Le),
            Some(Ordering::Equal) => matches!(self, CompareOp::Eq | CompareOp::Le | CompareOp::Ge),
            Some(Ordering::Greater) => {
                matches!(self, CompareOp::Ne | CompareOp::Gt | CompareOp::Ge)
            }
        }
    }

    /// Returns whether the operator holds for a stored value whose type differs from the literal's type. Such a value
    /// sorts below the literal (protocol §6.4 rule 4, UNVERIFIED 12).
    pub const fn holds_on_type_mismatch(self) -> bool {
        self.holds(Some(Ordering::Less))
    }
}

/// Returns whether `stored op literal` holds under the typed semantics of protocol §6.4, rules 2 to 4.
/// The caller handles missing properties.
pub(crate) fn compare(stored: &EdmValue, op: CompareOp, literal: &EdmValue) -> bool {
    match order(stored, literal) {
        Some(order) => op.holds(order),
        None => op.holds_on_type_mismatch(),
    }
}

/// Returns the order of two values, or `None` if their types do not compare. The inner `None` is a comparison
/// with NaN.
fn order(stored: &EdmValue, literal: &EdmValue) -> Option<Option<Ordering>> {
    use EdmValue::*;
    Some(match (stored, literal) {
        (String(a), String(b)) => Some(a.as_str().cmp(b.as_str())),
        (Binary(a), Binary(b)) => Some(a.cmp(b)),
        (Boolean(a), Boolean(b)) => Some(a.cmp(b)),
        (DateTime(a), DateTime(b)) => Some(a.cmp(b)),
        (Guid(a), Guid(b)) => Some(a.cmp(b)),
        (Int32(a), Int32(b)) => Some(a.cmp(b)),
        (Int64(a), Int64(b)) => Some(a.cmp(b)),
        (Int64(a), Int32(b)) => Some(a.cmp(&i64::from(*b))),
        (Double(a), Double(b)) => a.partial_cmp(b),
        (Double(a), Int32(b)) => a.partial_cmp(&f64::from(*b)),
        (Double(a), Int64(b)) => a.partial_cmp(&(*b as f64)),
        _ => return None,
    })
}

/// The test that a filter function applies to a String.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextTest {
    StartsWith,
    EndsWith,
    Contains,
    /// A comparison of the text after a change of case.
    Is(CompareOp),
}

impl TextTest {
    /// Returns whether `text` passes the test with `needle`. The empty needle is part of every text.
    pub fn holds(self, text: &str, needle: &str) -> bool {
        match self {
            TextTest::StartsWith => text.starts_with(needle),
            TextTest::EndsWith => text.ends_with(needle),
            TextTest::Contains => text.contains(needle),
            TextTest::Is(op) => op.holds(Some(text.cmp(needle))),
        }
    }

    /// Returns the name of the function, or the keyword of the comparison.
    pub const fn word(self) -> &'static str {
        match self {
            TextTest::StartsWith => "startswith",
            TextTest::EndsWith => "endswith",
            TextTest::Contains => "contains",
            TextTest::Is(op) => op.word(),
        }
    }
}

named_enum! {
    /// A change of case, with the name of its filter function. It changes only ASCII letters, so that the result is the
    /// same in both databases and in all their versions.
    CaseFold, word {
        Lower => "tolower",
        Upper => "toupper",
    }
}

impl CaseFold {
    pub fn apply(self, text: &str) -> Cow<'_, str> {
        let changes = match self {
            CaseFold::Lower => text.bytes().any(|b| b.is_ascii_uppercase()),
            CaseFold::Upper => text.bytes().any(|b| b.is_ascii_lowercase()),
        };
        match self {
            _ if !changes => Cow::Borrowed(text),
            CaseFold::Lower => Cow::Owned(text.to_ascii_lowercase()),
            CaseFold::Upper => Cow::Owned(text.to_ascii_uppercase()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<EdmValue> {
        vec![
            EdmValue::String("m".into()),
            EdmValue::Binary(vec![1]),
            EdmValue::Boolean(true),
            EdmValue::DateTime(Ticks::from_raw(600_000_000_000_000_000).unwrap()),
            EdmValue::Double(2.0),
            EdmValue::Guid(Uuid::from_u128(7)),
            EdmValue::Int32(2),
            EdmValue::Int64(2),
        ]
    }

    #[test]
    fn narrower_numbers_compare_and_every_other_mix_sorts_below() {
        let numeric = |s: &EdmValue, l: &EdmValue| {
            matches!(
                (s, l),
                (EdmValue::Int64(_), EdmValue::Int32(_))
                    | (EdmValue::Double(_), EdmValue::Int32(_) | EdmValue::Int64(_))
            )
        };
        for stored in one_of_each() {
            for literal in one_of_each() {
                let same = stored.edm_type() == literal.edm_type() || numeric(&stored, &literal);
                for op in CompareOp::ALL {
                    let expected = if same {
                        matches!(op, CompareOp::Eq | CompareOp::Le | CompareOp::Ge)
                    } else {
                        matches!(op, CompareOp::Ne | CompareOp::Lt | CompareOp::Le)
                    };
                    assert_eq!(compare(&stored, op, &literal), expected, "{stored:?} {op:?} {literal:?}");
                }
            }
        }
    }

    #[test]
    fn nan_equals_nothing() {
        let nan = EdmValue::Double(f64::NAN);
        for op in CompareOp::ALL {
            assert_eq!(compare(&nan, op, &EdmValue::Double(1.0)), op == CompareOp::Ne);
            assert_eq!(compare(&nan, op, &nan), op == CompareOp::Ne);
        }
        assert!(compare(&EdmValue::Double(-0.0), CompareOp::Eq, &EdmValue::Double(0.0)));
    }

    #[test]
    fn binary_and_strings_order_by_bytes_with_prefix_first() {
        let lt = |a: EdmValue, b: EdmValue| compare(&a, CompareOp::Lt, &b);
        assert!(lt(EdmValue::Binary(vec![1]), EdmValue::Binary(vec![1, 0])));
        assert!(lt(EdmValue::Binary(vec![1, 255]), EdmValue::Binary(vec![2])));
        assert!(lt(EdmValue::String("B".into()), EdmValue::String("a".into())));
        assert!(lt(EdmValue::Boolean(false), EdmValue::Boolean(true)));
    }

    #[test]
    fn strings_are_measured_in_utf16_units() {
        assert_eq!(utf16_len("aé漢"), 3);
        assert_eq!(utf16_len("😀"), 2);
    }
}
