//! Maps errors of PostgreSQL and its connections to faults.

use sqlx::error::DatabaseError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use crate::error::{Code, Error};
use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::{Failure, Fault};

const READ_ONLY: &str = "25006";
const CANCELLED: &str = "57014";

/// The effect of a lost connection on the running statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// No effect: a read, or a write inside a transaction.
    Undone,
    /// Unknown outcome: the statement commits.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementError {
    Duplicate,
    /// The key is within Rowhouse's limits, but exceeds the third of a page that PostgreSQL can index.
    KeyTooLong,
    /// The stored row must be read before the merge.
    Undecided,
    Held,
    /// The read has to be repeated with a scan permit.
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

/// Refuses keys that exceed the index of entities. Azure documents this message for the code. Unlike the message for
/// values that are too long, it names no size.
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

/// Limits warnings while the database is unreachable or overloaded, when every statement fails.
static OUTAGE_WARNINGS: WarningLimiter = WarningLimiter::new();

/// Classifies an error, and logs its cause if an operator may have to act.
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
        // Contended rows cause this error in normal operation.
        (StatementError::Held, error) => tracing::debug!(%error, "row locked by another transaction"),
        (StatementError::Fault(fault), error) => report(fault, error),
    }
    judged
}

fn report(fault: Fault, error: &sqlx::Error) {
    let warning = match fault {
        Fault::Unavailable | Fault::Timeout => OUTAGE_WARNINGS.due(),
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

/// Classifies errors that Citus reports about another server, some of which imply that the statement had no effect.
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
        // Another session replaced the shard after the statement was planned.
        Some(report) if state == "XX000" && report.message().starts_with(LOST_SHARD) => {
            Fault::Serialization.into()
        }
        _ => judge_state(&state, effect),
    }
}

/// Citus' error for a statement whose plan names a missing shard. The statement had no effect.
const LOST_SHARD: &str = "could not find valid entry for shard";

/// Messages that appear only if no connection was established. They come from libpq and from a server that refuses
/// connections, rejects the role or has no free slot.
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

/// Whether a server failed to connect to another server. libpq uses the first prefix only for failures up to the end
/// of the handshake.
fn never_connected(message: &str) -> bool {
    (message.contains("connection to server at ") && message.contains(" failed: "))
        || (message.starts_with("connection to the remote node ")
            && REFUSALS.iter().any(|refusal| message.contains(refusal)))
        || message.starts_with("could not establish any connections to the node")
}

/// Whether PostgreSQL's context shows that a cancelled statement was waiting for a row lock.
fn waited_for_lock(context: &str) -> bool {
    ["locking", "updating", "deleting", "inserting index"]
        .iter()
        .any(|verb| context.contains(&format!("while {verb} tuple (")))
}

fn judge_state(state: &str, effect: Effect) -> StatementError {
    match state {
        "23505" => StatementError::Duplicate,
        // program_limit_exceeded; requests can exceed no other limit
        "54000" => StatementError::KeyTooLong,
        // division_by_zero: the failure of `value_or_failure!`. indeterminate_datatype, undefined_parameter: Citus
        // reports them for an upsert with parameters while only some of its tables are distributed
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

/// The failure of a database that stops responding. Unlike after a lost connection, the operation does not
/// immediately try another connection.
pub(crate) fn silent(effect: Effect) -> StatementError {
    StatementError::Fault(match effect {
        Effect::Undone => Fault::Busy,
        Effect::Unknown => Fault::Timeout,
    })
}

/// The failure of an operation that got no connection or whose preparatory read failed.
pub(crate) fn not_begun(failure: impl Into<Failure>) -> Failure {
    match failure.into() {
        Failure::Fault(Fault::Busy | Fault::Unavailable) => Fault::NotBegun.into(),
        other => other,
    }
}

pub(crate) fn has_code(error: &sqlx::Error, codes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.is_some_and(|code| codes.contains(&&*code))
}

/// Whether the server refuses writes: read_only_sql_transaction, as a former primary reports.
pub(crate) fn is_read_only(error: &sqlx::Error) -> bool {
    has_code(error, &[READ_ONLY])
}

pub(crate) fn is_cancellation(error: &sqlx::Error) -> bool {
    has_code(error, &[CANCELLED])
}

/// Whether the connection must be discarded.
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

/// Whether a Citus worker's connection broke. Citus reports this on a connection that still works.
pub(crate) fn is_of_worker(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(database) = error else { return false };
    ends_session(&sqlstate(database.as_ref())) && !is_fatal(database.as_ref())
}

/// Whether PostgreSQL ends the session after this report.
fn is_fatal(report: &dyn DatabaseError) -> bool {
    let severity = report.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
    severity.is_none_or(|severity| matches!(severity, PgSeverity::Fatal | PgSeverity::Panic))
}

/// Whether planning failed: feature_not_supported, indeterminate_datatype, undefined_parameter, datatype_mismatch.
/// Citus reports these for statements that were prepared before a table was distributed.
pub(crate) fn lacks_plan(error: &sqlx::Error) -> bool {
    has_code(error, &["0A000", "42P18", "42P02", "42804"])
}

/// Whether the database or the role has reached its connection limit.
pub(crate) fn is_limit(error: &sqlx::Error) -> bool {
    has_code(error, &["53300"])
}

/// A Citus worker's error for DDL.
const ONLY_COORDINATOR: &str = "operation is not allowed on this node";

/// Returns the database's reason for refusing a definition. `None` if a retry may succeed (according to `judged`) or
/// if the message quotes values.
pub(crate) fn explain_refusal(error: &sqlx::Error, judged: StatementError) -> Option<String> {
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

/// Whether messages with this SQLSTATE quote values.
fn quotes_values(state: &str) -> bool {
    state.starts_with("22")
}

/// Connection exceptions, shutdowns, and the timeouts of idle and of long transactions.
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
