//! What rules order for one request, and doing it.

use std::future::Future;
use std::time::Duration;

use super::document::DropMoment;
use super::operations::ends_batch;
use crate::error::{Code, Error};
use crate::service::Answer;

/// The exact reason of an ordered error, which the log and the console show.
const WHY: &str = "a rule of /test/faults ordered it";

/// A checked [`FaultEffect`](super::FaultEffect).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultAction {
    Error(Code),
    Delay(Duration),
    Drop(DropMoment),
}

/// What is to happen to a request: a delay, an end, or both.
#[derive(Debug, Default)]
pub(crate) struct DueFault {
    delay: Duration,
    end: Option<FaultEnd>,
}

#[derive(Debug)]
enum FaultEnd {
    Refused(Error),
    Dropped(DropMoment),
}

impl DueFault {
    /// Adds what a rule orders, for the operation of a batch that is at `index`, or else for the
    /// request.
    pub(super) fn add(&mut self, action: FaultAction, index: Option<usize>) {
        match action {
            FaultAction::Delay(delay) => self.delay += delay,
            FaultAction::Drop(moment) => self.end = Some(FaultEnd::Dropped(moment)),
            FaultAction::Error(code) => {
                let index = index.filter(|_| !ends_batch(code));
                self.end = Some(FaultEnd::Refused(Error { index, ..Error::from(code).because(WHY) }));
            }
        }
    }

    pub(super) const fn has_end(&self) -> bool {
        self.end.is_some()
    }

    pub(super) const fn has_delay(&self) -> bool {
        !self.delay.is_zero()
    }

    /// Does some work with the faults that are due.
    ///
    /// # Errors
    /// The one that is due, with the index of an operation if it is the error of one inside a
    /// batch; those of the work.
    pub(crate) async fn around<E: From<Error>>(
        self,
        work: impl Future<Output = Result<Answer, E>>,
    ) -> Result<Answer, E> {
        if self.has_delay() {
            tokio::time::sleep(self.delay).await;
        }
        match self.end {
            None => work.await,
            Some(FaultEnd::Refused(error)) => Err(error.into()),
            Some(FaultEnd::Dropped(moment)) => {
                if moment == DropMoment::After {
                    // Nobody learns how it ended.
                    let _ = work.await;
                }
                Ok(Answer::none())
            }
        }
    }
}
