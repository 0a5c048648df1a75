//! Authorization: every plan, every write of a change set and every row of a query passes it before
//! it reaches the store.

use crate::error::{Code, Result};
use crate::protocol::auth::{Action, Identity, allows};
use crate::protocol::model::{Key, TableName};
use crate::protocol::plan::{ChangeSet, Plan, span};
use crate::protocol::request::Target;

/// Refuses what the identity may not do; narrows a query to the keys that it may read.
///
/// # Errors
/// Those of [`allows`], and [`Code::WriteOnSecondary`].
pub(crate) fn authorize(identity: &Identity, target: &Target, plan: Plan) -> Result<Plan> {
    let (action, table, key) = plan.action();
    check(identity, target, action, table, key)?;
    Ok(narrow(identity, plan))
}

/// Refuses a change set if the identity may not do one of its writes.
///
/// # Errors
/// As [`authorize`], with the index of the operation.
pub(crate) fn authorize_change_set(
    identity: &Identity,
    target: &Target,
    set: ChangeSet,
) -> Result<ChangeSet> {
    for (index, write) in set.writes.iter().enumerate() {
        let checked = check(identity, target, write.kind.action(), Some(&set.table), Some(&write.key));
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

/// The key range of a SAS becomes part of the spans, and so of the statement's WHERE clause.
fn narrow(identity: &Identity, plan: Plan) -> Plan {
    match (plan, identity.range()) {
        (Plan::QueryEntities { table, mut scan, select }, Some(range)) => {
            scan.spans = span::within(scan.spans, &range.lower, range.upper.as_ref());
            Plan::QueryEntities { table, scan, select }
        }
        (plan, _) => plan,
    }
}
