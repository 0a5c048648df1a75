//! Property indexes: the operations of operators, and the catalogue that servers use.

mod catalog;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use catalog::IndexCatalog;

use super::OperatorError;
use super::durations::Time;
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::protocol::codec::stored;
use crate::protocol::error::Code;
use crate::protocol::model::names::check_property_name;
use crate::protocol::model::{EdmType, Stored, TableName, Ticks};
use crate::protocol::plan::index::{IndexKind, TIMESTAMP};
use crate::protocol::plan::{Scan, Span};
use crate::store::{AddIndexOutcome, Failure, IndexFigures, IndexState, NewIndex, Store, StoredIndex};

/// Maximum number of entities to read to determine the type of a property.
const SAMPLE_ENTITIES: usize = 1000;
const RESPREAD: &str = "the number of buckets of the table is being changed: create the index when \
     `rowhouse table respread` is done";

/// The property of a table that an index is for.
#[derive(Debug, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename = "NewIndex")]
#[schemars(inline)]
pub struct IndexRequest {
    /// The table
    pub table: String,
    /// The property, spelled as in the entities
    pub property: String,
    /// The account of the table
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    pub account: String,
    /// Kind of the index: text, number, time, guid, boolean or timestamp [default: the kind of the values in
    /// the first entities]
    #[arg(long, value_parser = known_kind)]
    #[schemars(extend("enum" = IndexKind::ALL.map(IndexKind::name)))]
    kind: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Index")]
pub struct IndexReport {
    id: i64,
    pub account: String,
    /// In lower case.
    pub table: String,
    pub property: String,
    #[schemars(extend("enum" = IndexKind::ALL.map(IndexKind::name)))]
    pub kind: &'static str,
    #[schemars(with = "String", extend("enum" = ["building", "ready"]))]
    pub state: IndexState,
    /// The time at which the index got into this state.
    pub since: Time,
    /// Its size in the database.
    pub bytes: Option<u64>,
    /// The number of reads: on PostgreSQL since its statistics began, on SQLite by this server.
    pub uses: Option<u64>,
    /// The part that is built, from 0 to 1; null on SQLite.
    pub progress: Option<f64>,
}

impl IndexReport {
    pub fn new(stored: &StoredIndex, figures: IndexFigures) -> Self {
        let StoredIndex { account, table, index, state, changed } = stored;
        Self {
            id: index.index_no,
            account: account.clone(),
            table: table.clone(),
            property: index.property.clone(),
            kind: index.kind.name(),
            state: *state,
            since: Time(*changed),
            bytes: figures.bytes,
            uses: figures.uses,
            progress: figures.progress,
        }
    }
}

fn known_kind(text: &str) -> Result<String, &'static str> {
    text.parse::<IndexKind>().map(|kind| kind.name().to_owned())
}

impl IndexRequest {
    /// The kind of the index; `None` means the kind of the values.
    fn requested_kind(&self) -> Result<Option<IndexKind>, OperatorError> {
        let kind = self.kind.as_deref().map(str::parse::<IndexKind>).transpose();
        kind.map_err(|error| OperatorError::Argument(format!("kind: {error}")))
    }
}

/// Adds an index that has yet to be built, and returns it.
pub async fn add(store: &Store, request: &IndexRequest, now: Ticks) -> Result<StoredIndex, OperatorError> {
    let IndexRequest { account, table, property, .. } = request;
    let name = TableName::parse(table)
        .map_err(|_| OperatorError::Argument(format!("the table name {table:?} is not valid")))?;
    check_property(property)?;
    let kind = resolve_kind(store, request, &name).await?;
    let index = NewIndex { table: name.in_account(account), property, kind };
    match store.add_index(index, now).await.map_err(|failure| missing_table(request, failure))? {
        AddIndexOutcome::Added(index_no) => find_by_number(store, index_no).await,
        AddIndexOutcome::Exists => Err(OperatorError::IndexExists),
        AddIndexOutcome::TooMany => Err(OperatorError::TooManyIndexes),
        AddIndexOutcome::Respread => Err(OperatorError::Argument(RESPREAD.to_owned())),
    }
}

fn check_property(property: &str) -> Result<(), OperatorError> {
    let wrong = match property {
        "PartitionKey" | "RowKey" => format!(
            "{property} needs no index: the database already has the entities in the order of their keys"
        ),
        other if check_property_name(other).is_err() => format!("the property name {other:?} is not valid"),
        _ => return Ok(()),
    };
    Err(OperatorError::Argument(wrong))
}

/// Returns the requested kind or, by default, the kind of the values. Timestamp has its own kind.
async fn resolve_kind(
    store: &Store,
    request: &IndexRequest,
    table: &TableName,
) -> Result<IndexKind, OperatorError> {
    match (request.requested_kind()?, request.property == TIMESTAMP) {
        (None | Some(IndexKind::Timestamp), true) => Ok(IndexKind::Timestamp),
        (Some(IndexKind::Timestamp), false) => {
            Err(OperatorError::Argument("the kind timestamp is only for an index over Timestamp".to_owned()))
        }
        (Some(_), true) => {
            Err(OperatorError::Argument("an index over Timestamp has the kind timestamp".to_owned()))
        }
        (Some(kind), false) => Ok(kind),
        (None, false) => {
            let sampled = sample(store, &request.account, table).await;
            kind_of_values(&sampled.map_err(|failure| missing_table(request, failure))?, &request.property)
        }
    }
}

fn missing_table(request: &IndexRequest, failure: Failure) -> OperatorError {
    match failure {
        Failure::Refused(error) if error.code == Code::TableNotFound => {
            OperatorError::TableNotInAccount(request.table.clone(), request.account.clone())
        }
        other => other.into(),
    }
}

async fn sample(store: &Store, account: &str, table: &TableName) -> Result<Vec<Stored>, Failure> {
    let scan = Scan { rows: SAMPLE_ENTITIES, ..Scan::of_spans(vec![Span::everything()]) };
    Ok(store.page(table.in_account(account), &scan, Vec::new()).await?.0)
}

fn kind_of_values(entities: &[Stored], property: &str) -> Result<IndexKind, OperatorError> {
    let mut kinds: Vec<Option<IndexKind>> = Vec::new();
    for entity in entities {
        let fields = stored::fields(entity.properties.as_str()).unwrap_or_default();
        let found = fields.iter().find(|field| field.name == property);
        kinds.extend(found.map(|field| kind_of_type(field.edm_type)));
    }
    kinds.sort_unstable();
    kinds.dedup();
    let wrong = match kinds[..] {
        [] => format!(
            "none of the first {SAMPLE_ENTITIES} entities has the property {property}: give the kind of the index"
        ),
        [Some(kind)] => return Ok(kind),
        _ => format!(
            "the values of {property} have several types, or a type without indexes: give the kind of the \
             index"
        ),
    };
    Err(OperatorError::Argument(wrong))
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

/// Lists the indexes of one account or of all accounts, with their sizes and uses.
pub async fn list(
    store: &Store,
    account: Option<&str>,
    table: Option<&str>,
) -> Result<Vec<IndexReport>, OperatorError> {
    let is_wanted = |stored: &StoredIndex| {
        account.is_none_or(|account| stored.account == account)
            && table.is_none_or(|table| stored.table.eq_ignore_ascii_case(table))
    };
    let mut found = Vec::new();
    for stored in store.indexes().await?.into_iter().filter(is_wanted) {
        let figures = store.index_figures(&stored.index).await?;
        found.push(IndexReport::new(&stored, figures));
    }
    Ok(found)
}

pub async fn find_by_number(store: &Store, index_no: i64) -> Result<StoredIndex, OperatorError> {
    let found = store.indexes().await?.into_iter().find(|stored| stored.index.index_no == index_no);
    found.ok_or(OperatorError::IndexNotFound)
}

pub async fn find(store: &Store, request: &IndexRequest) -> Result<StoredIndex, OperatorError> {
    let kind = request.requested_kind()?;
    let mut found: Vec<StoredIndex> = store.indexes().await?;
    found.retain(|stored| {
        stored.account == request.account
            && stored.table.eq_ignore_ascii_case(&request.table)
            && stored.index.property == request.property
            && kind.is_none_or(|kind| stored.index.kind == kind)
    });
    match found.len() {
        0 => Err(OperatorError::IndexNotFound),
        1 => found.pop().ok_or(OperatorError::IndexNotFound),
        _ => Err(OperatorError::Argument(
            "the property has indexes of several kinds: give the kind".to_owned(),
        )),
    }
}

/// Stops the use of an index by servers, and cancels its build. It is removed from the database later.
pub async fn drop_index(store: &Store, index_no: i64, now: Ticks) -> Result<(), OperatorError> {
    match store.drop_index(index_no, now).await? {
        true => Ok(()),
        false => Err(OperatorError::IndexNotFound),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::{EdmValue, Key};

    fn entity(properties: &[(&str, EdmValue)]) -> Stored {
        Stored { key: Key::new("p", "r"), modified: Ticks::MIN, properties: stored::encode(properties) }
    }

    const SEVERAL: &str =
        "the values of A have several types, or a type without indexes: give the kind of the index";

    #[test]
    fn the_kind_is_that_of_the_values() {
        let (number, text) = (EdmValue::Int32(1), EdmValue::String("a".into()));
        let (long, binary) = (EdmValue::Int64(1), EdmValue::Binary(vec![1]));
        for (values, kind) in [
            (vec![number.clone(), long], Ok(IndexKind::Number)),
            (vec![text.clone()], Ok(IndexKind::Text)),
            (vec![], Err("none of the first 1000 entities has the property A: give the kind of the index")),
            (vec![number, text], Err(SEVERAL)),
            (vec![binary], Err(SEVERAL)),
        ] {
            let mut entities = vec![entity(&[("B", EdmValue::Boolean(true))])];
            entities.extend(values.into_iter().map(|value| entity(&[("A", value)])));
            assert_eq!(
                kind_of_values(&entities, "A"),
                kind.map_err(|text| OperatorError::Argument(text.into()))
            );
        }
    }

    #[test]
    fn only_properties_of_entities_have_indexes() {
        assert_eq!(check_property("Age"), Ok(()));
        let wrong = |property| check_property(property).unwrap_err().to_string();
        let expected =
            "RowKey needs no index: the database already has the entities in the order of their keys";
        assert_eq!(wrong("RowKey"), expected);
        assert_eq!(check_property("Timestamp"), Ok(()));
        for hostile in ["", "a'b", "a b", "a\"b", "a\u{0}", &"n".repeat(256)] {
            assert_eq!(wrong(hostile), format!("the property name {hostile:?} is not valid"));
        }
    }
}
