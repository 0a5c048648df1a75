//! `/history`: the last hour of this server, with one point per ten seconds.

use std::time::Duration;

use crate::observe::metrics::METRICS;
use crate::server::admin::call::Call;
use crate::server::admin::history::STEP;
use crate::server::admin::reply::{Outcome, Reply};
use crate::server::admin::state::Admin;
use crate::store::Failure;

/// Returns the job that adds a point at the end of each step.
pub(crate) fn record() -> impl AsyncFnMut(&Admin) -> Result<Duration, Failure> + 'static {
    let mut has_begun = false;
    async move |admin: &Admin| {
        if std::mem::replace(&mut has_begun, true) {
            admin.history.step(METRICS.requests.totals());
        }
        Ok(STEP)
    }
}

/// Returns all points, the oldest first.
pub(crate) async fn history(call: &Call<'_>) -> Outcome {
    Ok(Reply::json(200, &call.admin.history.report()))
}
