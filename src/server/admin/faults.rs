//! `/test/faults`: injects faults for tests, in test mode only.

use schemars::JsonSchema;
use serde::Serialize;

use super::call::Call;
use super::reply::Outcome;
use super::reply::{Refusal, Reply};
use crate::service::FaultRuleCount;

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "FaultRules")]
pub(super) struct FaultRuleList {
    rules: Vec<FaultRuleCount>,
}

/// Lists the rules with their counts.
///
/// # Errors
/// 400 for a parameter, because there are none.
pub(crate) fn list(call: &Call<'_>) -> Outcome {
    if call.query.is_empty() {
        return Ok(Reply::json(200, &FaultRuleList { rules: call.admin.service.fault_rules.list() }));
    }
    Err(Refusal::bad_request("/test/faults has no parameters: its rules are those of the server"))
}

/// Replaces the rules.
///
/// # Errors
/// Those of [`list`], and 400 for an invalid list, which changes nothing.
pub(crate) fn set(call: &Call<'_>) -> Outcome {
    list(call)?;
    call.admin.service.fault_rules.replace(call.document()?).map_err(Refusal::bad_request)?;
    list(call)
}

/// Removes the rules.
pub(crate) fn clear(call: &Call<'_>) -> Outcome {
    list(call)?;
    call.admin.service.fault_rules.clear();
    list(call)
}
