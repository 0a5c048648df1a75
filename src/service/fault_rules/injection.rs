//! The faults that rules inject into one request, and how they take effect.

use std::future::Future;
use std::time::Duration;

use super::rule::{FaultRule, Moment};
use crate::error::{Code, Error};
use crate::protocol::plan::Plan;
use crate::service::Answer;

/// The exact reason of an injected error, for the log and the console.
const REASON: &str = "a rule of /test/faults ordered it";

/// The faults that rules inject into one request.
#[derive(Debug, Default)]
pub(crate) struct Injection {
    delay: Duration,
    page: Option<usize>,
    error: Option<Error>,
    disconnect: Option<Moment>,
}

impl Injection {
    /// Adds the fault of a rule, for the operation at `index` of a batch, or otherwise for the request.
    pub(super) fn add(&mut self, rule: &FaultRule, index: Option<usize>) {
        self.delay += Duration::from_millis(rule.delay.unwrap_or_default());
        self.page = self.page.into_iter().chain(rule.page).min();
        self.disconnect = rule.disconnect;
        self.error = rule.code().map(|code| {
            let index = index.filter(|_| !ends_batch(code));
            Error { index, ..Error::from(code).with_reason(REASON) }
        });
    }

    /// Returns whether this fault ends the request, so that no other fault can follow.
    pub(super) const fn end_request(&self) -> bool {
        self.error.is_some() || self.disconnect.is_some()
    }

    /// Shortens the page that a plan reads.
    pub(crate) fn shorten_page(&self, plan: &mut Plan) {
        if let Some(rows) = self.page {
            plan.end_page_after(rows);
        }
    }

    /// Runs a future with the injected faults.
    pub(crate) async fn around<E: From<Error>>(
        self,
        work: impl Future<Output = Result<Answer, E>>,
    ) -> Result<Answer, E> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if let Some(error) = self.error {
            return Err(error.into());
        }
        match self.disconnect {
            None => work.await,
            Some(Moment::Before) => Ok(Answer::none()),
            Some(Moment::After) => {
                // The client does not learn the outcome.
                let _ = work.await;
                Ok(Answer::none())
            }
        }
    }
}

/// Returns whether the error of an operation also ends its batch. Either no part was begun, so clients, which
/// do not look inside the batch, retry it; or the sender has no permission at all.
const fn ends_batch(code: Code) -> bool {
    matches!(
        code,
        Code::ServerBusy | Code::RequestTimedOut | Code::AuthenticationFailed | Code::AccountIsDisabled
    )
}
