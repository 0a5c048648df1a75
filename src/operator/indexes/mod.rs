//! Property indexes as operators handle them, by command or over the admin listener, and as servers know
//! them.

mod catalog;

use serde_json::{Value, json};

pub(crate) use catalog::IndexCatalog;

use crate::error::Code;
use crate::protocol::codec::stored;
use crate::protocol::model::names::check_property_name;
use crate::protocol::model::{EdmType, TableName, Ticks};
use crate::protocol::plan::index::IndexKind;
use crate::protocol::plan::scan::{MAX_BYTES, MAX_TIME};
use crate::protocol::plan::{Projection, Scan, Span};
use crate::store::{
    AddedIndex, Failure, Fault, IndexFigures, IndexState, MAX_INDEXES, MAX_TABLE_INDEXES, Store, StoredIndex,
};

/// Entities that are read to find the type of a property.
const SAMPLE: usize = 1000;

/// Why an index was not made or dropped, for the operator who asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IndexError {
    #[error("the table name {0:?} is not valid")]
    TableName(String),
    #[error("there is no table {0} in the account {1}")]
    NoTable(String, String),
    #[error("the property name {0:?} is not valid")]
    Property(String),
    #[error("{0} needs no index: the database already has the entities in the order of their keys")]
    Key(String),
    #[error("Timestamp cannot have an index: only properties of entities can")]
    Timestamp,
    #[error("none of the first {SAMPLE} entities has the property {0}: give the kind of the index")]
    NoKind(String),
    #[error("the values of {0} have several types, or one without indexes: give the kind of the index")]
    SeveralKinds(String),
    #[error("there is an index of this kind for the property already")]
    Exists,
    #[error("a table can have {MAX_TABLE_INDEXES} indexes, a database {MAX_INDEXES}: drop one first")]
    TooMany,
    #[error(
        "the spread of the table is being changed: make the index when `rowhouse table respread` is done"
    )]
    Respread,
    #[error("there is no such index")]
    Unknown,
    #[error("there are indexes of several kinds for this property: give the kind")]
    Ambiguous,
    #[error("the database failed ({0:?})")]
    Store(Fault),
}

impl From<Failure> for IndexError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Fault(fault) => IndexError::Store(fault),
            Failure::Refused(_) => IndexError::Store(Fault::Other),
        }
    }
}

/// The property of a table that an index is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndexPlace<'a> {
    pub account: &'a str,
    pub table: &'a str,
    pub property: &'a str,
    /// `None`: the kind of the values that the property has.
    pub kind: Option<IndexKind>,
}

/// Adds an index, which is then to be built, and returns it.
///
/// # Errors
/// [`IndexError`] for invalid names, an unknown table, an index that exists, and too many indexes.
pub(crate) async fn add(store: &Store, place: IndexPlace<'_>, now: Ticks) -> Result<StoredIndex, IndexError> {
    let IndexPlace { account, table, property, kind } = place;
    let name = TableName::parse(table).map_err(|_| IndexError::TableName(table.to_owned()))?;
    check_property(property)?;
    let missing = |failure| match failure {
        Failure::Refused(error) if error.code == Code::TableNotFound => {
            IndexError::NoTable(table.to_owned(), account.to_owned())
        }
        other => other.into(),
    };
    let kind = match kind {
        Some(kind) => kind,
        None => kind_of(&sample(store, account, &name).await.map_err(missing)?, property)?,
    };
    match store.add_index(name.in_account(account), property, kind, now).await.map_err(missing)? {
        AddedIndex::Added(index_no) => find_by_number(store, index_no).await,
        AddedIndex::Exists => Err(IndexError::Exists),
        AddedIndex::TooMany => Err(IndexError::TooMany),
        AddedIndex::Respread => Err(IndexError::Respread),
    }
}

fn check_property(property: &str) -> Result<(), IndexError> {
    match property {
        "PartitionKey" | "RowKey" => Err(IndexError::Key(property.to_owned())),
        "Timestamp" => Err(IndexError::Timestamp),
        other => check_property_name(other).map_err(|_| IndexError::Property(other.to_owned())),
    }
}

async fn sample(
    store: &Store,
    account: &str,
    table: &TableName,
) -> Result<Vec<crate::protocol::model::Stored>, Failure> {
    let scan = Scan {
        spans: vec![Span::everything()],
        residual: None,
        rows: SAMPLE,
        bytes: MAX_BYTES,
        time: MAX_TIME,
        projection: Projection::Full,
        indexed: Vec::new(),
    };
    Ok(store.page(table.in_account(account), &scan, Vec::new()).await?.0)
}

/// The kind of index for the values that a property has.
fn kind_of(entities: &[crate::protocol::model::Stored], property: &str) -> Result<IndexKind, IndexError> {
    let mut kinds: Vec<Option<IndexKind>> = Vec::new();
    for entity in entities {
        let fields = stored::fields(entity.properties.as_str()).unwrap_or_default();
        let found = fields.iter().find(|field| field.name == property);
        kinds.extend(found.map(|field| kind_of_type(field.edm_type)));
    }
    kinds.sort_unstable();
    kinds.dedup();
    match kinds[..] {
        [] => Err(IndexError::NoKind(property.to_owned())),
        [Some(kind)] => Ok(kind),
        _ => Err(IndexError::SeveralKinds(property.to_owned())),
    }
}

const fn kind_of_type(edm_type: EdmType) -> Option<IndexKind> {
    match edm_type {
        EdmType::String => Some(IndexKind::Text),
        EdmType::Int32 | EdmType::Int64 | EdmType::Double => Some(IndexKind::Number),
        EdmType::DateTime => Some(IndexKind::Time),
        EdmType::Guid => Some(IndexKind::Guid),
        EdmType::Boolean => Some(IndexKind::Boolean),
        EdmType::Binary => None,
    }
}

/// Lists the indexes, of one account or of all, with what the database tells about each.
///
/// # Errors
/// [`IndexError::Store`].
pub(crate) async fn list(
    store: &Store,
    account: Option<&str>,
    table: Option<&str>,
) -> Result<Vec<(StoredIndex, IndexFigures)>, IndexError> {
    let table = table.map(str::to_ascii_lowercase);
    let is_wanted = |stored: &StoredIndex| {
        account.is_none_or(|account| stored.account == account)
            && table.as_ref().is_none_or(|table| stored.table == *table)
    };
    let mut found = Vec::new();
    for stored in store.indexes().await?.into_iter().filter(is_wanted) {
        let figures = store.index_figures(&stored.index).await?;
        found.push((stored, figures));
    }
    Ok(found)
}

/// Finds an index by its number.
///
/// # Errors
/// [`IndexError::Unknown`].
pub(crate) async fn find_by_number(store: &Store, index_no: i64) -> Result<StoredIndex, IndexError> {
    let found = store.indexes().await?.into_iter().find(|stored| stored.index.index_no == index_no);
    found.ok_or(IndexError::Unknown)
}

/// Finds the index of a property.
///
/// # Errors
/// [`IndexError::Unknown`] without one, [`IndexError::Ambiguous`] if there are several kinds.
pub(crate) async fn find(store: &Store, place: IndexPlace<'_>) -> Result<StoredIndex, IndexError> {
    let table = place.table.to_ascii_lowercase();
    let mut found: Vec<StoredIndex> = store.indexes().await?;
    found.retain(|stored| {
        stored.account == place.account
            && stored.table == table
            && stored.index.property == place.property
            && place.kind.is_none_or(|kind| stored.index.kind == kind)
    });
    match found.len() {
        0 => Err(IndexError::Unknown),
        1 => found.pop().ok_or(IndexError::Unknown),
        _ => Err(IndexError::Ambiguous),
    }
}

/// Stops the use of an index by servers, and cancels its build. It is removed from the database later.
///
/// # Errors
/// [`IndexError::Unknown`].
pub(crate) async fn drop(store: &Store, index_no: i64, now: Ticks) -> Result<(), IndexError> {
    match store.drop_index(index_no, now).await? {
        true => Ok(()),
        false => Err(IndexError::Unknown),
    }
}

/// An index as operators see it.
pub(crate) fn shown(stored: &StoredIndex, figures: IndexFigures) -> Value {
    let StoredIndex { account, table, index, state, changed } = stored;
    let state = match state {
        IndexState::Building => "building",
        IndexState::Ready => "ready",
    };
    json!({
        "id": index.index_no,
        "account": account,
        "table": table,
        "property": index.property,
        "kind": index.kind.name(),
        "state": state,
        "since": changed.to_canonical(),
        "bytes": figures.bytes,
        "uses": figures.uses,
        "progress": figures.progress,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::{EdmValue, Key, Stored};

    fn entity(properties: &[(&str, EdmValue)]) -> Stored {
        Stored { key: Key::new("p", "r"), modified: Ticks::MIN, properties: stored::encode(properties) }
    }

    #[test]
    fn the_kind_is_that_of_the_values() {
        let (number, text) = (EdmValue::Int32(1), EdmValue::String("a".into()));
        let (long, binary) = (EdmValue::Int64(1), EdmValue::Binary(vec![1]));
        for (values, kind) in [
            (vec![number.clone(), long], Ok(IndexKind::Number)),
            (vec![text.clone()], Ok(IndexKind::Text)),
            (vec![], Err(IndexError::NoKind("A".into()))),
            (vec![number, text], Err(IndexError::SeveralKinds("A".into()))),
            (vec![binary], Err(IndexError::SeveralKinds("A".into()))),
        ] {
            let mut entities = vec![entity(&[("B", EdmValue::Boolean(true))])];
            entities.extend(values.into_iter().map(|value| entity(&[("A", value)])));
            assert_eq!(kind_of(&entities, "A"), kind);
        }
    }

    #[test]
    fn only_properties_of_entities_have_indexes() {
        assert_eq!(check_property("Age"), Ok(()));
        assert_eq!(check_property("RowKey"), Err(IndexError::Key("RowKey".into())));
        assert_eq!(check_property("Timestamp"), Err(IndexError::Timestamp));
        for hostile in ["", "a'b", "a b", "a\"b", "a\u{0}", &"n".repeat(256)] {
            assert_eq!(check_property(hostile), Err(IndexError::Property(hostile.to_owned())));
        }
    }
}
