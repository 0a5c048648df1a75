//! `/metrics`.

use super::call::Outcome;
use super::{Call, Reply};
use crate::observe::metrics::text;

/// Answers with all metrics as OpenMetrics text.
pub(crate) async fn metrics(_: &Call<'_>) -> Outcome {
    Ok(Reply::text(text::CONTENT_TYPE, text::print()))
}
