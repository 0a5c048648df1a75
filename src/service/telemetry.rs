//! Records each request for operators: in metrics, and as a line in the log.
//!
//! Neither contains a secret, a signature, a query string, or the key or content of an entity. [`EXPLANATIONS`], which
//! operators can turn on, may contain keys.

use std::cell::{Cell, OnceCell};
use std::time::Duration;

use super::answer::Answer;
use super::recent::{MAX_REASON, RecentRequests};
use crate::error::{Code, Error};
use crate::observe::metrics::database_time::DatabaseTime;
use crate::observe::metrics::requests::RequestInFlight;
use crate::observe::metrics::warning_limiter::WarningLimiter;
use crate::observe::metrics::{Ending, METRICS};
use crate::observe::trace::SpanFields;
use crate::protocol::model::TableName;
use crate::protocol::plan::RequestKind;
use crate::protocol::request::head::ApiVersion;
use crate::protocol::request::{Head, OperationLabel, Resource, Scheme, Target};

/// Maximum length of a table name in the log. No valid name is longer.
const MAX_TABLE_NAME_CHARS: usize = 64;

/// The log target of explanations of errors. A log filter selects it.
pub(crate) const EXPLANATIONS: &str = "rowhouse::explain";

/// Limits each kind of warning, because under overload every request fails in the same way.
static FAILURES: [[WarningLimiter; OperationLabel::COUNT]; Code::COUNT] =
    [const { [const { WarningLimiter::new() }; OperationLabel::COUNT] }; Code::COUNT];

/// The facts about a request, which become known while it is answered.
pub(crate) struct Observed {
    pub request_id: String,
    /// Whether the request came over the admin listener.
    is_of_operator: bool,
    /// The version of the request, if it is valid.
    pub version: Cell<Option<ApiVersion>>,
    /// The target of the request, once it is known.
    pub target: OnceCell<Target>,
    operation: Cell<OperationLabel>,
    /// The table of a batch or a table creation, which its address does not name.
    body_table: OnceCell<String>,
    received: Cell<u64>,
    /// The reason for refusing the request, if the error contains one.
    reason: OnceCell<Box<str>>,
}

impl Observed {
    pub(crate) const fn new(request_id: String, is_of_operator: bool) -> Self {
        Self {
            request_id,
            is_of_operator,
            version: Cell::new(None),
            target: OnceCell::new(),
            operation: Cell::new(OperationLabel::Unknown),
            body_table: OnceCell::new(),
            received: Cell::new(0),
            reason: OnceCell::new(),
        }
    }

    /// Returns the operation, as far as it could be parsed.
    pub(crate) const fn label(&self) -> OperationLabel {
        self.operation.get()
    }

    pub(crate) fn record_preflight(&self) {
        self.operation.set(OperationLabel::Preflight);
    }

    /// Records the parsed request.
    pub(crate) fn record_request(&self, request: &RequestKind) {
        self.operation.set(request.label());
        if let RequestKind::Batch(batch) = request
            && let Some(table) = batch.table()
        {
            self.body_table.get_or_init(|| table.to_owned());
        }
    }

    /// Records the table that the body of a request names.
    pub(crate) fn record_table(&self, table: &TableName) {
        if self.table().is_empty() {
            self.body_table.get_or_init(|| table.as_given().to_owned());
        }
    }

    pub(crate) fn record_body(&self, bytes: usize) {
        self.received.set(bytes as u64);
    }

    /// Returns whether the request has changed the service properties.
    pub(crate) fn has_set_properties(&self, answer: &Answer) -> bool {
        self.operation.get() == OperationLabel::SetServiceProperties && answer.refusal.is_none()
    }

    /// Logs and records the exact reason of an error: the text that should have been signed, or the field that
    /// failed. Signed texts contain entity keys, but no secrets. Of several errors, as in a batch, the first one is
    /// recorded.
    pub(crate) fn explain_error(&self, error: &Error) {
        if let Some(reason) = &error.reason {
            self.reason.get_or_init(|| reason[..reason.floor_char_boundary(MAX_REASON)].into());
        }
        let facts = error.code.facts();
        tracing::info!(
            target: EXPLANATIONS,
            request_id = self.request_id,
            status = facts.status,
            code = facts.code,
            operation = error.index,
            why = error.reason_or_text(),
            "refused"
        );
    }

    /// Counts the request, adds it to `recent`, and logs it. The line is a warning if the request
    /// took longer than `slow` or the server failed, unless the same warning was just logged.
    pub(crate) fn finish(
        &self,
        record: RequestInFlight<'_>,
        answer: &Answer,
        database: Duration,
        slow: Duration,
        recent: Option<&RecentRequests>,
    ) {
        let duration = record.elapsed();
        let ending = Ending {
            operation: self.operation.get(),
            status: answer.outcome_status(),
            refusal: answer.refusal,
            duration,
            database,
            received: self.received.get(),
            sent: answer.body.len() as u64,
            slow: duration > slow,
        };
        record.end(&ending);
        if let Some(recent) = recent.filter(|recent| recent.should_add(ending.status, ending.slow)) {
            let reason = self.reason.get().map_or("", |reason| reason);
            recent.add(ending, self.is_of_operator, [self.account(), self.table(), &self.request_id, reason]);
        }
        self.log(&ending);
    }

    /// Returns the fields of the request in a trace.
    pub(crate) fn span_fields(&self, head: &Head<'_>, answer: &Answer, spent: DatabaseTime) -> SpanFields {
        SpanFields {
            operation: self.operation.get().text(),
            method: known_method(&head.method),
            status: answer.status,
            failed: answer.outcome_status() >= 500,
            error: answer.refusal.map_or("", |code| code.facts().code),
            account: self.account().to_owned(),
            table: self.table().to_owned(),
            request_id: self.request_id.clone(),
            waits: spent.into_waits(),
        }
    }

    fn log(&self, ending: &Ending) {
        // A feature that Azure lacks too is not a failure of this server.
        let failed = ending.status >= 500 && ending.refusal != Some(Code::NotImplemented);
        let code = ending.refusal.unwrap_or(Code::InternalError);
        let warning = if failed { FAILURES[code as usize][ending.operation as usize].due() } else { None };
        let left_out = warning.and_then(|warning| warning.left_out);
        // The fields of all lines, in the same order.
        macro_rules! line {
            ($level:ident, $message:literal) => {
                tracing::$level!(
                    request_id = self.request_id,
                    account = self.account(),
                    operation = ending.operation.text(),
                    table = self.table(),
                    status = ending.status,
                    error = ending.refusal.map_or("", |code| code.facts().code),
                    micros = ending.duration.as_micros() as u64,
                    database_micros = ending.database.as_micros() as u64,
                    left_out,
                    $message
                )
            };
        }
        if warning.is_some() {
            line!(warn, "request failed");
        } else if failed {
            line!(debug, "request failed");
        } else if ending.slow {
            line!(warn, "slow request");
        } else {
            line!(debug, "request");
        }
    }

    /// Returns the account, or an empty text if the address does not name an account of this server.
    pub(crate) fn account(&self) -> &str {
        self.target.get().map_or("", |target| target.account.as_str())
    }

    /// Returns the name of the request's table, if there is one.
    pub(crate) fn table(&self) -> &str {
        let name = match self.target.get().map(|target| &target.resource) {
            Some(
                Resource::Table(table)
                | Resource::EntitySet(table)
                | Resource::Entity { table, .. }
                | Resource::Partition { table, .. }
                | Resource::BelowTable { table, .. },
            ) => table.as_str(),
            _ => self.body_table.get().map_or("", String::as_str),
        };
        match name.len() {
            ..=MAX_TABLE_NAME_CHARS => name,
            _ => name.char_indices().nth(MAX_TABLE_NAME_CHARS).map_or(name, |(end, _)| &name[..end]),
        }
    }
}

/// Returns the method for a trace. An unknown method becomes `_OTHER`, because clients can send any text.
fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 10] =
        ["GET", "POST", "PUT", "MERGE", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE"];
    KNOWN.into_iter().find(|known| *known == method).unwrap_or("_OTHER")
}

/// Returns the kind of credentials of a refused request.
fn credential_scheme(head: &Head<'_>) -> Scheme {
    match head.header("authorization") {
        Some(header) if header.get(..7).is_some_and(|s| s.eq_ignore_ascii_case("bearer ")) => Scheme::Bearer,
        Some(_) => Scheme::SharedKey,
        None if head.query.split('&').any(|pair| pair.starts_with("sig=")) => Scheme::Signature,
        None => Scheme::None,
    }
}

/// Counts a request that failed authentication. A database failure does not count as an attempt.
pub(crate) fn count_failed_authentication(head: &Head<'_>, error: &Error) {
    if error.code.facts().status < 500 {
        METRICS.requests.authentication_failed(credential_scheme(head), error.code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_do_not_contain_unknown_methods() {
        assert_eq!(known_method("MERGE"), "MERGE");
        assert_eq!(known_method(&"X".repeat(100_000)), "_OTHER");
    }
}
