//! How a transfer ended, and its exit status for scripts.

use std::process::ExitCode;

use crate::cli::output::Problem;
use crate::transfer::TransferError;

/// Why a transfer did not succeed, with its exit status; that of a success is 0.
#[derive(Debug)]
pub(crate) enum TransferEnd {
    /// 1: it failed; the text says why.
    Failed(String),
    /// 2: the arguments are invalid.
    Usage(String),
    /// 3: some entities were rejected.
    Rejected,
    /// 4: the places differ.
    Differs,
    /// 130: interrupted by a signal; the text says how to go on.
    Interrupted(String),
}

impl TransferEnd {
    /// Returns the exit status, and the message to show.
    pub(crate) fn report(self) -> (ExitCode, Option<String>) {
        match self {
            TransferEnd::Failed(text) => (ExitCode::from(1), Some(text)),
            TransferEnd::Usage(text) => (ExitCode::from(2), Some(text)),
            TransferEnd::Rejected => (ExitCode::from(3), None),
            TransferEnd::Differs => (ExitCode::from(4), None),
            TransferEnd::Interrupted(text) => (ExitCode::from(130), Some(text)),
        }
    }
}

impl From<TransferError> for TransferEnd {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Usage(text) => TransferEnd::Usage(text),
            TransferError::Interrupted => TransferEnd::Interrupted("interrupted".into()),
            failure => TransferEnd::Failed(failure.to_string()),
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
