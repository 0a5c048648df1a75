//! `rowhouse copy`, `verify`, `count` and `delete-where`, with their outcomes and exit statuses for scripts.

mod arguments;
mod copying;
mod counting;
mod rejected;
mod verifying;

pub(super) use arguments::confirmed;
pub(crate) use copying::CopyArguments;
pub(crate) use counting::{CountArguments, DeleteArguments};
pub(crate) use verifying::VerifyArguments;

pub(crate) use copying::run as copy;
pub(crate) use counting::{count, delete_where};
pub(crate) use verifying::run as verify;

use std::process::ExitCode;

use super::output::Problem;
use crate::transfer::TransferError;

/// The reason why a transfer did not succeed, with its exit status. A success has status 0.
#[derive(Debug)]
pub(crate) enum TransferEnd {
    /// 1: the transfer failed, for the reason in the text.
    Failed(String),
    /// 2: the arguments are invalid.
    Usage(String),
    /// 3: some entities were rejected.
    Rejected,
    /// 4: the places differ.
    Differs,
    /// 130: interrupted by a signal. The text explains how to resume.
    Interrupted(String),
}

impl TransferEnd {
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
