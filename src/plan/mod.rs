//! Meaning: what a well-formed request does to the data. Pure functions over
//! plain data; no I/O, no clock.

pub(crate) mod decide;
pub mod filter;
pub mod page;
pub mod predicate;
pub mod query;
pub(crate) mod room;
pub mod scan;
pub mod span;
pub mod write;

pub use decide::{Change, Write, WriteKind, Written, decide};
pub use predicate::{Field, Predicate};
pub use scan::{EntityPage, PageEnd, Projection, Scan, TableEntry, TablePage, TableScan};
pub use span::Span;

use std::time::Duration;

use crate::codec::policies::Policy;
use crate::codec::properties::{Layout, ServiceProperties};
use crate::error::{Code, Result};
use crate::model::{Key, TableName};
use crate::request::batch::{BatchPart, FailedPart};
use crate::request::{EntityWrite, Operation};

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
    GetPolicies(TableName),
    SetPolicies {
        table: TableName,
        policies: Vec<Policy>,
    },
    GetProperties(Layout),
    SetProperties(ServiceProperties),
    GetStats,
    /// To be refused, with an error that depends on whether the table exists, and on
    /// whether a set is queried below it.
    BelowTable {
        table: TableName,
        is_query: bool,
    },
}

impl Plan {
    /// Has a page end after this time at most.
    pub(crate) fn end_page_within(&mut self, most: Duration) {
        match self {
            Plan::ListTables(scan) => scan.time = scan.time.min(most),
            Plan::Query { scan, .. } => scan.time = scan.time.min(most),
            _ => {}
        }
    }
}

/// At least one write, to one partition of one table, done together.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangeSet {
    pub table: TableName,
    pub writes: Vec<Write>,
}

/// Plans an operation. The properties of a write move into its plan.
///
/// # Errors
/// Whatever is wrong with its names, keys, properties, filter or tokens.
pub fn plan(operation: &mut Operation) -> Result<Plan> {
    Ok(match operation {
        Operation::QueryTables(options) => Plan::ListTables(query::tables(options)?),
        // Where the service keeps its metrics; here there are none (protocol §3.1).
        Operation::GetTable { name } if name.starts_with("$Metrics") => {
            return Err(Code::ResourceNotFound.into());
        }
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
        Operation::GetPolicies { table } => Plan::GetPolicies(TableName::parse(table)?),
        Operation::SetPolicies { table, policies } => {
            Plan::SetPolicies { table: TableName::parse(table)?, policies: policies.clone() }
        }
        Operation::GetProperties(layout) => Plan::GetProperties(*layout),
        Operation::SetProperties(properties) => Plan::SetProperties(properties.clone()),
        Operation::GetStats => Plan::GetStats,
        Operation::BelowTable { table, is_query } => {
            Plan::BelowTable { table: TableName::parse(table)?, is_query: *is_query }
        }
    })
}

/// Plans a change set, into which the properties of its writes move; `None` for
/// one without operations, which succeeds without the store.
///
/// # Errors
/// The first operation's error with its index: one that is wrong among those
/// that were understood, else the one that was not.
pub fn change_set(
    parts: &mut [BatchPart<EntityWrite>],
    failure: Option<&FailedPart>,
) -> Result<Option<ChangeSet>> {
    let planned = write::transaction(parts.iter_mut().map(|part| &mut part.wanted))?;
    match failure {
        Some(failed) => Err(failed.error.clone()),
        None => Ok(planned),
    }
}
