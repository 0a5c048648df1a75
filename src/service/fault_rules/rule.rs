//! A rule: the requests that it selects, and the fault that it injects.

use std::ops::RangeInclusive;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Code;
use crate::protocol::model::TableName;
use crate::protocol::request::OperationLabel::{self, *};

/// The errors that rules can inject: those that a request can get although it is correct.
const ERRORS: [Code; 18] = [
    Code::InvalidInput,
    Code::AccountIsDisabled,
    Code::AuthenticationFailed,
    Code::AuthorizationFailure,
    Code::AuthorizationPermissionMismatch,
    Code::InternalError,
    Code::OperationTimedOut,
    Code::ServerBusy,
    Code::RequestTimedOut,
    Code::TableNotFound,
    Code::TableBeingDeleted,
    Code::TableAlreadyExists,
    Code::ResourceNotFound,
    Code::EntityAlreadyExists,
    Code::UpdateConditionNotSatisfied,
    Code::ConditionNotMet,
    Code::EntityTooLarge,
    Code::TooManyProperties,
];

/// One fault, and the requests that meet it. Without an operation or a table, a rule matches every one. The
/// first match meets the fault, unless `after` and `times` say otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(not(feature = "testing"), expect(unreachable_pub, reason = "only rowhouse::testing exports it"))]
pub struct FaultRule {
    /// An operation by its name in metrics, such as `InsertEntity`.
    pub(crate) operation: Option<String>,
    /// The name of a table, in any case.
    pub(crate) table: Option<String>,
    /// An error of the service by its code, such as `ServerBusy`. Nothing is done.
    pub(crate) error: Option<String>,
    /// Milliseconds to wait before the operation; 1 to 30 000.
    #[schemars(range(min = 1, max = 30_000))]
    pub(crate) delay: Option<u64>,
    /// The connection ends without an answer.
    pub(crate) disconnect: Option<Moment>,
    /// Maximum entities or tables in the answer to a query; 1 to 1000.
    #[schemars(range(min = 1, max = 1000))]
    pub(crate) page: Option<usize>,
    /// Matches before the first fault; at most 1 000 000.
    #[schemars(range(max = 1_000_000))]
    pub(crate) after: u64,
    /// Matches that meet the fault; 1 to 1 000 000.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub(crate) times: u64,
}

/// A request, or an operation in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultSubject<'a> {
    pub operation: OperationLabel,
    pub table: Option<&'a TableName>,
    /// The position of an operation in its batch; `None` for a request, including a whole batch.
    pub index: Option<usize>,
}

/// When a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub(crate) enum Moment {
    /// Nothing is done.
    Before,
    /// The operation is done: what it writes is stored.
    After,
}

impl Default for FaultRule {
    fn default() -> Self {
        let (operation, table, error) = (None, None, None);
        Self { operation, table, error, delay: None, disconnect: None, page: None, after: 0, times: 1 }
    }
}

impl FaultRule {
    /// Checks that the rule has one fault, existing names, and numbers within their limits.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(operation) = &self.operation {
            self.check_operation(operation)?;
        }
        if let Some(table) = &self.table {
            TableName::parse(table).map_err(|_| format!("no table is called {table:?}"))?;
        }
        if let Some(name) = self.error.as_ref().filter(|_| self.code().is_none()) {
            return Err(format!("there is no error {name:?}, or only malformed requests get it"));
        }
        within("delay", self.delay.unwrap_or(1), 1..=30_000)?;
        within("page", self.page.unwrap_or(1) as u64, 1..=1000)?;
        within("after", self.after, 0..=1_000_000)?;
        within("times", self.times, 1..=1_000_000)?;
        let faults =
            [self.error.is_some(), self.delay.is_some(), self.disconnect.is_some(), self.page.is_some()];
        match faults.iter().filter(|is_given| **is_given).count() {
            1 => Ok(()),
            _ => Err("a rule has exactly one of error, delay, disconnect and page".into()),
        }
    }

    fn check_operation(&self, name: &str) -> Result<(), String> {
        match OperationLabel::ALL.iter().find(|label| label.text() == name) {
            None | Some(Unknown | Preflight) => Err(format!("there is no operation {name:?}")),
            Some(QueryTables | GetServiceProperties | SetServiceProperties | GetServiceStats)
                if self.table.is_some() =>
            {
                Err(format!("{name} has no table"))
            }
            Some(label) if self.page.is_some() && !is_query(*label) => {
                Err(format!("{name} has no page: QueryEntities and QueryTables have"))
            }
            Some(_) => Ok(()),
        }
    }

    /// Returns the error that the rule injects.
    pub(super) fn code(&self) -> Option<Code> {
        ERRORS.into_iter().find(|code| Some(code.facts().code) == self.error.as_deref())
    }

    /// Returns whether the rule selects a request, or an operation in a batch.
    pub(super) fn matches(&self, subject: &FaultSubject<'_>) -> bool {
        let is_of_operation = match &self.operation {
            Some(operation) => operation == subject.operation.text(),
            None if self.page.is_some() => is_query(subject.operation),
            // A batch counts as one request.
            None => subject.index.is_none(),
        };
        let is_of_table =
            |table: &String| subject.table.is_some_and(|other| other.lower().eq_ignore_ascii_case(table));
        is_of_operation && self.table.as_ref().is_none_or(is_of_table)
    }
}

const fn is_query(operation: OperationLabel) -> bool {
    matches!(operation, QueryEntities | QueryTables)
}

fn within(name: &str, number: u64, limits: RangeInclusive<u64>) -> Result<(), String> {
    match limits.contains(&number) {
        true => Ok(()),
        false => Err(format!("{name} is {} to {}, not {number}", limits.start(), limits.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_that_rules_can_order_has_a_name_of_its_own() {
        for code in ERRORS {
            let rule = format!(r#"{{"error":"{}"}}"#, code.facts().code);
            let rule: FaultRule = serde_json::from_str(&rule).unwrap();
            assert_eq!((rule.code(), rule.check()), (Some(code), Ok(())));
        }
    }
}
