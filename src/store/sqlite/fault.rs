//! Maps errors of SQLite to faults.

use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::store::{Failure, Fault};

/// Failures of the file system and the like.
static FAILED: WarningLimiter = WarningLimiter::new();

/// Returns the fault of an error, and logs its cause.
pub(crate) fn fault(error: &rusqlite::Error) -> Failure {
    use rusqlite::ErrorCode::{
        CannotOpen, DatabaseBusy, DatabaseLocked, DiskFull, OperationInterrupted, OutOfMemory, ReadOnly,
        SystemIoFailure,
    };
    // Only cancelled builds of indexes are interrupted.
    if error.sqlite_error_code() == Some(OperationInterrupted) {
        return Failure::Fault(Fault::Busy);
    }
    let fault = match error.sqlite_error_code() {
        Some(DatabaseBusy | DatabaseLocked) => Fault::Busy,
        Some(DiskFull | SystemIoFailure | CannotOpen | ReadOnly | OutOfMemory) => Fault::Unavailable,
        _ => Fault::Other,
    };
    // A full disk fails every write in the same way.
    let warning = if fault == Fault::Other { Some(DueWarning { left_out: None }) } else { FAILED.due() };
    if let Some(DueWarning { left_out }) = warning {
        tracing::error!(%error, left_out, "sqlite failed");
    }
    Failure::Fault(fault)
}
