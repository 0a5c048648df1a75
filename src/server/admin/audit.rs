//! The audit: a line in the log for each change that an operator has requested, done or refused.
//!
//! A line has no secret and no key or content of an entity.

use std::net::IpAddr;

use super::call::Call;
use super::console::service::ServiceAnswer;
use super::reply::Outcome;

/// The target of the lines, by which a filter of the log selects them.
pub(crate) const AUDIT: &str = "rowhouse::audit";

/// Maximum characters of a text that the operator has sent.
const MAX_TEXT: usize = 128;

/// Who asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operator {
    pub peer: Option<IpAddr>,
    /// Whether it has sent the admin token. Otherwise it is on this machine.
    pub has_token: bool,
}

/// What was asked, and how it ended.
struct AuditLine<'a> {
    operator: Operator,
    action: &'a str,
    account: &'a str,
    target: &'a str,
    status: u16,
    error: &'a str,
    request_id: &'a str,
}

/// The error of a call whose connection ended before its answer. What it changes may be done or not.
const CUT_OFF: &str = "CutOff";

/// The line of a route of this listener. It is written even if the call is cut off.
pub(crate) struct CallAudit<'a> {
    operator: Operator,
    action: String,
    call: &'a Call<'a>,
    request_id: &'a str,
    /// The status and the error code, once there is an answer.
    outcome: Option<(u16, &'static str)>,
}

impl<'a> CallAudit<'a> {
    /// Begins a call.
    pub(crate) const fn begin(
        operator: Operator,
        action: String,
        call: &'a Call<'a>,
        request_id: &'a str,
    ) -> Self {
        Self { operator, action, call, request_id, outcome: None }
    }

    /// Writes the line.
    pub(crate) fn end(mut self, outcome: &Outcome) {
        self.outcome = Some(match outcome {
            Ok(reply) => (reply.status, ""),
            Err(refusal) => (refusal.status, refusal.code),
        });
    }
}

impl Drop for CallAudit<'_> {
    fn drop(&mut self) {
        let call = self.call;
        let named =
            |name: &str| call.parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str());
        let (account, target) = match named("table") {
            Some(table) => (call.parameter("name"), table),
            None => {
                let account = call.account.get().map(String::as_str).unwrap_or_default();
                (account, named("name").or(call.subject.get().map(String::as_str)).unwrap_or_default())
            }
        };
        let (status, error) = self.outcome.unwrap_or((0, CUT_OFF));
        let (operator, action, request_id) = (self.operator, self.action.as_str(), self.request_id);
        AuditLine { operator, action, account, target, status, error, request_id }.write();
    }
}

/// Writes the line of a request of the Table protocol, unless it could change nothing.
pub(crate) fn service(operator: Operator, answer: &ServiceAnswer) {
    let operation = &answer.operation;
    if !operation.label.is_change() {
        return;
    }
    let line = AuditLine {
        operator,
        action: operation.label.text(),
        account: &operation.account,
        target: &operation.table,
        status: answer.status,
        error: answer.error,
        request_id: &answer.request_id,
    };
    line.write();
}

impl AuditLine<'_> {
    fn write(&self) {
        let peer = self.operator.peer.map(|peer| peer.to_string()).unwrap_or_default();
        let cut = self.target.char_indices().nth(MAX_TEXT).map_or(self.target.len(), |(end, _)| end);
        tracing::info!(
            target: AUDIT,
            request_id = self.request_id,
            who = if self.operator.has_token { "admin token" } else { "this machine" },
            peer,
            action = self.action,
            account = self.account,
            // As Debug, so that it cannot forge a line of the log.
            subject = ?&self.target[..cut],
            status = self.status,
            error = self.error,
            "audit"
        );
    }
}
