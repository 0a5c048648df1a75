//! Fault injection for tests: errors, delays, connections that end without a response, and short pages. Rules
//! count their matches, so a test knows which request gets which fault.
//!
//! Only test mode and `rowhouse::testing` set rules.

use std::future::Future;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{Answer, STATUS_HANG_UP};
use crate::error::{Code, Error};
use crate::protocol::model::TableName;
use crate::protocol::plan::Plan;
use crate::protocol::request::OperationLabel::{self, *};

/// Maximum number of rules on a server.
const MAX_RULES: usize = 100;

/// The rules of a server, each with its number of matches. A server starts without rules.
#[derive(Default)]
pub(crate) struct FaultRules(ArcSwap<Vec<(FaultRule, AtomicU64)>>);

/// A rule with its counts.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "CountedFaultRule")]
pub(crate) struct FaultRuleCount {
    #[serde(flatten)]
    pub rule: FaultRule,
    /// Matches so far.
    pub matched: u64,
    /// Matches that met the fault.
    pub hits: u64,
}

impl FaultRules {
    /// Replaces all rules. The counts start at zero.
    pub(crate) fn replace(&self, rules: Vec<FaultRule>) -> Result<(), String> {
        if rules.len() > MAX_RULES {
            return Err(format!("a server has at most {MAX_RULES} rules, not {}", rules.len()));
        }
        for (rule, number) in rules.iter().zip(1..) {
            rule.check().map_err(|reason| format!("rule {number}: {reason}"))?;
        }
        self.0.store(Vec::from_iter(rules.into_iter().map(|rule| (rule, AtomicU64::new(0)))).into());
        Ok(())
    }

    pub(crate) fn clear(&self) {
        self.0.store(Vec::new().into());
    }

    /// Returns the rules in order, with their counts.
    pub(crate) fn list(&self) -> Vec<FaultRuleCount> {
        let counted = |(rule, matched): &(FaultRule, AtomicU64)| {
            let matched = matched.load(Ordering::Relaxed);
            let hits = matched.saturating_sub(rule.after).min(rule.times);
            FaultRuleCount { rule: rule.clone(), matched, hits }
        };
        self.0.load().iter().map(counted).collect()
    }

    /// Counts a request, or a batch and its operations, and returns the faults to inject. Rules after the
    /// first error or disconnect do not count the request.
    pub(crate) fn next_injection<'a>(
        &self,
        subjects: impl IntoIterator<Item = FaultSubject<'a>>,
    ) -> Option<Injection> {
        let rules = self.0.load();
        if rules.is_empty() {
            return None;
        }
        let mut injection = None;
        for subject in subjects {
            for (rule, matched) in rules.iter().filter(|(rule, _)| rule.matches(&subject)) {
                // Each match has a unique number, even among concurrent matches.
                let number = matched.fetch_add(1, Ordering::Relaxed);
                if (rule.after..rule.after + rule.times).contains(&number) {
                    let faults: &mut Injection = injection.get_or_insert_default();
                    faults.add(rule, subject.index);
                    if faults.ends_request() {
                        return injection;
                    }
                }
            }
        }
        injection
    }
}

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
    /// An error of the service by its code, such as `ServerBusy`. The operation is not performed.
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
    /// Before the operation, which is not performed.
    Before,
    /// After the operation, whose changes are stored.
    After,
}

impl Default for FaultRule {
    fn default() -> Self {
        let (operation, table, error) = (None, None, None);
        Self { operation, table, error, delay: None, disconnect: None, page: None, after: 0, times: 1 }
    }
}

#[cfg(feature = "testing")]
impl FaultRule {
    /// Answers with an error, by its code, such as `ServerBusy`. The operation is not performed.
    pub fn error(code: impl Into<String>) -> Self {
        Self { error: Some(code.into()), ..Self::default() }
    }

    /// Delays the operation by 1 ms to 30 s. Further rules apply after the delay.
    pub fn delay(time: Duration) -> Self {
        Self { delay: Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)), ..Self::default() }
    }

    /// Ends the connection without an answer. The operation is not performed.
    pub fn disconnect_before() -> Self {
        Self { disconnect: Some(Moment::Before), ..Self::default() }
    }

    /// Ends the connection without an answer after the operation. Its changes are stored, but the client does not
    /// learn the outcome.
    pub fn disconnect_after() -> Self {
        Self { disconnect: Some(Moment::After), ..Self::default() }
    }

    /// Limits the answer to a query to `most` entities or tables, 1 to 1000. If there are more, the answer has a
    /// continuation token. Further rules apply to the query.
    pub fn page(most: usize) -> Self {
        Self { page: Some(most), ..Self::default() }
    }

    /// Selects an operation by its name in metrics, such as `InsertEntity`, also inside transactions.
    /// `EntityGroupTransaction` selects whole transactions.
    pub fn operation(self, name: impl Into<String>) -> Self {
        Self { operation: Some(name.into()), ..self }
    }

    /// Selects a table, in any case.
    pub fn table(self, name: impl Into<String>) -> Self {
        Self { table: Some(name.into()), ..self }
    }

    /// Sets how many matches come before the first fault; at most 1 000 000.
    pub fn after(self, matches: u64) -> Self {
        Self { after: matches, ..self }
    }

    /// Sets how many matches meet the fault; 1 to 1 000 000.
    pub fn times(self, matches: u64) -> Self {
        Self { times: matches, ..self }
    }
}

impl FaultRule {
    /// Checks that the rule has one fault, existing names, and numbers within their limits.
    fn check(&self) -> Result<(), String> {
        if let Some(operation) = &self.operation {
            self.check_operation(operation)?;
        }
        if let Some(table) = &self.table {
            TableName::parse(table).map_err(|_| format!("no table is called {table:?}"))?;
        }
        if let Some(name) = self.error.as_ref().filter(|_| self.code().is_none()) {
            return Err(format!("there is no error {name:?}, or only malformed requests get it"));
        }
        check_range("delay", self.delay.unwrap_or(1), 1..=30_000)?;
        check_range("page", self.page.unwrap_or(1) as u64, 1..=1000)?;
        check_range("after", self.after, 0..=1_000_000)?;
        check_range("times", self.times, 1..=1_000_000)?;
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

    /// Returns the error that the rule injects, if any.
    fn code(&self) -> Option<Code> {
        ERRORS.into_iter().find(|code| Some(code.facts().code) == self.error.as_deref())
    }

    /// Returns whether the rule selects a request, or an operation in a batch.
    fn matches(&self, subject: &FaultSubject<'_>) -> bool {
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

fn check_range(name: &str, number: u64, limits: RangeInclusive<u64>) -> Result<(), String> {
    match limits.contains(&number) {
        true => Ok(()),
        false => Err(format!("{name} is {} to {}, not {number}", limits.start(), limits.end())),
    }
}

/// The exact reason of an injected error, for the log and the console.
const REASON: &str = "a rule of /test/faults ordered it";

/// The faults that rules inject into one request.
#[derive(Debug, Default)]
pub(crate) struct Injection {
    delay: Duration,
    page: Option<usize>,
    error: Option<Error>,
    disconnect: Option<Moment>,
}

impl Injection {
    /// Adds the fault of a rule, for the operation at `index` of a batch, or otherwise for the request.
    fn add(&mut self, rule: &FaultRule, index: Option<usize>) {
        self.delay += Duration::from_millis(rule.delay.unwrap_or_default());
        self.page = self.page.into_iter().chain(rule.page).min();
        self.disconnect = rule.disconnect;
        self.error = rule.code().map(|code| {
            let index = index.filter(|_| !ends_batch(code));
            Error { index, ..Error::from(code).with_reason(REASON) }
        });
    }

    /// Returns whether these faults end the request, so that no other fault can follow.
    const fn ends_request(&self) -> bool {
        self.error.is_some() || self.disconnect.is_some()
    }

    /// Shortens the page that a plan reads.
    pub(crate) fn shorten_page(&self, plan: &mut Plan) {
        if let Some(rows) = self.page {
            plan.limit_page_rows(rows);
        }
    }

    /// Injects the faults into the operation `work`, which runs unless a fault prevents it.
    pub(crate) async fn run<E: From<Error>>(
        self,
        work: impl Future<Output = Result<Answer, E>>,
    ) -> Result<Answer, E> {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        if let Some(error) = self.error {
            return Err(error.into());
        }
        match self.disconnect {
            None => work.await,
            Some(Moment::Before) => Ok(Answer::status_only(STATUS_HANG_UP)),
            Some(Moment::After) => {
                // The client does not learn the outcome.
                let _ = work.await;
                Ok(Answer::status_only(STATUS_HANG_UP))
            }
        }
    }
}

/// Returns whether the error of an operation becomes the error of its whole batch: an error that clients retry, because
/// they look for such errors only outside the batch, or an error of the sender's credentials or account.
const fn ends_batch(code: Code) -> bool {
    matches!(
        code,
        Code::ServerBusy | Code::RequestTimedOut | Code::AuthenticationFailed | Code::AccountIsDisabled
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_that_rules_can_inject_has_a_unique_name() {
        for code in ERRORS {
            let rule = format!(r#"{{"error":"{}"}}"#, code.facts().code);
            let rule: FaultRule = serde_json::from_str(&rule).unwrap();
            assert_eq!((rule.code(), rule.check()), (Some(code), Ok(())));
        }
    }
}
