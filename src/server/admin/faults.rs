//! `/test/faults`: the faults that a test orders, in test mode only.

use serde_json::json;

use super::call::Call;
use super::reply::Outcome;
use super::reply::{Refusal, Reply};
use super::reset::account;
use crate::service::{FaultRuleDocument, FaultRuleError};

/// Lists the rules of the account that the query names, or all rules, with their counts.
///
/// # Errors
/// 404 for an unknown account.
pub(crate) fn list(call: &Call<'_>) -> Outcome {
    listed(call, account(call)?.as_deref())
}

/// Replaces the rules of the account that the query names, or all rules.
///
/// # Errors
/// 400 for an invalid list, which changes nothing; 404 for an unknown account.
pub(crate) fn set(call: &Call<'_>) -> Outcome {
    let account = account(call)?;
    let rules: Vec<FaultRuleDocument> = call.document()?;
    call.admin.service.set_fault_rules(account.as_deref(), rules)?;
    listed(call, account.as_deref())
}

/// Removes the rules of the account that the query names, or all rules.
///
/// # Errors
/// As [`list`].
pub(crate) fn clear(call: &Call<'_>) -> Outcome {
    let account = account(call)?;
    call.admin.service.fault_rules.clear(account.as_deref());
    listed(call, account.as_deref())
}

fn listed(call: &Call<'_>, account: Option<&str>) -> Outcome {
    Ok(Reply::json(200, &json!({ "rules": call.admin.service.fault_rules.list(account) })))
}

impl From<FaultRuleError> for Refusal {
    fn from(error: FaultRuleError) -> Self {
        Self::bad_request(error.to_string())
    }
}
