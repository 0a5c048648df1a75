//! Maps errors of PostgreSQL and its connections to faults.

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::error::{Code, Error};
use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::{Failure, Fault};

const READ_ONLY: &str = "25006";
const CANCELLED: &str = "57014";

/// What a lost connection means for the running statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing was done: a read, or a write inside a transaction.
    Undone,
    /// The statement commits, so its outcome is unknown.
    Unknown,
}

/// A failed statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementError {
    /// The key exists already.
    Duplicate,
    /// A key is within our limits, but exceeds the third of a page that PostgreSQL can index.
    KeyTooLong,
    /// The stored row must be read before a merge.
    Undecided,
    /// Another transaction has locked the row.
    Held,
    /// The read has to be repeated with a permit to scan.
    NeedsPermit,
    Fault(Fault),
}

impl From<StatementError> for Failure {
    fn from(error: StatementError) -> Self {
        match error {
            StatementError::Duplicate | StatementError::Undecided | StatementError::NeedsPermit => {
                Failure::Fault(Fault::Other)
            }
            StatementError::Held => Failure::Fault(Fault::Busy),
            StatementError::KeyTooLong => Failure::Refused(key_too_long()),
            StatementError::Fault(fault) => Failure::Fault(fault),
        }
    }
}

/// Refuses keys that the index of entities cannot hold. The message is the one that the service documents for
/// the code: unlike the message of a value that is too long, it names no size.
fn key_too_long() -> Error {
    let message = "The property value is larger than the maximum size permitted.";
    Error::with_message(Code::PropertyValueTooLarge, message).with_reason(
        "PartitionKey and RowKey together do not fit into an index row of PostgreSQL, which holds about \
         2,700 bytes of compressed UTF-8: shorten the keys",
    )
}

impl From<Fault> for StatementError {
    fn from(fault: Fault) -> Self {
        StatementError::Fault(fault)
    }
}

/// Statements that fail because the database is unreachable or overloaded: then all of them do.
static AWAY: WarningLimiter = WarningLimiter::new();

/// Classifies an error, and logs its cause if an operator may have to act on it.
pub(crate) fn judge(error: &sqlx::Error, effect: Effect) -> StatementError {
    let judged = match error {
        sqlx::Error::Database(database) => judge_report(database.as_ref(), effect),
        _ if breaks_connection(error) => lost(effect),
        _ => Fault::Other.into(),
    };
    match (judged, error) {
        (StatementError::Duplicate | StatementError::KeyTooLong, _) => {}
        (StatementError::Undecided | StatementError::NeedsPermit, _) => {}
        (StatementError::Fault(Fault::Serialization), _) => {}
        // Expected of contended rows.
        (StatementError::Held, error) => tracing::debug!(%error, "row locked by another transaction"),
        (StatementError::Fault(fault), error) => report(fault, error),
    }
    judged
}

fn report(fault: Fault, error: &sqlx::Error) {
    let warning = match fault {
        Fault::Unavailable | Fault::Timeout => AWAY.due(),
        _ => Some(DueWarning { left_out: None }),
    };
    let Some(DueWarning { left_out }) = warning else { return };
    match error {
        sqlx::Error::Database(database) => {
            let state = sqlstate(database.as_ref());
            let message = if quotes_values(&state) { "" } else { database.message() };
            tracing::warn!(?fault, sqlstate = %state, message, left_out, "the database refused a statement");
        }
        error => tracing::warn!(?fault, %error, left_out, "a statement failed"),
    }
}

/// Some of what Citus reports of another server is known to have done nothing.
fn judge_report(report: &dyn DatabaseError, effect: Effect) -> StatementError {
    let state = sqlstate(report);
    let report = report.try_downcast_ref::<PgDatabaseError>();
    match report {
        Some(report) if state.starts_with("08") && never_connected(report.message()) => {
            Fault::Unavailable.into()
        }
        Some(report) if state == CANCELLED && report.r#where().is_some_and(waited_for_lock) => {
            Fault::Busy.into()
        }
        // The shard was replaced by others after the statement was planned.
        Some(report) if state == "XX000" && report.message().starts_with(LOST_SHARD) => {
            Fault::Serialization.into()
        }
        _ => judge_state(&state, effect),
    }
}

/// What Citus says of a statement whose plan names a shard that is no more. It has done nothing.
const LOST_SHARD: &str = "could not find valid entry for shard";

/// What is said only of a connection that does not come about: by libpq, and by a server that does not
/// answer connections, does not let the role in, or has no room for it.
const REFUSALS: [&str; 12] = [
    "Is the server running on that host",
    "FATAL:  the database system is ",
    "FATAL:  pg_hba.conf rejects ",
    "FATAL:  no pg_hba.conf entry ",
    "FATAL:  password authentication failed ",
    "fe_sendauth: no password supplied",
    "FATAL:  sorry, too many clients already",
    "FATAL:  too many connections for ",
    "FATAL:  remaining connection slots ",
    "FATAL:  role \"",
    "FATAL:  database \"",
    "FATAL:  permission denied for database ",
];

/// Whether a server got no connection to another one. The first is the prefix that libpq gives to
/// failures up to the end of the handshake, and to no other.
fn never_connected(message: &str) -> bool {
    (message.contains("connection to server at ") && message.contains(" failed: "))
        || (message.starts_with("connection to the remote node ")
            && REFUSALS.iter().any(|refusal| message.contains(refusal)))
        || message.starts_with("could not establish any connections to the node")
}

/// Whether a statement was cancelled while it waited for a row, by what PostgreSQL says that it did.
fn waited_for_lock(context: &str) -> bool {
    ["locking", "updating", "deleting", "inserting index"]
        .iter()
        .any(|verb| context.contains(&format!("while {verb} tuple (")))
}

fn judge_state(state: &str, effect: Effect) -> StatementError {
    match state {
        "23505" => StatementError::Duplicate,
        // program_limit_exceeded; no other limit is within reach of a request
        "54000" => StatementError::KeyTooLong,
        // division_by_zero: the failure of `value_or_failure!`. indeterminate_datatype, undefined_parameter:
        // what Citus says of an upsert with parameters as long as only some of its tables are distributed
        "22012" | "42P18" | "42P02" => StatementError::Undecided,
        // serialization_failure, deadlock_detected
        "40001" | "40P01" => Fault::Serialization.into(),
        // lock_not_available
        "55P03" => StatementError::Held,
        // io_error: Citus lost another server while it sent rows there
        "58030" => lost(effect),
        // query_canceled; transaction_resolution_unknown, statement_completion_unknown
        CANCELLED | "08007" | "40003" => Fault::Timeout.into(),
        _ if ends_session(state) => lost(effect),
        // insufficient_resources
        _ if state.starts_with("53") || state == READ_ONLY => Fault::Unavailable.into(),
        _ => Fault::Other.into(),
    }
}

fn lost(effect: Effect) -> StatementError {
    StatementError::Fault(match effect {
        Effect::Undone => Fault::Unavailable,
        Effect::Unknown => Fault::Timeout,
    })
}

/// The failure if the database stops answering. Unlike after a lost connection, another one is not tried
/// at once.
pub(crate) fn silent(effect: Effect) -> StatementError {
    StatementError::Fault(match effect {
        Effect::Undone => Fault::Busy,
        Effect::Unknown => Fault::Timeout,
    })
}

/// The failure of an operation that got no connection, or whose preparatory read failed.
pub(crate) fn not_begun(failure: impl Into<Failure>) -> Failure {
    match failure.into() {
        Failure::Fault(Fault::Busy | Fault::Unavailable) => Fault::NotBegun.into(),
        other => other,
    }
}

/// Whether the database reports one of these codes.
pub(crate) fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| codes.contains(&&*code))
}

/// Whether the server refuses to write: read_only_sql_transaction, as a former primary reports.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    has_code(error, &[READ_ONLY])
}

/// Whether a statement was cancelled.
pub(crate) fn is_cancellation(error: &sqlx::Error) -> bool {
    has_code(error, &[CANCELLED])
}

/// Whether the connection must not be used again.
pub(crate) fn breaks_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(database) => {
            (ends_session(&sqlstate(database.as_ref())) && is_fatal(database.as_ref())) || is_read_only(error)
        }
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => true,
        sqlx::Error::WorkerCrashed | sqlx::Error::PoolClosed => true,
        _ => false,
    }
}

/// Whether the connection of another server broke, which Citus reports on one that still works.
pub(crate) fn is_of_worker(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(database) = error else { return false };
    ends_session(&sqlstate(database.as_ref())) && !is_fatal(database.as_ref())
}

/// Whether PostgreSQL ends the session after it has reported this.
fn is_fatal(report: &dyn DatabaseError) -> bool {
    let severity = report.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    severity.is_none_or(|severity| matches!(severity, PgSeverity::Fatal | PgSeverity::Panic))
}

/// Whether no plan could be made: feature_not_supported, indeterminate_datatype,
/// undefined_parameter, datatype_mismatch. Citus reports these for statements that were prepared before a table was
/// distributed.
pub(crate) fn lacks_plan(error: &sqlx::Error) -> bool {
    has_code(error, &["0A000", "42P18", "42P02", "42804"])
}

/// Whether the database has as many connections as it, or the role, may have.
pub(crate) fn is_limit(error: &sqlx::Error) -> bool {
    has_code(error, &["53300"])
}

/// What a worker of Citus says of definitions.
const ONLY_COORDINATOR: &str = "operation is not allowed on this node";

/// What the database says of a definition that it refuses; `None` if the definition may succeed later
/// (`judged` says that), or if the message quotes values.
pub(crate) fn reason_of_refusal(error: &sqlx::Error, judged: StatementError) -> Option<String> {
    let sqlx::Error::Database(database) = error else { return None };
    if database.message().starts_with(ONLY_COORDINATOR) {
        let advice =
            "a worker of a Citus cluster defines nothing: give the coordinator's URL as --migrate-url";
        return Some(advice.into());
    }
    let is_refused = judged == Fault::Other.into() && !quotes_values(&sqlstate(database.as_ref()));
    let hint = database.try_downcast_ref::<PgDatabaseError>().and_then(PgDatabaseError::hint);
    let message = database.message();
    is_refused.then(|| hint.map_or_else(|| message.into(), |hint| format!("{message}: {hint}")))
}

/// Whether messages of this state quote values.
fn quotes_values(state: &str) -> bool {
    state.starts_with("22")
}

/// Connection exceptions, shutdowns, and a transaction that was idle, or lasted, for too long.
fn ends_session(state: &str) -> bool {
    state.starts_with("08") || state.starts_with("57P0") || matches!(state, "25P03" | "25P04")
}

fn sqlstate(error: &dyn DatabaseError) -> String {
    error.code().map(Into::into).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_another_tells_whether_anything_was_done() {
        let head = "connection to the remote node u@h:1 failed with the following error: ";
        for (message, never) in [
            ("connection to server at \"h\" (::1), port 1 failed: Connection refused", true),
            (
                "connection to server at \"h\", port 1 failed: FATAL:  the database system is starting up",
                true,
            ),
            (
                "Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?",
                true,
            ),
            ("FATAL:  the database system is starting up", true),
            ("FATAL:  pg_hba.conf rejects connection for host \"::1\", user \"u\", database \"d\"", true),
            ("FATAL:  password authentication failed for user \"u\"", true),
            ("FATAL:  sorry, too many clients already", true),
            ("FATAL:  too many connections for role \"u\"", true),
            ("FATAL:  remaining connection slots are reserved for superusers", true),
            ("FATAL:  terminating connection due to administrator command", false),
            ("FATAL:  terminating connection because of crash of another server process", false),
            ("server closed the connection unexpectedly", false),
            ("connection not open", false),
        ] {
            assert_eq!(never_connected(&format!("{head}{message}")), never, "{message}");
        }
        assert!(never_connected("could not establish any connections to the node h:1 after 5000 ms"));
        assert!(waited_for_lock("while updating tuple (0,1) in relation \"entities_1\""));
        assert!(!waited_for_lock("SQL statement \"SELECT 1\""));
    }

    #[test]
    fn states_become_faults() {
        use Fault::*;
        for (state, undone, unknown) in [
            ("40001", Serialization, Serialization),
            ("40P01", Serialization, Serialization),
            ("57014", Timeout, Timeout),
            ("08007", Timeout, Timeout),
            ("08006", Unavailable, Timeout),
            ("57P01", Unavailable, Timeout),
            ("25P03", Unavailable, Timeout),
            ("25P04", Unavailable, Timeout),
            ("53300", Unavailable, Unavailable),
            ("25006", Unavailable, Unavailable),
            ("58030", Unavailable, Timeout),
            ("42P01", Other, Other),
            ("", Other, Other),
        ] {
            assert_eq!(judge_state(state, Effect::Undone), undone.into(), "{state}");
            assert_eq!(judge_state(state, Effect::Unknown), unknown.into(), "{state}");
        }
        assert_eq!(judge_state("55P03", Effect::Unknown), StatementError::Held);
        assert_eq!(judge_state("23505", Effect::Unknown), StatementError::Duplicate);
        assert_eq!(judge_state("54000", Effect::Unknown), StatementError::KeyTooLong);
        for state in ["42P18", "42P02"] {
            assert_eq!(judge_state(state, Effect::Unknown), StatementError::Undecided);
        }
    }
}
