//! Why a transfer failed.

use std::path::Path;

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The arguments contradict each other, or do not suit the endpoints.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    /// An answer has more bytes than are read.
    #[error("{0}")]
    TooLarge(String),
    /// The place says that it has no such table.
    #[error("there is no table {0}")]
    NoTable(String),
    /// The credentials do not allow it: the place has answered so, and not that there is nothing.
    #[error("{0}")]
    NotAllowed(String),
    #[error("interrupted")]
    Interrupted,
}

/// A [`TransferError::Failed`] with a formatted text.
macro_rules! failed {
    ($($text:tt)*) => { $crate::error::TransferError::Failed(format!($($text)*)) };
}

/// A [`TransferError::Usage`] with a formatted text.
macro_rules! usage {
    ($($text:tt)*) => { $crate::error::TransferError::Usage(format!($($text)*)) };
}

pub(crate) use {failed, usage};

/// The result of a step of a transfer.
pub(crate) type TransferResult<T> = std::result::Result<T, TransferError>;

impl TransferError {
    /// Whether something failed: the arguments are right, and no signal has ended it.
    pub(super) const fn is_failure(&self) -> bool {
        !matches!(self, TransferError::Usage(_) | TransferError::Interrupted)
    }

    /// Names the side of a transfer, FROM or TO, that the error is about, unless the text begins with it.
    pub fn of(self, side: &str) -> Self {
        if self.to_string().starts_with(side) {
            return self;
        }
        match self {
            TransferError::Failed(text) => failed!("{side}: {text}"),
            TransferError::TooLarge(text) => TransferError::TooLarge(format!("{side}: {text}")),
            TransferError::NotAllowed(text) => TransferError::NotAllowed(format!("{side}: {text}")),
            TransferError::NoTable(_) => TransferError::Failed(format!("{side}: {self}")),
            TransferError::Usage(_) | TransferError::Interrupted => self,
        }
    }

    /// Names the file or folder that the error is about, unless the text names it.
    pub(super) fn at(self, path: &Path) -> Self {
        let path = path.display().to_string();
        match self {
            TransferError::Failed(text) if !text.contains(&path) => {
                TransferError::Failed(format!("{path}: {text}"))
            }
            other => other,
        }
    }
}

impl From<rusqlite::Error> for TransferError {
    fn from(error: rusqlite::Error) -> Self {
        TransferError::Failed(format!("the state file: {error}"))
    }
}

impl From<std::io::Error> for TransferError {
    fn from(error: std::io::Error) -> Self {
        TransferError::Failed(error.to_string())
    }
}
