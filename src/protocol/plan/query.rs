//! Query options to scans (protocol §6.1, §7).

use super::filter::{self, Subject};
use super::page;
use super::predicate::{Field, Predicate};
use super::scan::{MAX_BYTES, MAX_ROWS, MAX_TIME, Projection, Scan, TableScan};
use super::span::{self, Span};
use crate::error::Result;
use crate::protocol::codec::json::write::Select;
use crate::protocol::model::{CompareOp, EdmValue, Key};
use crate::protocol::odata::Expr;
use crate::protocol::request::QueryOptions;

/// Plans a query of entities. `partition` is a PartitionKey from the URL and acts like a filter
/// (UNVERIFIED 2).
///
/// # Errors
/// Those of [`filter::predicate`] and `page::read_token`.
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
    let from = match &options.next_partition {
        None => None,
        Some(token) => {
            let row = options.next_row.as_deref().map(page::read_token).transpose()?;
            Some(Key { partition: page::read_token(token)?, row: row.unwrap_or_default() })
        }
    };
    let (spans, residual) = narrow(predicate, from.as_ref());
    Ok(Scan {
        spans,
        residual,
        rows: options.top.unwrap_or(MAX_ROWS),
        bytes: MAX_BYTES,
        time: MAX_TIME,
        projection: projection(options.select.as_ref()),
        indexed: Vec::new(),
    })
}

/// Plans a query of tables.
///
/// # Errors
/// Those of [`filter::predicate`] and `page::read_table_token`.
pub fn tables(options: &QueryOptions) -> Result<TableScan> {
    let predicate = predicate(options.filter.as_ref(), Subject::Tables)?;
    let from = options.next_table.as_deref().map(page::read_table_token).transpose()?;
    let from = from.map(|name| Key { partition: name, row: String::new() });
    let (spans, residual) = narrow(predicate, from.as_ref());
    Ok(TableScan { spans, residual, rows: options.top.unwrap_or(MAX_ROWS), time: MAX_TIME })
}

fn predicate(filter: Option<&Expr>, subject: Subject) -> Result<Option<Predicate>> {
    filter.map(|expr| filter::predicate(expr, subject)).transpose()
}

/// The spans to read, and the residual filter.
pub(crate) fn narrow(predicate: Option<Predicate>, from: Option<&Key>) -> (Vec<Span>, Option<Predicate>) {
    let spans = predicate.as_ref().map_or_else(|| vec![Span::everything()], span::spans_of);
    let spans = match from {
        Some(key) => span::starting_at(spans, key),
        None => spans,
    };
    (spans, predicate.filter(|p| !span::is_exact(p)))
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
    use crate::protocol::odata::Grammar;
    use crate::protocol::request::options::Options;

    fn scan(query: &str) -> Result<Scan, Code> {
        let options =
            Options::parse(query).unwrap().query(Grammar { max_comparisons: 100, extended: false }).unwrap();
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
    fn tokens_continue_where_they_say() {
        let query = format!("NextPartitionKey={}&NextRowKey={}", page::token("p"), page::token("r"));
        assert_eq!(scan(&query).unwrap().spans[0].lower, Key::new("p", "r"));
        let query = format!("NextPartitionKey={}&NextRowKey=", page::token("p"));
        assert_eq!(scan(&query).unwrap().spans[0].lower, Key::new("p", ""));
        assert_eq!(scan("NextPartitionKey=nonsense").unwrap_err(), Code::InvalidInput);
    }

    #[test]
    fn half_a_key_is_a_filter() {
        let options = Options::parse("$filter=A eq 1")
            .unwrap()
            .query(Grammar { max_comparisons: 100, extended: false })
            .unwrap();
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
