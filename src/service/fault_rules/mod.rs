//! Faults that a test orders: errors, delays and dropped connections, for the requests that rules
//! select. Rules are counted, so a test knows which request meets which fault.
//!
//! Only test mode and `rowhouse::testing` set rules.

mod active;
mod document;
mod due;
mod operations;

use std::sync::Arc;

use arc_swap::ArcSwap;

use active::ActiveRule;
pub(crate) use active::FaultSubject;
use document::MAX_RULES;
#[cfg(feature = "testing")]
pub(crate) use document::{DropMoment, FaultEffect};
pub(crate) use document::{FaultRuleCount, FaultRuleDocument, FaultRuleError};
pub(crate) use due::DueFault;

use crate::observe::metrics::OperationLabel;

/// The rules of a server; none at first.
#[derive(Default)]
pub(crate) struct FaultRules(ArcSwap<Vec<Arc<ActiveRule>>>);

impl FaultRules {
    /// Replaces the rules of an account, or all rules. Counts begin at zero.
    ///
    /// # Errors
    /// [`FaultRuleError`]; the rules stay as they were.
    pub(crate) fn replace(
        &self,
        account: Option<&str>,
        rules: Vec<FaultRuleDocument>,
        is_account: impl Fn(&str) -> bool,
    ) -> Result<(), FaultRuleError> {
        let activate = |(at, rule): (usize, FaultRuleDocument)| {
            let active = rule.of_account(account).and_then(|rule| ActiveRule::new(rule, &is_account));
            active.map(Arc::new).map_err(|reason| FaultRuleError::Invalid { number: at + 1, reason })
        };
        let rules = rules.into_iter().enumerate().map(activate).collect::<Result<Vec<_>, _>>()?;
        let mut is_full = false;
        self.0.rcu(|current| {
            let mut all = others(current, account);
            all.extend_from_slice(&rules);
            is_full = all.len() > MAX_RULES;
            if is_full { Arc::clone(current) } else { Arc::new(all) }
        });
        if is_full { Err(FaultRuleError::TooMany) } else { Ok(()) }
    }

    /// Removes the rules that name an account, or all rules.
    pub(crate) fn clear(&self, account: Option<&str>) {
        self.0.rcu(|current| others(current, account));
    }

    /// Returns the rules that name an account, or all rules, in their order.
    pub(crate) fn list(&self, account: Option<&str>) -> Vec<FaultRuleCount> {
        let rules = self.0.load();
        let listed = rules.iter().filter(|rule| account.is_none_or(|account| rule.is_of(account)));
        listed.map(|rule| rule.count()).collect()
    }

    /// Returns what is due for a request, which counts for the rules that it matches.
    pub(crate) fn due<'a>(&self, request: impl FnOnce() -> FaultSubject<'a>) -> Option<DueFault> {
        self.first_due(std::iter::once_with(|| (None, request())))
    }

    /// Returns what is due for a batch with at least one operation: for the batch as a whole, which
    /// has no row, then for its operations in order.
    pub(crate) fn due_in_batch<'a>(
        &self,
        batch: OperationLabel,
        operations: impl IntoIterator<Item = FaultSubject<'a>>,
    ) -> Option<DueFault> {
        let mut operations = operations.into_iter().enumerate().peekable();
        let (_, first) = *operations.peek()?;
        let batch = FaultSubject { operation: batch, row: None, is_in_batch: false, ..first };
        let operations =
            operations.map(|(at, operation)| (Some(at), FaultSubject { is_in_batch: true, ..operation }));
        self.first_due(std::iter::once((None, batch)).chain(operations))
    }

    /// Returns the delays up to the first error or drop, and that. What follows it is not matched.
    fn first_due<'a>(
        &self,
        subjects: impl IntoIterator<Item = (Option<usize>, FaultSubject<'a>)>,
    ) -> Option<DueFault> {
        let rules = self.0.load();
        if rules.is_empty() {
            return None;
        }
        let mut due = DueFault::default();
        for (at, subject) in subjects {
            for rule in rules.iter().filter(|rule| rule.hits(&subject)) {
                due.add(rule.action, at);
                if due.has_end() {
                    return Some(due);
                }
            }
        }
        due.has_delay().then_some(due)
    }
}

/// Returns the rules that do not name an account; none if no account is given.
fn others(rules: &[Arc<ActiveRule>], account: Option<&str>) -> Vec<Arc<ActiveRule>> {
    let is_other = |rule: &&Arc<ActiveRule>| account.is_some_and(|account| !rule.is_of(account));
    rules.iter().filter(is_other).cloned().collect()
}
