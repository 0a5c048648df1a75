//! Converts query options to scans (protocol §6.1, §7).

use super::filter::{self, Subject};
use super::index::ValueOrder;
use super::page;
use super::predicate::{Field, Predicate};
use super::scan::{MAX_ROWS, MAX_TIME, Projection, Scan, TableScan};
use super::span::{self, Span};
use crate::codec::json::write::Select;
use crate::error::{Code, Error, Result};
use crate::model::{CompareOp, EdmValue, Key, PageOrder};
use crate::odata::Expr;
use crate::request::{OrderBy, OrderTerms, QueryOptions};

/// Maximum total bytes of the nulls in a page, which stand for selected properties that an entity lacks.
const MAX_NULL_BYTES: usize = 1 << 20;
/// Bytes of a null in Atom, besides the name of the property.
const NULL_BYTES: usize = 24;

/// Plans an entity query. `partition` is a PartitionKey from the URL, which acts like a filter (UNVERIFIED
/// 2).
///
/// # Errors
/// Those of [`filter::predicate`], [`page::read_entity_tokens`] and [`page::read_index_tokens`], and
/// [`Code::NotImplemented`] for an order by RowKey over several partitions.
pub fn entities(options: &QueryOptions, partition: Option<&str>) -> Result<Scan> {
    let filter = predicate(options.filter.as_ref(), Subject::Entities)?;
    let predicate = match partition {
        None => filter,
        Some(text) => {
            let literal = EdmValue::String(text.to_owned());
            let partition = Predicate::Compare { field: Field::PartitionKey, op: CompareOp::Eq, literal };
            Some(filter.map_or(partition.clone(), |f| Predicate::All(vec![partition, f])))
        }
    };
    let scan = match &options.order_by {
        Some(OrderBy { order, terms: OrderTerms::Property(name) }) => {
            property_scan(options, predicate, *order, name)?
        }
        order_by => key_scan(options, predicate, order_by.as_ref())?,
    };
    let rows = options.top.unwrap_or(MAX_ROWS).min(max_rows(options.select.as_ref()));
    Ok(Scan { rows, projection: projection(options.select.as_ref()), ..scan })
}

/// Plans a page in the order of keys.
fn key_scan(
    options: &QueryOptions,
    predicate: Option<Predicate>,
    order_by: Option<&OrderBy>,
) -> Result<Scan> {
    let (spans, residual) = narrow(predicate, None);
    let order = order_by.map_or(Ok(PageOrder::Ascending), |order_by| key_order(order_by, &spans))?;
    let mut spans = order.arrange(spans);
    if let Some((partition, row)) = continuation(options) {
        let from = page::read_entity_tokens(order, partition, row)?;
        spans = order.rest_of(spans, &from);
    }
    Ok(Scan { order, residual, ..Scan::of_spans(spans) })
}

/// Plans a page in the order of a property. The residual filter is the whole filter, because such a page is not read
/// by key ranges.
fn property_scan(
    options: &QueryOptions,
    predicate: Option<Predicate>,
    order: PageOrder,
    property: &str,
) -> Result<Scan> {
    let (spans, _) = narrow(predicate.clone(), None);
    let mut by = ValueOrder::by(property);
    if let Some((partition, row)) = continuation(options) {
        by.from = Some(page::read_index_tokens(order, partition, row)?);
    }
    Ok(Scan { order, by: Some(Box::new(by)), residual: predicate, ..Scan::of_spans(spans) })
}

/// Returns the continuation of a page: NextPartitionKey and, if given, NextRowKey. Returns `None` if both are empty.
fn continuation(options: &QueryOptions) -> Option<(&str, Option<&str>)> {
    let (partition, row) = (options.next_partition.as_deref()?, options.next_row.as_deref());
    let is_empty = partition.is_empty() && row.is_none_or(str::is_empty);
    (!is_empty).then_some((partition, row))
}

/// Returns the direction of an order by keys. An order by RowKey requires that the spans lie in one partition.
fn key_order(order_by: &OrderBy, spans: &[Span]) -> Result<PageOrder> {
    let mut partitions = spans.iter().map(Span::partition);
    let first = partitions.next();
    let has_one_partition = first != Some(None) && partitions.all(|partition| Some(partition) == first);
    if order_by.terms == OrderTerms::RowKey && !has_one_partition {
        let reason = "RowKey alone orders the entities of one partition, which the filter has to fix";
        return Err(Error::from(Code::NotImplemented).with_reason(reason));
    }
    Ok(order_by.order)
}

/// Plans a table query.
pub fn tables(options: &QueryOptions) -> Result<TableScan> {
    let predicate = predicate(options.filter.as_ref(), Subject::Tables)?;
    let next = options.next_table.as_deref().filter(|next| !next.is_empty());
    let from = next.map(page::read_table_token).transpose()?;
    let from = from.map(|name| Key { partition: name, row: String::new() });
    let (spans, residual) = narrow(predicate, from.as_ref());
    Ok(TableScan { spans, residual, rows: options.top.unwrap_or(MAX_ROWS), time: MAX_TIME })
}

fn predicate(filter: Option<&Expr>, subject: Subject) -> Result<Option<Predicate>> {
    filter.map(|expr| filter::predicate(expr, subject)).transpose()
}

/// Returns the spans to read, and the residual filter.
pub fn narrow(predicate: Option<Predicate>, from: Option<&Key>) -> (Vec<Span>, Option<Predicate>) {
    let spans = predicate.as_ref().map_or_else(|| vec![Span::everything()], span::spans_of);
    let spans = match from {
        Some(key) => span::starting_at(spans, key),
        None => spans,
    };
    (spans, predicate.filter(|p| !span::is_exact(p)))
}

/// Returns the maximum rows of a page, given the nulls in each entity.
fn max_rows(select: Option<&Select>) -> usize {
    let name_bytes: usize =
        select.iter().flat_map(|select| select.custom_names()).map(|name| name.len() + NULL_BYTES).sum();
    (MAX_NULL_BYTES / name_bytes.max(1)).clamp(1, MAX_ROWS)
}

fn projection(select: Option<&Select>) -> Projection {
    let system = |name: &String| matches!(name.as_str(), "PartitionKey" | "RowKey" | "Timestamp");
    match select {
        Some(select) if !select.names.is_empty() && select.names.iter().all(system) => Projection::SystemOnly,
        _ => Projection::Full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;
    use crate::odata::Grammar;
    use crate::request::options::Options;

    const EXTENDED: Grammar = Grammar { max_comparisons: 100, extended: true };
    const PLAIN: Grammar = Grammar { extended: false, ..EXTENDED };

    fn scan(query: &str) -> Result<Scan, Code> {
        let options = Options::parse(query).unwrap().query(PLAIN).unwrap();
        entities(&options, None).map_err(|e| e.code)
    }

    #[test]
    fn keys_narrow_and_the_rest_stays_as_residual() {
        let point = scan("$filter=PartitionKey eq 'p' and RowKey eq 'r'").unwrap();
        assert!(point.spans[0].as_point().is_some() && point.residual.is_none());
        let mixed = scan("$filter=PartitionKey eq 'p' and Age gt 5").unwrap();
        assert_eq!((mixed.spans.len(), mixed.spans[0].partition()), (1, Some("p")));
        assert!(mixed.residual.is_some());
        let all = scan("").unwrap();
        assert_eq!((all.spans, all.residual), (vec![Span::everything()], None));
    }

    #[test]
    fn a_page_has_fewer_rows_if_each_repeats_many_names() {
        let rows = |names: usize| {
            let names: Vec<String> = (0..names).map(|name| format!("{name:060}")).collect();
            scan(&format!("$select={}", names.join(","))).unwrap().rows
        };
        assert_eq!([rows(0), rows(1), rows(12)], [MAX_ROWS; 3]);
        assert_eq!(rows(250), (1 << 20) / (250 * 84));
        assert_eq!(scan("$top=7&$select=A,B").unwrap().rows, 7);
    }

    #[test]
    fn tokens_continue_where_they_say() {
        let query =
            format!("NextPartitionKey={}&NextRowKey={}", page::encode_token("p"), page::encode_token("r"));
        assert_eq!(scan(&query).unwrap().spans[0].lower, Key::new("p", "r"));
        let query = format!("NextPartitionKey={}", page::encode_token("p"));
        assert_eq!(scan(&query).unwrap().spans[0].lower, Key::new("p", ""));
        assert_eq!(scan(&format!("{query}&NextRowKey=")).unwrap_err(), Code::InvalidInput);
        assert_eq!(scan("NextPartitionKey=1!nonsense").unwrap_err(), Code::InvalidInput);
    }

    #[test]
    fn keys_say_where_a_page_begins_and_nothing_begins_at_the_first_row() {
        let from = |query: &str| scan(query).unwrap().spans[0].lower.clone();
        assert_eq!(from("NextPartitionKey=p&NextRowKey=r"), Key::new("p", "r"));
        assert_eq!(from("NextPartitionKey=&NextRowKey=r"), Key::new("", "r"));
        for nothing in ["NextPartitionKey=", "NextPartitionKey=&NextRowKey=", "NextRowKey=r"] {
            assert_eq!(from(nothing), Key::new("", ""), "{nothing}");
        }
    }

    #[test]
    fn an_order_by_row_needs_one_partition() {
        let order = |text: &str, partition: Option<&str>| {
            let options = Options::parse_with(text, true).unwrap().query(EXTENDED).unwrap();
            entities(&options, partition).map(|scan| scan.order).map_err(|error| error.code)
        };
        let descending = Ok(PageOrder::Descending);
        assert_eq!(order("$orderby=PartitionKey desc,RowKey desc", None), descending);
        assert_eq!(order("$orderby=RowKey desc", Some("p")), descending);
        assert_eq!(order("$orderby=RowKey desc", None), Err(Code::NotImplemented));
        for (filter, expected) in [
            ("PartitionKey eq 'p' and (RowKey eq 'a' or RowKey eq 'b')", descending),
            ("PartitionKey eq 'p' and A eq 1", descending),
            ("PartitionKey ge 'p' and PartitionKey le 'p'", descending),
            ("PartitionKey eq 'p' and PartitionKey eq 'q'", descending),
            ("PartitionKey eq 'p' or PartitionKey eq 'q'", Err(Code::NotImplemented)),
            ("PartitionKey ge 'p'", Err(Code::NotImplemented)),
            ("RowKey eq 'a'", Err(Code::NotImplemented)),
        ] {
            assert_eq!(order(&format!("$orderby=RowKey desc&$filter={filter}"), None), expected, "{filter}");
        }
    }

    #[test]
    fn a_descending_page_goes_on_below_its_token() {
        let scan = |from: Key| {
            let (p, r) = page::entity_tokens(PageOrder::Descending, &from);
            let filter = "PartitionKey eq 'a' or PartitionKey eq 'c'";
            let order = "$orderby=PartitionKey desc,RowKey desc";
            let query = format!("{order}&$filter={filter}&NextPartitionKey={p}&NextRowKey={r}");
            let options = Options::parse_with(&query, true).unwrap().query(EXTENDED).unwrap();
            entities(&options, None).unwrap().spans
        };
        let span = |p: &str, upper| Span { lower: Key::new(p, ""), upper: Some(upper) };
        let whole = |p: &str| span(p, Key::new(format!("{p}\u{1}"), ""));
        assert_eq!(scan(Key::new("d", "")), [whole("c"), whole("a")]);
        assert_eq!(scan(Key::new("c", "r")), [span("c", Key::new("c", "r")), whole("a")]);
        assert_eq!(scan(Key::new("b", "")), [whole("a")]);
        assert_eq!(scan(Key::new("a", "")), []);
    }

    #[test]
    fn half_a_key_is_a_filter() {
        let options = Options::parse("$filter=A eq 1").unwrap().query(PLAIN).unwrap();
        let scan = entities(&options, Some("p")).unwrap();
        assert_eq!(scan.spans[0].partition(), Some("p"));
        assert!(scan.residual.is_some());
    }

    #[test]
    fn select_of_system_properties_leaves_the_others_in_the_database() {
        assert_eq!(scan("$select=PartitionKey,Timestamp").unwrap().projection, Projection::SystemOnly);
        for full in ["$select=PartitionKey,A", "$select=*", "$select=", ""] {
            assert_eq!(scan(full).unwrap().projection, Projection::Full, "{full}");
        }
    }
}
