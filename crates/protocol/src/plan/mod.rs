//! Determines the operation of a request and its effect on the data, as pure functions over plain data; no I/O,
//! no clock.

pub mod batch;
pub(crate) mod decide;
pub mod filter;
pub mod guarded;
pub mod index;
pub mod operation;
pub mod page;
pub mod predicate;
pub mod query;
mod request;
pub mod scan;
pub mod span;
pub mod strategy;
pub mod write;

pub use decide::{Change, Write, WriteKind, Written, decide};
pub use guarded::{GuardedWrite, MergeLimits};
pub use operation::Operation;
pub use predicate::{Field, Predicate};
pub use request::{Request, RequestKind, read};
pub use scan::{PageEnd, Projection, Scan, TableEntry, TablePage, TableScan};
pub use span::Span;
pub use write::{ChangeSet, WriteSet, change_set};

use std::time::Duration;

use crate::codec::json::write::Select;
use crate::codec::policies::Policy;
use crate::codec::properties::{Layout, ServiceProperties};
use crate::model::{IfMatch, IfNoneMatch, Key, TableName};
use crate::request::{OperationLabel, Prefer};

/// The work for the store, with everything that is needed to run it and to print its outcome. Names, keys and
/// properties have passed every check that can be made without the database.
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
    /// A request for a path below a table. It always fails; the error depends on whether the table exists, and
    /// on whether the request is a query of an entity set.
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
    /// The versions that the client already has, from If-None-Match.
    pub known: Option<IfNoneMatch>,
    pub select: Option<Select>,
}

impl Plan {
    /// Limits the time to read a page.
    pub fn limit_page_time(&mut self, max: Duration) {
        match self {
            Plan::QueryTables { scan, .. } => scan.time = scan.time.min(max),
            Plan::QueryEntities { scan, .. } => scan.time = scan.time.min(max),
            _ => {}
        }
    }

    /// Limits the number of rows in a page.
    pub fn limit_page_rows(&mut self, max: usize) {
        match self {
            Plan::QueryTables { scan, .. } => scan.rows = scan.rows.min(max),
            Plan::QueryEntities { scan, .. } => scan.rows = scan.rows.min(max),
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

    /// Returns the operation to authorize, with its table and key.
    pub const fn authorization_scope(&self) -> (OperationLabel, Option<&TableName>, Option<&Key>) {
        match self {
            Plan::QueryTables { .. } => (OperationLabel::QueryTables, None, None),
            Plan::GetTable(table) => (OperationLabel::QueryTables, Some(table), None),
            Plan::CreateTable(table) => (OperationLabel::CreateTable, Some(table), None),
            Plan::DeleteTable(table) => (OperationLabel::DeleteTable, Some(table), None),
            Plan::QueryEntities { table, .. } | Plan::BelowTable { table, .. } => {
                (OperationLabel::QueryEntities, Some(table), None)
            }
            Plan::GetEntity { table, read } => (OperationLabel::QueryEntities, Some(table), Some(&read.key)),
            Plan::Write { table, write } => (write.kind.label(), Some(table), Some(&write.key)),
            Plan::GetPolicies(table) => (OperationLabel::GetTableAcl, Some(table), None),
            Plan::SetPolicies { table, .. } => (OperationLabel::SetTableAcl, Some(table), None),
            Plan::GetProperties(_) | Plan::GetStats => (OperationLabel::GetServiceProperties, None, None),
            Plan::SetProperties(_) => (OperationLabel::SetServiceProperties, None, None),
        }
    }

    /// Returns the table of the operation to authorize.
    pub const fn table(&self) -> Option<&TableName> {
        self.authorization_scope().1
    }

    /// Returns whether a successful response has a JSON or Atom document.
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
    /// Returns the operation that performs the write alone.
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
