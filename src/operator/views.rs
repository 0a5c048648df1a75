//! SQL views: which columns a table needs, and making its view.

use std::collections::{BTreeMap, HashMap};

use clap::Args;
use serde::Deserialize;

use super::{OperatorError, table_name};
use crate::protocol::codec::stored;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{EdmType, Key, TableName, Ticks};
use crate::protocol::plan::{Scan, Span};
use crate::store::contract::views::{MAX_COLUMN_NAME, MAX_COLUMNS, SYSTEM_COLUMNS};
use crate::store::quoting::column_names;
use crate::store::{Collect, ColumnKind, SqlView, Store, ViewColumn, ViewDefinition};

/// A sample is the first entities of a table, and after them steps of a few entities. A step whose
/// entities are all of one partition is followed by the start of the next partition.
const FIRST_ENTITIES: u64 = 1000;
const STEPS: usize = 500;
const STEP_ENTITIES: usize = 20;
/// Entities of a page when all are read.
const PAGE_ROWS: usize = 1000;
/// Roles of one view.
const MAX_GRANTS: usize = 100;
/// Bytes of a name of PostgreSQL, and of a role.
const MAX_NAME: usize = 63;

/// What an operator wants of a view.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewView {
    /// PostgreSQL: schema of the view, created if it does not exist [default: the account]
    // That of an existing view stays.
    #[arg(long)]
    pub schema: Option<String>,
    /// PostgreSQL: role that may read the view; may be given several times
    // Those of an existing view stay.
    #[arg(long, value_name = "ROLE")]
    #[serde(default)]
    pub grant: Vec<String>,
    /// Read all entities to find the columns
    // Not over the admin listener, whose calls have a time limit.
    #[arg(long)]
    #[serde(skip)]
    pub full: bool,
}

/// Creates the view of a table, or refreshes it. `on_progress` is called with the number of entities read so
/// far. Returns the view, and how many properties have no column.
///
/// # Errors
/// [`OperatorError`].
pub(crate) async fn put(
    store: &Store,
    account: &str,
    table: &str,
    request: &NewView,
    now: Ticks,
    on_progress: &mut (dyn FnMut(u64) + Send),
) -> Result<(SqlView, usize), OperatorError> {
    let table = table_name(table)?;
    check(store, request)?;
    let entry = store_entry(store, account, &table).await?;
    let former = find(store, account, &table).await?;
    let mut seen = SeenProperties::default();
    if request.full {
        read_all(store, account, &table, &mut seen, on_progress).await?;
    } else {
        read_sample(store, account, &table, &mut seen).await?;
    }
    let known = former.as_ref().map_or(&[][..], |view| &view.definition.columns);
    let (columns, left_out) = columns(known, &seen, request.full);
    let (schema, mut grants) = match former {
        Some(view) => (view.definition.schema, view.definition.grants),
        None => (store.has_schemas().then(|| account.to_owned()), Vec::new()),
    };
    grants.extend(request.grant.iter().cloned());
    grants.sort();
    grants.dedup();
    let view_name = if store.has_schemas() { entry } else { format!("{account}__{entry}") };
    let schema = request.schema.clone().or(schema);
    let view = ViewDefinition {
        schema,
        name: view_name,
        columns,
        grants,
        seen: seen.entities,
        is_full: request.full,
    };
    store.put_view(table.in_account(account), &view, now).await?;
    let made = find(store, account, &table).await?.ok_or(OperatorError::TableNotFound)?;
    Ok((made, left_out))
}

fn check(store: &Store, request: &NewView) -> Result<(), OperatorError> {
    let wrong = |text: &str| Err(OperatorError::Argument(text.to_owned()));
    if !store.has_schemas() && (request.schema.is_some() || !request.grant.is_empty()) {
        return wrong("SQLite has neither schemas nor roles: schema and grant are for PostgreSQL");
    }
    let names = request.grant.iter().chain(&request.schema);
    let is_name = |name: &String| (1..=MAX_NAME).contains(&name.len()) && !name.contains('\u{0}');
    if !names.into_iter().all(is_name) {
        return wrong("the names of schemas and roles have 1 to 63 bytes");
    }
    if request.grant.len() > MAX_GRANTS {
        return wrong("a view can be granted to 100 roles at once");
    }
    Ok(())
}

/// Returns the table's name as created.
async fn store_entry(store: &Store, account: &str, table: &TableName) -> Result<String, OperatorError> {
    let entry = store.get_table(table.in_account(account)).await?;
    entry.map(|entry| entry.name).ok_or(OperatorError::TableNotFound)
}

async fn find(store: &Store, account: &str, table: &TableName) -> Result<Option<SqlView>, OperatorError> {
    let views = store.views(Some(account)).await?;
    Ok(views.into_iter().find(|view| view.table.eq_ignore_ascii_case(table.as_given())))
}

/// Refreshes the view of a table, or all views of the account.
///
/// # Errors
/// [`OperatorError`]; [`OperatorError::NotSet`] if there is none.
pub(crate) async fn refresh(
    store: &Store,
    account: &str,
    table: Option<&str>,
    is_full: bool,
    now: Ticks,
    on_progress: &mut (dyn FnMut(u64) + Send),
) -> Result<Vec<(SqlView, usize)>, OperatorError> {
    let is_meant = |view: &SqlView| table.is_none_or(|table| view.table.eq_ignore_ascii_case(table));
    let views: Vec<SqlView> = store.views(Some(account)).await?.into_iter().filter(is_meant).collect();
    if let (Some(table), true) = (table, views.is_empty()) {
        return Err(none(account, table));
    }
    let request = NewView { full: is_full, ..NewView::default() };
    let mut done = Vec::with_capacity(views.len());
    for view in views {
        done.push(put(store, account, &view.table, &request, now, on_progress).await?);
    }
    Ok(done)
}

/// Drops the view of a table.
///
/// # Errors
/// [`OperatorError`].
pub(crate) async fn drop(store: &Store, account: &str, table: &str) -> Result<(), OperatorError> {
    if store.drop_view(table_name(table)?.in_account(account)).await? {
        Ok(())
    } else {
        Err(none(account, table))
    }
}

fn none(account: &str, table: &str) -> OperatorError {
    OperatorError::NotSet(format!("the account {account} has no table {table} with a view"))
}

/// Properties that were seen, and how often with which type.
#[derive(Debug, Default)]
struct SeenProperties {
    entities: u64,
    properties: BTreeMap<String, HashMap<EdmType, u64>>,
}

impl SeenProperties {
    fn add(&mut self, stored: &str) {
        self.entities += 1;
        // What is not in stored form was not written by us, and has no columns.
        for field in stored::fields(stored).unwrap_or_default() {
            let types = match self.properties.get_mut(field.name.as_ref()) {
                Some(types) => types,
                None => self.properties.entry(field.name.into_owned()).or_default(),
            };
            *types.entry(field.edm_type).or_default() += 1;
        }
    }
}

/// Collects the properties of a page, once it is complete.
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
async fn page(
    store: &Store,
    account: &str,
    table: &TableName,
    from: Key,
    rows: usize,
    seen: &mut SeenProperties,
) -> Result<(Option<(String, String)>, Option<Key>), OperatorError> {
    let scan = Scan { rows, ..Scan::over(vec![Span { lower: from, upper: None }]) };
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
        from = page(store, account, table, key, PAGE_ROWS, seen).await?.1;
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
        next = page(store, account, table, key, rows, seen).await?.1;
    }
    for _ in 0..STEPS {
        let Some(key) = next else { break };
        let (partitions, more) = page(store, account, table, key, STEP_ENTITIES, seen).await?;
        next = match (partitions, more) {
            // Keys hold no control characters: the next partition begins here.
            (Some((first, last)), Some(_)) if first == last => Some(Key::new(format!("{last}\u{1}"), "")),
            (_, more) => more,
        };
    }
    Ok(())
}

/// The columns for the properties that were seen, and how many had no place. Known columns stay where
/// they are; unless all entities were seen, they also stay if their property was not.
fn columns(known: &[ViewColumn], seen: &SeenProperties, is_full: bool) -> (Vec<ViewColumn>, usize) {
    let mut columns: Vec<ViewColumn> = Vec::new();
    for column in known {
        match seen.properties.get(&column.property) {
            Some(types) => {
                let former = if is_full { None } else { Some(column.kind) };
                let (kind, types) = (kind(types, former), in_words(types));
                columns.push(ViewColumn { kind, types, ..column.clone() });
            }
            None if is_full => {}
            None => columns.push(column.clone()),
        }
    }
    let mut new: Vec<(&String, &HashMap<EdmType, u64>)> = seen
        .properties
        .iter()
        .filter(|(name, _)| known.iter().all(|column| column.property != **name))
        .collect();
    // The most frequent ones, in the order of their names.
    let room = MAX_COLUMNS.saturating_sub(columns.len());
    let left_out = new.len().saturating_sub(room);
    if left_out > 0 {
        new.sort_by_key(|(_, types)| std::cmp::Reverse(types.values().sum::<u64>()));
        new.truncate(room);
        new.sort_by_key(|(name, _)| *name);
    }
    let wanted: Vec<&str> = new.iter().map(|(name, _)| name.as_str()).collect();
    let taken: Vec<&str> =
        SYSTEM_COLUMNS.into_iter().chain(columns.iter().map(|column| column.name.as_str())).collect();
    let names = column_names(&wanted, &taken, MAX_COLUMN_NAME);
    for ((property, types), name) in new.into_iter().zip(names) {
        let (kind, types) = (kind(types, None), in_words(types));
        columns.push(ViewColumn { property: property.clone(), name, kind, types });
    }
    (columns, left_out)
}

/// The kind of a column for these types and those that it had before.
fn kind(types: &HashMap<EdmType, u64>, former: Option<ColumnKind>) -> ColumnKind {
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
    kinds.chain(former).reduce(both).unwrap_or(ColumnKind::Text)
}

/// The kind that holds values of both.
fn both(one: ColumnKind, other: ColumnKind) -> ColumnKind {
    match (one, other) {
        (one, other) if one == other => one,
        (wide @ (ColumnKind::Int64 | ColumnKind::Double), ColumnKind::Int32)
        | (ColumnKind::Int32, wide @ (ColumnKind::Int64 | ColumnKind::Double)) => wide,
        _ => ColumnKind::Mixed,
    }
}

/// The types that were seen, the most frequent first.
fn in_words(types: &HashMap<EdmType, u64>) -> String {
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
        let (columns, left_out) = columns(&[], &seen, false);
        use ColumnKind::{Double, Int64, Mixed, Text};
        let expected = [("A", Text), ("B", Int64), ("C", Double), ("D", Mixed), ("rowkey_2", Text)];
        assert_eq!((shape(&columns), left_out), (expected.to_vec(), 0));
        assert_eq!(columns[3].types, "Edm.Boolean in 1, Edm.String in 1");
    }

    #[test]
    fn known_columns_stay_in_their_places_until_all_entities_are_seen() {
        use ColumnKind::{Int32, Mixed, Text};
        let (known, _) = columns(&[], &seen(&[r#"{"M":1,"Z":1}"#]), false);
        let later = seen(&[r#"{"A":"x","Z":"one"}"#]);
        let (some, _) = columns(&known, &later, false);
        assert_eq!(shape(&some), [("M", Int32), ("Z", Mixed), ("A", Text)]);
        let (all, _) = columns(&known, &later, true);
        assert_eq!(shape(&all), [("Z", Text), ("A", Text)]);
    }

    #[test]
    fn the_most_frequent_properties_have_columns_if_there_are_too_many() {
        let mut seen = SeenProperties::default();
        for n in 0..MAX_COLUMNS + 5 {
            seen.add(&format!(r#"{{"P{n:05}":1}}"#));
        }
        seen.add(r#"{"P01004":1}"#);
        let (columns, left_out) = columns(&[], &seen, false);
        assert_eq!((columns.len(), left_out), (MAX_COLUMNS, 5));
        assert!(columns.iter().any(|column| column.name == "P01004"));
    }
}
