//! How a transfer ended, as scripts see it.

use std::process::ExitCode;

use crate::cli::output::Problem;
use crate::transfer::TransferError;

/// Why a transfer did not end well, with its exit status; 0 means that all is well.
#[derive(Debug)]
pub(crate) enum TransferEnd {
    /// 1: it failed; the text says why.
    Failed(String),
    /// 2: the arguments do not fit.
    Usage(String),
    /// 3: some entities were rejected.
    Rejected,
    /// 4: the places differ.
    Differs,
    /// 130: interrupted by a signal; it can be resumed.
    Interrupted,
}

impl TransferEnd {
    /// Returns the exit status, and what is to be said.
    pub(crate) fn report(self) -> (ExitCode, Option<String>) {
        match self {
            TransferEnd::Failed(text) => (ExitCode::from(1), Some(text)),
            TransferEnd::Usage(text) => (ExitCode::from(2), Some(text)),
            TransferEnd::Rejected => (ExitCode::from(3), None),
            TransferEnd::Differs => (ExitCode::from(4), None),
            TransferEnd::Interrupted => (ExitCode::from(130), Some("interrupted".into())),
        }
    }
}

impl From<TransferError> for TransferEnd {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Usage(text) => TransferEnd::Usage(text),
            TransferError::Endpoint(text) => TransferEnd::Failed(text),
            TransferError::Interrupted => TransferEnd::Interrupted,
        }
    }
}

impl From<Problem> for TransferEnd {
    fn from(Problem(text): Problem) -> Self {
        TransferEnd::Failed(text)
    }
}

impl From<std::io::Error> for TransferEnd {
    fn from(error: std::io::Error) -> Self {
        TransferEnd::Failed(error.to_string())
    }
}
