//! Maps errors of SQLite to faults.

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_WRITE;

use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::{Failure, Fault};

/// Limits warnings about failures other than bugs, such as those of the file system.
static FAILED: WarningLimiter = WarningLimiter::new();

/// Returns the fault of an error, and logs its cause.
pub(crate) fn fault(error: &rusqlite::Error) -> Failure {
    use ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OperationInterrupted, OutOfMemory, ReadOnly,
        SystemIoFailure,
    };
    // Only the cancellation of an index build interrupts a statement.
    if error.sqlite_error_code() == Some(OperationInterrupted) {
        return Failure::Fault(Fault::Busy);
    }
    let fault = match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked) => Fault::Busy,
        Some(DiskFull | SystemIoFailure | CannotOpen | ReadOnly | OutOfMemory) => Fault::Unavailable,
        _ => Fault::Other,
    };
    // A full disk fails all writes with the same error.
    let warning = if fault == Fault::Other { Some(DueWarning { left_out: None }) } else { FAILED.due() };
    if let Some(DueWarning { left_out }) = warning {
        tracing::error!(%error, left_out, "sqlite failed");
    }
    Failure::Fault(fault)
}

/// Returns the fault of a COMMIT with an unknown outcome, and logs its cause; `None` if the transaction was certainly
/// rolled back.
///
/// SQLite writes the whole transaction to the log, syncs the log and then enters the transaction in the log's index.
/// If the sync or the index update fails, a later recovery may find the transaction in the log. SQLite writes the end
/// of the transaction last. After a failed write or on a full disk, the log lacks this end.
pub(crate) fn unknown_commit(error: &rusqlite::Error) -> Option<Failure> {
    let code = error.sqlite_error()?;
    let is_unknown = match code.code {
        ErrorCode::SystemIoFailure => code.extended_code != SQLITE_IOERR_WRITE,
        ErrorCode::OutOfMemory => true,
        _ => false,
    };
    if is_unknown && let Some(DueWarning { left_out }) = FAILED.due() {
        tracing::error!(%error, left_out, "sqlite failed in a commit, whose outcome is unknown");
    }
    is_unknown.then_some(Failure::Fault(Fault::Timeout))
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi::{
        self, SQLITE_BUSY, SQLITE_FULL, SQLITE_IOERR, SQLITE_IOERR_FSYNC, SQLITE_IOERR_NOMEM,
        SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHMSIZE, SQLITE_NOMEM,
    };

    use super::*;

    fn error(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn after_a_commit_that_is_written_and_fails_the_outcome_is_unknown() {
        let written = [
            SQLITE_IOERR_FSYNC,
            SQLITE_IOERR_SHMSIZE,
            SQLITE_IOERR_SHMMAP,
            SQLITE_IOERR_NOMEM,
            SQLITE_NOMEM,
            SQLITE_IOERR,
        ];
        for code in written {
            assert_eq!(unknown_commit(&error(code)), Some(Fault::Timeout.into()), "{code}");
        }
        for (code, known) in [
            (SQLITE_IOERR_WRITE, Fault::Unavailable),
            (SQLITE_FULL, Fault::Unavailable),
            (SQLITE_BUSY, Fault::Busy),
        ] {
            assert_eq!((unknown_commit(&error(code)), fault(&error(code))), (None, known.into()), "{code}");
        }
    }
}
