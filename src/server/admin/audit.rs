//! The audit log, with one line for each change that an operator has requested, successful or refused.
//!
//! A line contains no secret, and no key or content of an entity.

use std::net::IpAddr;

use super::call::Call;
use super::guard::Admission;
use super::reply::Refusal;
use super::route::Route;
use crate::protocol::request::OperationLabel;
use crate::service::Observed;

/// The log target of audit lines, which a log filter can select.
pub(crate) const AUDIT: &str = "rowhouse::audit";

/// Maximum characters of a text from the operator.
const MAX_TEXT: usize = 128;

/// The sender of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operator {
    pub peer: Option<IpAddr>,
    /// The reason why the request was admitted.
    pub admission: Admission,
}

/// The error of a request whose connection ended before the response. The change may have been made or not.
const CUT_OFF: &str = "CutOff";

/// The source of the audited account and table.
pub(crate) enum Audited<'a> {
    /// A call to a route of this listener.
    Call(&'a Call<'a>),
    /// A request of the Table protocol.
    Service(&'a Observed),
}

/// Writes the audit line of a request when it is dropped, so that a request that is cut off is audited too.
pub(crate) struct Audit<'a> {
    operator: Operator,
    route: &'static Route,
    audited: Audited<'a>,
    request_id: &'a str,
    /// The status and the error code, once there is a response.
    outcome: Option<(u16, &'static str)>,
}

impl<'a> Audit<'a> {
    pub(crate) const fn begin(
        operator: Operator,
        route: &'static Route,
        audited: Audited<'a>,
        request_id: &'a str,
    ) -> Self {
        Self { operator, route, audited, request_id, outcome: None }
    }

    /// Writes the line with the status and the error code of the response.
    pub(crate) fn end(mut self, answered: Result<(u16, &'static str), &Refusal>) {
        self.outcome = Some(answered.unwrap_or_else(|refusal| (refusal.status, refusal.code)));
    }

    /// Returns the operation of the Table protocol, once it is known.
    fn operation(&self) -> Option<OperationLabel> {
        match self.audited {
            Audited::Service(observed) => Some(observed.label()).filter(|l| *l != OperationLabel::Unknown),
            Audited::Call(_) => None,
        }
    }

    fn is_change(&self) -> bool {
        match (&self.audited, self.operation()) {
            (Audited::Call(_), _) => self.route.is_change,
            (Audited::Service(_), Some(operation)) => operation.is_change(),
            (Audited::Service(_), None) => self.route.method != "GET",
        }
    }

    /// Returns the account and the table, or the other subject of the request.
    fn subject(&self) -> (&str, &str) {
        let call = match self.audited {
            Audited::Call(call) => call,
            Audited::Service(observed) => return (observed.account(), observed.table()),
        };
        let named =
            |name: &str| call.parameters.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str());
        match named("table") {
            Some(table) => (call.parameter("name"), table),
            None => {
                let account = call.account.get().map(String::as_str).unwrap_or_default();
                (account, named("name").or(call.subject.get().map(String::as_str)).unwrap_or_default())
            }
        }
    }
}

impl Drop for Audit<'_> {
    fn drop(&mut self) {
        if !self.is_change() {
            return;
        }
        let route = || format!("{} {}", self.route.method, self.route.path);
        let action = self.operation().map_or_else(route, |operation| operation.text().to_owned());
        let (account, target) = self.subject();
        let (status, error) = self.outcome.unwrap_or((0, CUT_OFF));
        let peer = self.operator.peer.map(|peer| peer.to_string()).unwrap_or_default();
        let cut = target.char_indices().nth(MAX_TEXT).map_or(target.len(), |(end, _)| end);
        tracing::info!(
            target: AUDIT,
            request_id = self.request_id,
            who = match self.operator.admission {
                Admission::Token => "admin token",
                Admission::Local => "this machine",
            },
            peer,
            action,
            account,
            // Printed with Debug, so that the text cannot forge a log line.
            subject = ?&target[..cut],
            status,
            error,
            "audit"
        );
    }
}
