//! Meaning: what a well-formed request does to the data. Pure functions over
//! plain data; no I/O, no clock.

pub mod decide;
pub mod filter;
pub mod page;
pub mod predicate;
pub mod query;
pub mod scan;
pub mod span;
pub mod write;

pub use decide::{Change, Write, WriteKind, Written, decide};
pub use predicate::{Field, Predicate};
pub use scan::{EntityPage, Projection, Scan, TableEntry, TablePage, TableScan};
pub use span::Span;

use crate::codec::policies::Policy;
use crate::codec::properties::Properties;
use crate::error::{Error, Result};
use crate::model::{Key, TableName};
use crate::request::Operation;
use crate::request::batch::{Batch, FailedPart};

/// What the store is to do. Names, keys and properties have passed every check
/// that needs no stored state.
#[derive(Debug, Clone)]
pub enum Plan {
    ListTables(TableScan),
    GetTable(TableName),
    CreateTable(TableName),
    DeleteTable(TableName),
    Query {
        table: TableName,
        scan: Scan,
    },
    Get {
        table: TableName,
        key: Key,
    },
    Write {
        table: TableName,
        write: Write,
    },
    /// At least one write; an empty change set needs no store.
    Transact {
        table: TableName,
        writes: Vec<Write>,
    },
    /// The empty change set.
    Nothing,
    GetPolicies(TableName),
    SetPolicies {
        table: TableName,
        policies: Vec<Policy>,
    },
    GetProperties,
    SetProperties(Properties),
    GetStats,
    /// To be refused, with an error that depends on whether the table exists.
    BelowTable(TableName),
}

/// Plans an operation.
///
/// # Errors
/// Whatever is wrong with its names, keys, properties, filter or tokens; in a
/// change set with the index of the first operation that is wrong.
pub fn plan(operation: &Operation) -> Result<Plan> {
    Ok(match operation {
        Operation::QueryTables(options) => Plan::ListTables(query::tables(options)?),
        Operation::GetTable { name } => Plan::GetTable(TableName::parse(name)?),
        Operation::CreateTable { name } => Plan::CreateTable(TableName::parse(name)?),
        Operation::DeleteTable { name } => Plan::DeleteTable(TableName::parse(name)?),
        Operation::QueryEntities { table, partition, query } => {
            let scan = query::entities(query, partition.as_deref())?;
            Plan::Query { table: TableName::parse(table)?, scan }
        }
        Operation::GetEntity { table, key, .. } => {
            crate::model::names::check_url_key(&key.partition)?;
            crate::model::names::check_url_key(&key.row)?;
            Plan::Get { table: TableName::parse(table)?, key: key.clone() }
        }
        Operation::Write(entity) => {
            let (table, write) = write::single(entity)?;
            Plan::Write { table, write }
        }
        Operation::Batch(batch) => plan_batch(batch)?,
        Operation::GetPolicies { table } => Plan::GetPolicies(TableName::parse(table)?),
        Operation::SetPolicies { table, policies } => {
            Plan::SetPolicies { table: TableName::parse(table)?, policies: policies.clone() }
        }
        Operation::GetProperties => Plan::GetProperties,
        Operation::SetProperties(properties) => Plan::SetProperties(properties.clone()),
        Operation::GetStats => Plan::GetStats,
        Operation::BelowTable { table } => Plan::BelowTable(TableName::parse(table)?),
    })
}

fn plan_batch(batch: &Batch) -> Result<Plan> {
    match batch {
        Batch::ChangeSet { parts, failure } => {
            let entities = parts.iter().filter_map(|part| match &part.operation {
                Operation::Write(entity) => Some(entity),
                _ => None,
            });
            let transaction = write::transaction(entities)?;
            match (failure, transaction) {
                (Some(failed), _) => Err(failed.error.clone()),
                (None, None) => Ok(Plan::Nothing),
                (None, Some((table, writes))) => Ok(Plan::Transact { table, writes }),
            }
        }
        Batch::Query(part) => match &**part {
            Ok(part) => plan(&part.operation).map_err(|error| error.at(0)),
            Err(FailedPart { error, .. }) => Err(Error { index: Some(0), ..error.clone() }),
        },
    }
}
