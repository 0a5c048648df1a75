//! Explains in words how the server answers a query, so that users can find out why it is slow.

use schemars::JsonSchema;
use serde::Serialize;

use super::predicate::{Field, Predicate};
use super::scan::Scan;
use super::span::Span;
use crate::model::{CaseFold, EdmValue, Key, PageOrder, TextTest, lexical};

/// What is read of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "Access")]
pub enum KeyAccess {
    /// No key can satisfy the filter.
    Nothing,
    /// Single entities by their keys.
    Point,
    /// Rows of partitions that are known.
    Partition,
    /// A range of partitions.
    Range,
    /// The whole table.
    Scan,
    /// Entities that an index names.
    Index,
    /// Entities in the order of an index.
    Order,
    /// None: no index has the order that the query asks for.
    Refused,
}

/// An end of a key range, without the U+0001 that marks a position after a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanBound {
    pub partition: String,
    /// `None` stands for the whole partition.
    pub row: Option<String>,
    /// Whether the range includes the keys of the bound.
    pub is_inclusive: bool,
}

impl KeyAccess {
    pub fn of(scan: &Scan) -> Self {
        let all = |holds: fn(&Span) -> bool| scan.spans.iter().all(holds);
        match scan.spans.as_slice() {
            [] => Self::Nothing,
            _ if scan.by.is_some() => Self::Order,
            _ if all(|span| span.as_point().is_some()) => Self::Point,
            _ if all(|span| span.partition().is_some()) => Self::Partition,
            [span] if *span == Span::everything() => Self::Scan,
            _ => Self::Range,
        }
    }

    /// Returns a sentence that describes the query.
    pub fn summary(self, has_residual: bool, order: PageOrder) -> String {
        match (self, has_residual, order) {
            (Self::Order, _, order) => {
                let end = if order == PageOrder::Ascending { "lowest" } else { "highest" };
                let compared =
                    if has_residual { ", and each entity is compared with the filter" } else { "" };
                format!(
                    "The index of the order is read from its {end} entry on, or the few entities that the filter \
                     leaves are sorted{compared}."
                )
            }
            (_, _, PageOrder::Ascending) => self.read_summary(has_residual).to_owned(),
            (Self::Scan, false, PageOrder::Descending) => {
                "The table is read from its end, in descending order of keys.".to_owned()
            }
            (_, _, PageOrder::Descending) => {
                format!("{} Keys are read in descending order.", self.read_summary(has_residual))
            }
        }
    }

    const fn read_summary(self, has_residual: bool) -> &'static str {
        match (self, has_residual) {
            (Self::Nothing, _) => "No key can match the filter, so nothing is read.",
            (Self::Point, false) => "Entities are read by their keys.",
            (Self::Point, true) => {
                "Entities are read by their keys, and compared with the rest of the filter."
            }
            (Self::Partition, false) => "A range of rows in known partitions is read.",
            (Self::Partition, true) => {
                "Every row of a range in known partitions is compared with the rest of the filter."
            }
            (Self::Range, false) => "A range of partitions is read.",
            (Self::Range, true) => {
                "Every row of a range of partitions is compared with the rest of the filter."
            }
            (Self::Scan, false) => "The table is read from its beginning.",
            (Self::Scan, true) => {
                "Every entity of the table is compared with the filter: name a partition to read less."
            }
            (Self::Refused | Self::Order, _) => "No index has the order that the query asks for.",
            (Self::Index, _) => "An index names the entities to read, which are compared with the filter.",
        }
    }
}

impl SpanBound {
    /// Converts a bound of a span.
    fn of(key: &Key, is_upper: bool) -> Self {
        let (partition, row, is_after) = match (key.partition.strip_suffix('\u{1}'), key.row.as_str()) {
            (Some(partition), _) => (partition, None, true),
            (None, "") => (key.partition.as_str(), None, false),
            (None, row) => match row.strip_suffix('\u{1}') {
                Some(row) => (key.partition.as_str(), Some(row), true),
                None => (key.partition.as_str(), Some(row), false),
            },
        };
        Self { partition: partition.into(), row: row.map(str::to_owned), is_inclusive: is_after == is_upper }
    }

    fn describe(&self) -> String {
        let partition = quoted(&self.partition);
        match &self.row {
            None => format!("partition {partition}"),
            Some(row) => format!("row {} of partition {partition}", quoted(row)),
        }
    }
}

/// Returns the bounds of a span. `None` is the start or the end of the table.
pub fn bounds(span: &Span) -> (Option<SpanBound>, Option<SpanBound>) {
    let lower = &span.lower;
    let has_lower = !lower.partition.is_empty() || !lower.row.is_empty();
    (
        has_lower.then(|| SpanBound::of(lower, false)),
        span.upper.as_ref().map(|upper| SpanBound::of(upper, true)),
    )
}

pub fn describe_span(span: &Span) -> String {
    if let Some(key) = span.as_point() {
        return format!("row {} of partition {}", quoted(&key.row), quoted(&key.partition));
    }
    let (lower, upper) = bounds(span);
    if let (Some(first), Some(last)) = (&lower, &upper)
        && first == last
    {
        return first.describe();
    }
    let from = match &lower {
        None => "from the start of the table".to_owned(),
        Some(bound) if bound.is_inclusive => format!("from {} on", bound.describe()),
        Some(bound) => format!("after {}", bound.describe()),
    };
    match &upper {
        None => format!("{from}, to its end"),
        Some(bound) if bound.is_inclusive => format!("{from}, up to and including {}", bound.describe()),
        Some(bound) => format!("{from}, before {}", bound.describe()),
    }
}

/// Formats a predicate in the syntax of `$filter`.
pub fn filter_text(predicate: &Predicate) -> String {
    let joined = |parts: &[Predicate], word: &str| -> String {
        parts.iter().map(nested).collect::<Vec<_>>().join(word)
    };
    match predicate {
        Predicate::All(parts) => joined(parts, " and "),
        Predicate::Any(parts) => joined(parts, " or "),
        Predicate::Not(inner) => format!("not {}", nested(inner)),
        Predicate::Always(holds) => holds.to_string(),
        Predicate::Flag(name) => name.clone(),
        Predicate::Compare { field, op, literal } => {
            format!("{} {} {}", field_name(field), op.word(), literal_text(literal))
        }
        Predicate::Text { field, fold, test, needle } => {
            let operand = folded(field_name(field), *fold);
            match test {
                TextTest::Is(op) => format!("{operand} {} {}", op.word(), quoted(needle)),
                function => format!("{}({operand},{})", function.word(), quoted(needle)),
            }
        }
        Predicate::Present(name) => format!("{name} ne null"),
    }
}

fn field_name(field: &Field) -> &str {
    match field {
        Field::PartitionKey => "PartitionKey",
        Field::RowKey => "RowKey",
        Field::Timestamp => "Timestamp",
        Field::Custom(name) => name,
    }
}

fn folded(name: &str, fold: Option<CaseFold>) -> String {
    fold.map_or_else(|| name.to_owned(), |fold| format!("{}({name})", fold.word()))
}

/// Formats a part of a predicate. Compound parts are put in parentheses.
fn nested(predicate: &Predicate) -> String {
    let text = filter_text(predicate);
    match predicate {
        Predicate::All(_) | Predicate::Any(_) | Predicate::Not(_) => format!("({text})"),
        _ => text,
    }
}

fn literal_text(value: &EdmValue) -> String {
    match value {
        EdmValue::String(text) => quoted(text),
        EdmValue::Binary(bytes) => {
            format!("X'{}'", bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        }
        EdmValue::DateTime(_) => format!("datetime'{}'", lexical::format(value)),
        EdmValue::Guid(_) => format!("guid'{}'", lexical::format(value)),
        EdmValue::Int64(value) => format!("{value}L"),
        EdmValue::Boolean(_) | EdmValue::Double(_) | EdmValue::Int32(_) => lexical::format(value),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::odata::Grammar;
    use crate::plan::query;
    use crate::request::options::Options;

    fn scan(filter: &str) -> Scan {
        let query = format!("$filter={}", crate::codec::uri::escape(filter));
        query::entities(
            &Options::parse(&query).unwrap().query(Grammar { max_comparisons: 100, extended: true }).unwrap(),
            None,
        )
        .unwrap()
    }

    #[test]
    fn each_kind_of_filter_is_told_from_the_others() {
        for (filter, access, residual, spans) in [
            ("", KeyAccess::Scan, None, &["from the start of the table, to its end"][..]),
            ("PartitionKey eq 'p' and RowKey eq 'r'", KeyAccess::Point, None, &["row 'r' of partition 'p'"]),
            ("PartitionKey eq 'it''s'", KeyAccess::Partition, None, &["partition 'it''s'"]),
            (
                "PartitionKey eq 'p' and RowKey gt 'a' and RowKey lt 'b' and N eq 5",
                KeyAccess::Partition,
                Some("PartitionKey eq 'p' and RowKey gt 'a' and RowKey lt 'b' and N eq 5"),
                &["after row 'a' of partition 'p', before row 'b' of partition 'p'"],
            ),
            (
                "PartitionKey ge 'p' and PartitionKey le 'q'",
                KeyAccess::Range,
                None,
                &["from partition 'p' on, up to and including partition 'q'"],
            ),
            ("PartitionKey ge 'p'", KeyAccess::Range, None, &["from partition 'p' on, to its end"]),
            ("PartitionKey gt 'p'", KeyAccess::Range, None, &["after partition 'p', to its end"]),
            (
                "not (N eq 1L or B) and G eq guid'00000000-0000-0000-0000-000000000001' and D gt 1.5",
                KeyAccess::Scan,
                Some("(not (N eq 1L or B)) and G eq guid'00000000-0000-0000-0000-000000000001' and D gt 1.5"),
                &["from the start of the table, to its end"],
            ),
            ("PartitionKey eq 'a' and PartitionKey eq 'b'", KeyAccess::Nothing, None, &[]),
        ] {
            let scan = scan(filter);
            assert_eq!(KeyAccess::of(&scan), access, "{filter}");
            assert_eq!(scan.spans.iter().map(describe_span).collect::<Vec<_>>(), spans, "{filter}");
            let text = scan.residual.as_ref().map(filter_text);
            assert_eq!(text.as_deref(), residual, "{filter}");
        }
    }

    #[test]
    fn a_descending_order_is_named() {
        let summary = |access: KeyAccess| access.summary(false, PageOrder::Descending);
        assert_eq!(summary(KeyAccess::Scan), "The table is read from its end, in descending order of keys.");
        assert!(summary(KeyAccess::Range).ends_with(" is read. Keys are read in descending order."));
        assert!(!KeyAccess::Range.summary(false, PageOrder::Ascending).contains("descending"));
    }

    #[test]
    fn the_summary_of_an_order_says_that_few_entities_are_sorted_instead() {
        let summary = |has_residual, order| KeyAccess::Order.summary(has_residual, order);
        assert_eq!(
            summary(false, PageOrder::Ascending),
            "The index of the order is read from its lowest entry on, or the few entities that the filter leaves are \
             sorted."
        );
        assert_eq!(
            summary(true, PageOrder::Descending),
            "The index of the order is read from its highest entry on, or the few entities that the filter leaves are \
             sorted, and each entity is compared with the filter."
        );
    }

    #[test]
    fn the_text_of_a_filter_means_the_same_filter() {
        for filter in [
            "X eq X'00ff' and T gt datetime'2020-01-01T00:00:00Z' or not (S ne 'it''s')",
            "(A or B) and (C or not D) and E lt -5",
            "startswith(A,'it''s') and not contains(tolower(RowKey),'x') or A ne null and not B ne null",
            "endswith(A,'') or tolower(A) lt 'x' or toupper(B) eq 'Y'",
        ] {
            let predicate = scan(filter).residual.unwrap();
            assert_eq!(scan(&filter_text(&predicate)).residual, Some(predicate), "{filter}");
        }
    }
}
