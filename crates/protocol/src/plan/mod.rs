//! Determines the effect of well-formed requests on the data, as pure functions over plain data; no I/O, no
//! clock.

pub(crate) mod decide;
pub mod filter;
pub mod guarded;
pub mod index;
mod order;
pub mod page;
pub mod predicate;
pub mod query;
pub mod scan;
pub mod span;
pub mod strategy;
pub mod write;

pub use decide::{Change, Write, WriteKind, Written, decide};
pub use guarded::{GuardedWrite, MergeLimits};
pub use predicate::{Field, Predicate};
pub use scan::{PageEnd, Projection, Scan, TableEntry, TablePage, TableScan};
pub use span::Span;
pub use write::ChangeSet;

use std::time::Duration;

use filter::Subject;

use crate::auth::Action;
use crate::codec::json::write::Select;
use crate::codec::policies::Policy;
use crate::codec::properties::{Layout, ServiceProperties};
use crate::error::{Code, Result};
use crate::model::names::check_read_key;
use crate::model::{IfMatch, IfNoneMatch, Key, TableName};
use crate::request::OperationLabel;
use crate::request::batch::FailedPart;
use crate::request::operation::PointOptions;
use crate::request::{EntityWrite, Operation, Prefer};

/// The work for the store, with everything that is needed to run it and to print its outcome. Names, keys and
/// properties have passed every check that needs no stored state.
#[derive(Debug, Clone)]
pub enum Plan {
    QueryTables {
        scan: TableScan,
        select: Option<Select>,
    },
    GetTable(TableName),
    CreateTable(TableName),
    DeleteTable(TableName),
    QueryEntities {
        table: TableName,
        scan: Scan,
        select: Option<Select>,
    },
    GetEntity {
        table: TableName,
        read: PointRead,
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
    /// An error that depends on whether the table exists, and on whether the request queries a set below the
    /// table.
    BelowTable {
        table: TableName,
        is_query: bool,
    },
}

/// A read of one entity.
#[derive(Debug, Clone)]
pub struct PointRead {
    pub key: Key,
    /// An entity that does not satisfy the filter is not found.
    pub filter: Option<Box<Predicate>>,
    /// The versions that the client already has.
    pub known: Option<IfNoneMatch>,
    pub select: Option<Select>,
}

impl Plan {
    /// Limits the time to read a page.
    pub fn end_page_within(&mut self, most: Duration) {
        match self {
            Plan::QueryTables { scan, .. } => scan.time = scan.time.min(most),
            Plan::QueryEntities { scan, .. } => scan.time = scan.time.min(most),
            _ => {}
        }
    }

    /// Limits the number of rows in a page.
    pub fn end_page_after(&mut self, most: usize) {
        match self {
            Plan::QueryTables { scan, .. } => scan.rows = scan.rows.min(most),
            Plan::QueryEntities { scan, .. } => scan.rows = scan.rows.min(most),
            _ => {}
        }
    }

    /// Returns the table and the scan of an entity query.
    pub const fn entities_scan(&mut self) -> Option<(&TableName, &mut Scan)> {
        match self {
            Plan::QueryEntities { table, scan, .. } => Some((table, scan)),
            _ => None,
        }
    }

    /// Returns the required permission, with its table and key.
    pub const fn action(&self) -> (Action, Option<&TableName>, Option<&Key>) {
        match self {
            Plan::QueryTables { .. } => (Action::ListTables, None, None),
            Plan::GetTable(table) => (Action::ListTables, Some(table), None),
            Plan::CreateTable(table) => (Action::CreateTable, Some(table), None),
            Plan::DeleteTable(table) => (Action::DeleteTable, Some(table), None),
            Plan::QueryEntities { table, .. } | Plan::BelowTable { table, .. } => {
                (Action::ReadEntities, Some(table), None)
            }
            Plan::GetEntity { table, read } => (Action::ReadEntities, Some(table), Some(&read.key)),
            Plan::Write { table, write } => (write.kind.action(), Some(table), Some(&write.key)),
            Plan::GetPolicies(table) => (Action::ReadPolicies, Some(table), None),
            Plan::SetPolicies { table, .. } => (Action::WritePolicies, Some(table), None),
            Plan::GetProperties(_) | Plan::GetStats => (Action::ReadService, None, None),
            Plan::SetProperties(_) => (Action::WriteService, None, None),
        }
    }

    /// Returns whether a successful response has a document of the table layer.
    pub const fn needs_body(&self, prefer: Option<Prefer>) -> bool {
        match self {
            Plan::QueryTables { .. }
            | Plan::GetTable(_)
            | Plan::QueryEntities { .. }
            | Plan::GetEntity { .. }
            | Plan::BelowTable { .. } => true,
            Plan::CreateTable(_) => wants_content(prefer),
            Plan::Write { write, .. } => write.needs_body(prefer),
            Plan::DeleteTable(_)
            | Plan::GetPolicies(_)
            | Plan::SetPolicies { .. }
            | Plan::GetProperties(_)
            | Plan::SetProperties(_)
            | Plan::GetStats => false,
        }
    }
}

impl WriteKind {
    /// Returns the required permission.
    pub const fn action(self) -> Action {
        match self {
            WriteKind::Insert => Action::InsertEntity,
            WriteKind::Replace(IfMatch::Absent) | WriteKind::Merge(IfMatch::Absent) => Action::UpsertEntity,
            WriteKind::Replace(_) | WriteKind::Merge(_) => Action::UpdateEntity,
            WriteKind::Delete(_) => Action::DeleteEntity,
        }
    }

    pub const fn label(self) -> OperationLabel {
        match self {
            WriteKind::Insert => OperationLabel::InsertEntity,
            WriteKind::Replace(IfMatch::Absent) => OperationLabel::InsertOrReplaceEntity,
            WriteKind::Replace(_) => OperationLabel::UpdateEntity,
            WriteKind::Merge(IfMatch::Absent) => OperationLabel::InsertOrMergeEntity,
            WriteKind::Merge(_) => OperationLabel::MergeEntity,
            WriteKind::Delete(_) => OperationLabel::DeleteEntity,
        }
    }
}

impl Write {
    /// Returns whether a successful response contains the entity.
    pub const fn needs_body(&self, prefer: Option<Prefer>) -> bool {
        matches!(self.kind, WriteKind::Insert) && wants_content(prefer)
    }
}

const fn wants_content(prefer: Option<Prefer>) -> bool {
    !matches!(prefer, Some(Prefer::NoContent))
}

/// Plans an operation.
///
/// # Errors
/// The first error among its names, keys, properties, filter and tokens.
pub fn plan(operation: Operation) -> Result<Plan> {
    Ok(match operation {
        Operation::QueryTables(options) => {
            Plan::QueryTables { scan: query::tables(&options)?, select: options.select }
        }
        Operation::GetTable { name } => Plan::GetTable(existing(&name, Code::ResourceNotFound)?),
        Operation::CreateTable { name } => Plan::CreateTable(TableName::parse(&name)?),
        // As seen in Azure, a table with an invalid name counts as missing.
        Operation::DeleteTable { name } => {
            Plan::DeleteTable(TableName::parse(&name).map_err(|_| Code::ResourceNotFound)?)
        }
        Operation::QueryEntities { table, partition, query } => {
            let scan = query::entities(&query, partition.as_deref())?;
            Plan::QueryEntities { table: existing(&table, Code::TableNotFound)?, scan, select: query.select }
        }
        Operation::GetEntity { table, key, options } => {
            check_read_key(&key.partition)?;
            check_read_key(&key.row)?;
            let PointOptions { select, filter, known } = options;
            let filter = filter.map(|expr| filter::predicate(&expr, Subject::Entities).map(Box::new));
            let read = PointRead { key, filter: filter.transpose()?, known, select };
            Plan::GetEntity { table: existing(&table, Code::TableNotFound)?, read }
        }
        Operation::Write(entity) => {
            let (table, write) = write::single(entity)?;
            Plan::Write { table, write }
        }
        Operation::GetPolicies { table } => Plan::GetPolicies(existing(&table, Code::TableNotFound)?),
        Operation::SetPolicies { table, policies } => {
            Plan::SetPolicies { table: TableName::parse(&table)?, policies }
        }
        Operation::GetProperties(layout) => Plan::GetProperties(layout),
        Operation::SetProperties(properties) => Plan::SetProperties(properties),
        Operation::GetStats => Plan::GetStats,
        Operation::BelowTable { table, is_query } => {
            Plan::BelowTable { table: TableName::parse(&table)?, is_query }
        }
    })
}

/// Returns the name of a table that must exist. Azure keeps its metrics in tables with otherwise invalid
/// names (protocol §3.1), which do not exist here.
fn existing(name: &str, missing: Code) -> Result<TableName> {
    if name.starts_with("$Metrics") { Err(missing.into()) } else { TableName::parse(name) }
}

/// Plans a change set. Returns `None` without operations; such a change set succeeds without the store.
///
/// # Errors
/// The error of the first invalid operation, with its index. Operations that were parsed take precedence over
/// the one that failed to parse.
pub fn change_set(writes: Vec<EntityWrite>, failure: Option<&FailedPart>) -> Result<Option<ChangeSet>> {
    let planned = write::transaction(writes)?;
    match failure {
        Some(failed) => Err(failed.error.clone()),
        None => Ok(planned),
    }
}
