//! Why an operator's request was not done.

use crate::error::Code;
use crate::store::{Failure, Fault, ViewFailure};

/// Why something was not done, for the operator who asked for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BeyondError {
    #[error("{0}")]
    Argument(String),
    #[error("the account has no such table")]
    TableNotFound,
    /// There is no rule or view.
    #[error("{0}")]
    NotSet(String),
    /// What the database says about a definition.
    #[error("the database says: {0}")]
    Told(String),
    #[error("the database failed ({0:?})")]
    Store(Fault),
}

impl From<Failure> for BeyondError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Fault(fault) => BeyondError::Store(fault),
            Failure::Refused(error) if error.code == Code::TableNotFound => BeyondError::TableNotFound,
            Failure::Refused(error) => BeyondError::Argument(error.text().to_owned()),
        }
    }
}

impl From<ViewFailure> for BeyondError {
    fn from(failure: ViewFailure) -> Self {
        match failure {
            ViewFailure::Store(failure) => failure.into(),
            ViewFailure::Told(text) => BeyondError::Told(text),
        }
    }
}
