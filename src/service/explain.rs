//! Refusals explained in the logs, for whoever asks for that.

use crate::codec::failure::ErrorContext;
use crate::error::Error;

/// The target of the messages, by which they are switched on and off.
pub(crate) const EXPLANATIONS: &str = "rowhouse::explain";

/// Says why exactly a request is refused: which text should have been signed,
/// which field failed. Texts that are signed hold keys of entities, but nothing
/// that is secret.
pub(crate) fn explain(error: &Error, context: &ErrorContext<'_>) {
    let facts = error.code.facts();
    tracing::info!(
        target: EXPLANATIONS,
        request_id = context.request_id,
        status = facts.status,
        code = facts.code,
        operation = error.index,
        why = error.why.as_deref().unwrap_or(error.text()),
        "refused"
    );
}
