//! Explains errors in the log, if the operator has enabled this, and in the list of latest requests.

use super::telemetry::Observed;
use crate::error::Error;
use crate::protocol::codec::failure::ErrorContext;

/// The log target of explanations, which a log filter can select.
pub(crate) const EXPLANATIONS: &str = "rowhouse::explain";

/// Logs and records the exact reason of an error: the text that should have been signed, or the field that
/// failed. Signed texts contain entity keys, but no secrets.
pub(crate) fn explain_error(error: &Error, context: &ErrorContext<'_>, observed: &Observed) {
    if let Some(reason) = &error.reason {
        observed.record_reason(reason);
    }
    let facts = error.code.facts();
    tracing::info!(
        target: EXPLANATIONS,
        request_id = context.request_id,
        status = facts.status,
        code = facts.code,
        operation = error.index,
        why = error.reason_or_text(),
        "refused"
    );
}
