//! The reasons why a transfer fails.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The interval at which a pause checks whether to stop.
pub(crate) const STOP_CHECK: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The arguments contradict each other, or do not suit the endpoints.
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Failed(String),
    /// A place or a file of the copy fails as a whole, so every other table would fail too.
    #[error("{0}")]
    Fatal(String),
    /// The place has something else than an entity under a key.
    #[error("{0}")]
    NotEntity(String),
    /// An answer is longer than the limit.
    #[error("{0}")]
    TooLarge(String),
    /// The place reports that the table does not exist.
    #[error("there is no table {0}")]
    NoTable(String),
    /// The place reports that the credentials do not allow the operation.
    #[error("{0}")]
    NotAllowed(String),
    /// The place does not accept the credentials or does not have the account, so it refuses everything.
    #[error("{0}")]
    NoAccess(String),
    #[error("interrupted")]
    Interrupted,
}

macro_rules! failed {
    ($($text:tt)*) => { $crate::error::TransferError::Failed(format!($($text)*)) };
}

macro_rules! fatal {
    ($($text:tt)*) => { $crate::error::TransferError::Fatal(format!($($text)*)) };
}

macro_rules! usage {
    ($($text:tt)*) => { $crate::error::TransferError::Usage(format!($($text)*)) };
}

pub(crate) use {failed, fatal, usage};

pub(crate) type TransferResult<T> = std::result::Result<T, TransferError>;

impl TransferError {
    /// Whether only the work on one table failed, so that other tables can still be copied.
    pub(super) const fn is_of_table(&self) -> bool {
        use TransferError::{Failed, NoTable, NotAllowed, NotEntity, TooLarge};
        matches!(self, Failed(_) | NotEntity(_) | TooLarge(_) | NoTable(_) | NotAllowed(_))
    }

    /// Returns the failure of a table as a failure of its whole place.
    pub(super) fn of_place(self) -> Self {
        match self {
            TransferError::Failed(text) => TransferError::Fatal(text),
            other => other,
        }
    }

    /// Prefixes the error with the side of a transfer, FROM or TO, unless its text begins with it.
    pub fn on(self, side: &str) -> Self {
        // Some texts begin with the side as their subject.
        if self.to_string().strip_prefix(side).is_some_and(|rest| rest.starts_with([':', ' '])) {
            return self;
        }
        match self {
            TransferError::Failed(text) => failed!("{side}: {text}"),
            TransferError::NotEntity(text) => TransferError::NotEntity(format!("{side}: {text}")),
            TransferError::Fatal(text) => fatal!("{side}: {text}"),
            TransferError::TooLarge(text) => TransferError::TooLarge(format!("{side}: {text}")),
            TransferError::NotAllowed(text) => TransferError::NotAllowed(format!("{side}: {text}")),
            TransferError::NoAccess(text) => TransferError::NoAccess(format!("{side}: {text}")),
            TransferError::NoTable(_) => failed!("{side}: {self}"),
            TransferError::Usage(_) | TransferError::Interrupted => self,
        }
    }

    /// Prefixes the error with a file or folder, unless its text names it.
    pub(super) fn at(self, path: &Path) -> Self {
        let path = path.display().to_string();
        match self {
            TransferError::Failed(text) if !text.contains(&path) => failed!("{path}: {text}"),
            other => other,
        }
    }
}

pub(crate) fn check_stop(stop: &AtomicBool) -> TransferResult<()> {
    if stop.load(Ordering::Relaxed) { Err(TransferError::Interrupted) } else { Ok(()) }
}

/// Pauses until the time has passed or `stop` is set.
pub(crate) fn pause(pause: Duration, stop: &AtomicBool) -> TransferResult<()> {
    let end = Instant::now() + pause;
    loop {
        check_stop(stop)?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(STOP_CHECK));
    }
}

impl From<rusqlite::Error> for TransferError {
    fn from(error: rusqlite::Error) -> Self {
        fatal!("the state file: {error}")
    }
}

impl From<std::io::Error> for TransferError {
    fn from(error: std::io::Error) -> Self {
        failed!("{error}")
    }
}
