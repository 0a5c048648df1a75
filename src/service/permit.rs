//! Every plan, every write of a change set and every row of a query passes
//! here before the store sees it.

use crate::auth::{Action, Identity, allows};
use crate::error::{Code, Result};
use crate::model::{IfMatch, Key, TableName};
use crate::plan::{ChangeSet, Plan, WriteKind, span};
use crate::request::Target;

/// Refuses what the identity may not do; narrows a query to the keys that it
/// may see.
///
/// # Errors
/// Those of [`allows`], and [`Code::WriteOnSecondary`].
pub(crate) fn permit(identity: &Identity, target: &Target, plan: Plan) -> Result<Plan> {
    let check = |action, table, key| check(identity, target, action, table, key);
    match &plan {
        Plan::ListTables(_) => check(Action::ListTables, None, None)?,
        Plan::GetTable(table) => check(Action::ListTables, Some(table), None)?,
        Plan::CreateTable(table) => check(Action::CreateTable, Some(table), None)?,
        Plan::DeleteTable(table) => check(Action::DeleteTable, Some(table), None)?,
        Plan::Query { table, .. } | Plan::BelowTable { table, .. } => {
            check(Action::ReadEntities, Some(table), None)?;
        }
        Plan::Get { table, key } => check(Action::ReadEntities, Some(table), Some(key))?,
        Plan::Write { table, write } => check(action(write.kind), Some(table), Some(&write.key))?,
        Plan::GetPolicies(table) => check(Action::ReadPolicies, Some(table), None)?,
        Plan::SetPolicies { table, .. } => check(Action::WritePolicies, Some(table), None)?,
        Plan::GetProperties(_) | Plan::GetStats => check(Action::ReadService, None, None)?,
        Plan::SetProperties(_) => check(Action::WriteService, None, None)?,
    }
    Ok(narrow(identity, plan))
}

/// Refuses a change set of which the identity may not do every write.
///
/// # Errors
/// As [`permit`], with the index of the operation.
pub(crate) fn permit_change_set(identity: &Identity, target: &Target, set: ChangeSet) -> Result<ChangeSet> {
    for (index, write) in set.writes.iter().enumerate() {
        let checked = check(identity, target, action(write.kind), Some(&set.table), Some(&write.key));
        checked.map_err(|error| error.at(index))?;
    }
    Ok(set)
}

fn check(
    identity: &Identity,
    target: &Target,
    action: Action,
    table: Option<&TableName>,
    key: Option<&Key>,
) -> Result<()> {
    if target.secondary && !action.is_read() {
        return Err(Code::WriteOnSecondary.into());
    }
    allows(identity, action, table, key)
}

const fn action(kind: WriteKind) -> Action {
    match kind {
        WriteKind::Insert => Action::InsertEntity,
        WriteKind::Replace(IfMatch::Absent) | WriteKind::Merge(IfMatch::Absent) => Action::UpsertEntity,
        WriteKind::Replace(_) | WriteKind::Merge(_) => Action::UpdateEntity,
        WriteKind::Delete(_) => Action::DeleteEntity,
    }
}

/// The range of a signature becomes part of the spans, and with them of the
/// statement's WHERE clause.
fn narrow(identity: &Identity, plan: Plan) -> Plan {
    match (plan, identity.range()) {
        (Plan::Query { table, mut scan }, Some(range)) => {
            scan.spans = span::within(scan.spans, &range.lower, range.upper.as_ref());
            Plan::Query { table, scan }
        }
        (plan, _) => plan,
    }
}
