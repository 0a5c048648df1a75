//! Finds the columns for the SQL view of a table, and prints the statements that create the view.

use std::collections::{BTreeMap, HashMap};

use super::{OperatorError, parse_table_name};
use crate::protocol::codec::stored;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{EdmType, Key, TableName};
use crate::protocol::plan::{Scan, Span};
use crate::store::contract::views::{MAX_COLUMN_NAME, MAX_COLUMNS, SYSTEM_COLUMNS};
use crate::store::quoting::column_names;
use crate::store::{Collect, ColumnKind, Store, ViewColumn, ViewDefinition, ViewScript};

/// A sample consists of the first entities of a table and of small steps after them. If the entities of a step are all
/// in one partition, the next step begins at the next partition.
const FIRST_ENTITIES: u64 = 1000;
const STEPS: usize = 500;
const STEP_ENTITIES: usize = 20;
/// Entities of a page when the whole table is read.
const PAGE_ROWS: usize = 1000;

/// The statements that create the view of a table.
#[derive(Debug)]
pub struct PrintedView {
    pub definition: ViewDefinition,
    pub script: ViewScript,
    /// The number of properties without a column.
    pub left_out: usize,
}

/// Finds the columns of a table, and returns the statements that create its view. `on_progress` is called with the
/// number of entities read so far.
pub async fn print(
    store: &Store,
    account: &str,
    table: &str,
    is_full: bool,
    on_progress: &mut (dyn FnMut(u64) + Send),
) -> Result<PrintedView, OperatorError> {
    let table = parse_table_name(table)?;
    let entry = store.get_table(table.in_account(account)).await?.ok_or(OperatorError::TableNotFound)?;
    let mut seen = SeenProperties::default();
    if is_full {
        read_all(store, account, &table, &mut seen, on_progress).await?;
    } else {
        read_sample(store, account, &table, &mut seen).await?;
    }
    let (columns, left_out) = columns(&seen);
    let definition = ViewDefinition { table: entry.name, columns, seen: seen.entities, is_full };
    let script =
        store.view_script(table.in_account(account), &definition).await?.ok_or_else(respread_error)?;
    Ok(PrintedView { definition, script, left_out })
}

fn respread_error() -> OperatorError {
    let message = "the number of buckets of the table is being changed: print the view when `rowhouse table \
         respread` is done";
    OperatorError::Argument(message.to_owned())
}

/// The properties of the entities, with the number of values of each type.
#[derive(Debug, Default)]
struct SeenProperties {
    entities: u64,
    properties: BTreeMap<String, HashMap<EdmType, u64>>,
}

impl SeenProperties {
    fn add(&mut self, stored: &str) {
        self.entities += 1;
        // Text that is not in stored form was not written by Rowhouse, and has no columns.
        for field in stored::fields(stored).unwrap_or_default() {
            let types = match self.properties.get_mut(field.name.as_ref()) {
                Some(types) => types,
                None => self.properties.entry(field.name.into_owned()).or_default(),
            };
            *types.entry(field.edm_type).or_default() += 1;
        }
    }
}

/// Collects the properties of the entities of a page. They are counted only when the page is complete, because the read
/// may restart.
#[derive(Default)]
struct PageProperties {
    entities: Vec<String>,
    /// The partitions of the first and the last entity.
    partitions: Option<(String, String)>,
}

impl Collect for PageProperties {
    fn take(&mut self, entity: BorrowedEntity<'_>) {
        self.entities.push(entity.properties.to_owned());
        let partition = entity.partition.to_owned();
        match &mut self.partitions {
            Some((_, last)) => *last = partition,
            none => *none = Some((partition.clone(), partition)),
        }
    }

    fn restart(&mut self) {
        *self = Self::default();
    }
}

/// Reads the next entities; returns the partitions of the first and the last, and where to continue.
async fn read_page(
    store: &Store,
    account: &str,
    table: &TableName,
    from: Key,
    rows: usize,
    seen: &mut SeenProperties,
) -> Result<(Option<(String, String)>, Option<Key>), OperatorError> {
    let scan = Scan { rows, ..Scan::of_spans(vec![Span { lower: from, upper: None }]) };
    let (page, end) = store.page(table.in_account(account), &scan, PageProperties::default()).await?;
    page.entities.iter().for_each(|properties| seen.add(properties));
    Ok((page.partitions, end.next))
}

async fn read_all(
    store: &Store,
    account: &str,
    table: &TableName,
    seen: &mut SeenProperties,
    on_progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(), OperatorError> {
    let mut from = Some(Key::new("", ""));
    while let Some(key) = from {
        from = read_page(store, account, table, key, PAGE_ROWS, seen).await?.1;
        on_progress(seen.entities);
    }
    Ok(())
}

async fn read_sample(
    store: &Store,
    account: &str,
    table: &TableName,
    seen: &mut SeenProperties,
) -> Result<(), OperatorError> {
    let mut next = Some(Key::new("", ""));
    while seen.entities < FIRST_ENTITIES
        && let Some(key) = next
    {
        let rows = usize::try_from(FIRST_ENTITIES - seen.entities).unwrap_or(PAGE_ROWS);
        next = read_page(store, account, table, key, rows, seen).await?.1;
    }
    for _ in 0..STEPS {
        let Some(key) = next else { break };
        let (partitions, more) = read_page(store, account, table, key, STEP_ENTITIES, seen).await?;
        next = match (partitions, more) {
            // Keys hold no control characters: the next partition begins here.
            (Some((first, last)), Some(_)) if first == last => Some(Key::new(format!("{last}\u{1}"), "")),
            (_, more) => more,
        };
    }
    Ok(())
}

/// Returns the columns for the properties, by name, and the number of properties that were left out. The most frequent
/// properties have columns.
fn columns(seen: &SeenProperties) -> (Vec<ViewColumn>, usize) {
    let mut properties: Vec<(&String, &HashMap<EdmType, u64>)> = seen.properties.iter().collect();
    let left_out = properties.len().saturating_sub(MAX_COLUMNS);
    if left_out > 0 {
        properties.sort_by_key(|(_, types)| std::cmp::Reverse(types.values().sum::<u64>()));
        properties.truncate(MAX_COLUMNS);
        properties.sort_by_key(|(name, _)| *name);
    }
    let wanted: Vec<&str> = properties.iter().map(|(name, _)| name.as_str()).collect();
    let names = column_names(&wanted, &SYSTEM_COLUMNS, MAX_COLUMN_NAME);
    let column = |((property, types), name): ((&String, &HashMap<EdmType, u64>), String)| ViewColumn {
        property: property.clone(),
        name,
        kind: column_kind(types),
        types: describe_types(types),
    };
    (properties.into_iter().zip(names).map(column).collect(), left_out)
}

fn column_kind(types: &HashMap<EdmType, u64>) -> ColumnKind {
    let kinds = types.keys().map(|edm_type| match edm_type {
        EdmType::String => ColumnKind::Text,
        EdmType::Boolean => ColumnKind::Boolean,
        EdmType::Int32 => ColumnKind::Int32,
        EdmType::Int64 => ColumnKind::Int64,
        EdmType::Double => ColumnKind::Double,
        EdmType::DateTime => ColumnKind::DateTime,
        EdmType::Guid => ColumnKind::Guid,
        EdmType::Binary => ColumnKind::Binary,
    });
    kinds.reduce(common_kind).unwrap_or(ColumnKind::Text)
}

/// Returns the kind that holds the values of both kinds.
fn common_kind(one: ColumnKind, other: ColumnKind) -> ColumnKind {
    match (one, other) {
        (one, other) if one == other => one,
        (wide @ (ColumnKind::Int64 | ColumnKind::Double), ColumnKind::Int32)
        | (ColumnKind::Int32, wide @ (ColumnKind::Int64 | ColumnKind::Double)) => wide,
        _ => ColumnKind::Mixed,
    }
}

/// Lists the types of the values, the most frequent first.
fn describe_types(types: &HashMap<EdmType, u64>) -> String {
    let mut types: Vec<(&EdmType, &u64)> = types.iter().collect();
    types.sort_by_key(|(edm_type, entities)| (std::cmp::Reverse(**entities), edm_type.name()));
    let words = types.iter().map(|(edm_type, entities)| format!("{} in {entities}", edm_type.name()));
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(entities: &[&str]) -> SeenProperties {
        let mut seen = SeenProperties::default();
        entities.iter().for_each(|stored| seen.add(stored));
        seen
    }

    fn shape(columns: &[ViewColumn]) -> Vec<(&str, ColumnKind)> {
        columns.iter().map(|column| (column.name.as_str(), column.kind)).collect()
    }

    #[test]
    fn columns_have_the_types_that_were_seen() {
        let seen = seen(&[
            r#"{"B":1,"A":"x","C":1,"D":true,"rowkey":"r"}"#,
            r#"{"B":"2","B@odata.type":"Edm.Int64","C":2.5,"C@odata.type":"Edm.Double","D":"no"}"#,
        ]);
        let (columns, left_out) = columns(&seen);
        use ColumnKind::{Double, Int64, Mixed, Text};
        let expected = [("A", Text), ("B", Int64), ("C", Double), ("D", Mixed), ("rowkey_2", Text)];
        assert_eq!((shape(&columns), left_out), (expected.to_vec(), 0));
        assert_eq!(columns[3].types, "Edm.Boolean in 1, Edm.String in 1");
    }

    #[test]
    fn the_most_frequent_properties_have_columns_if_there_are_too_many() {
        let mut seen = SeenProperties::default();
        for n in 0..MAX_COLUMNS + 5 {
            seen.add(&format!(r#"{{"P{n:05}":1}}"#));
        }
        seen.add(r#"{"P01004":1}"#);
        let (columns, left_out) = columns(&seen);
        assert_eq!((columns.len(), left_out), (MAX_COLUMNS, 5));
        assert!(columns.iter().any(|column| column.name == "P01004"));
    }
}
