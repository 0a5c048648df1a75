//! Authorization: checks every plan, every write of a change set and every row of a query before it reaches
//! the store.

use crate::error::{Code, Error, Result};
use crate::protocol::auth::{Action, Identity, allows};
use crate::protocol::model::{Key, TableName};
use crate::protocol::plan::{ChangeSet, Plan, span};
use crate::protocol::request::Target;

/// Refuses actions that the identity is not permitted, and narrows a query to the keys that it may read.
///
/// # Errors
/// Those of [`allows`]; [`Code::WriteOnSecondary`]; [`Code::NotImplemented`] for an order by a property
/// within a range of keys.
pub(crate) fn authorize(identity: &Identity, target: &Target, plan: Plan) -> Result<Plan> {
    let (action, table, key) = plan.action();
    check(identity, target, action, table, key)?;
    narrow(identity, plan)
}

/// Refuses a change set if the identity has no permission for one of its writes.
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

/// Adds the key range of a SAS to the spans, and so to the statement's WHERE clause. An order by a property
/// reads the index of the whole table, so its continuation tokens would reveal keys and values of entities
/// outside the range.
fn narrow(identity: &Identity, plan: Plan) -> Result<Plan> {
    match (plan, identity.range()) {
        (Plan::QueryEntities { scan, .. }, Some(range)) if scan.by.is_some() && !range.is_everything() => {
            let reason = "a SAS with a range of keys has the order of keys alone";
            Err(Error::from(Code::NotImplemented).with_reason(reason))
        }
        (Plan::QueryEntities { table, mut scan, select }, Some(range)) => {
            scan.spans = span::within(scan.spans, &range.lower, range.upper.as_ref());
            Ok(Plan::QueryEntities { table, scan, select })
        }
        (plan, _) => Ok(plan),
    }
}
