//! Faults that a test orders of its server.

use std::time::Duration;

use super::{Server, ServerError};
use crate::service::{DropMoment, FaultEffect, FaultRuleDocument, FaultRuleError};

/// A fault, and the requests that meet it: all, or those that the methods select. Of the matches it
/// meets the first, unless [`FaultRule::skip`] and [`FaultRule::times`] say otherwise.
///
/// ```
/// use rowhouse::testing::{FaultCount, FaultRule, Server};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = Server::start()?;
/// server.set_faults([
///     FaultRule::error("ServerBusy").operation("InsertEntity").times(2),
///     FaultRule::drop_after().table("Orders").skip(2),
/// ])?;
/// // … the code under test …
/// assert_eq!(server.faults()?, [FaultCount { matched: 0, hits: 0 }; 2]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRule(FaultRuleDocument);

/// What a [`FaultRule`] has counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultCount {
    /// Requests, and operations in batches, that matched.
    pub matched: u64,
    /// How many of them met the fault.
    pub hits: u64,
}

impl FaultRule {
    /// An error by its code, such as `ServerBusy`. Nothing is done.
    pub fn error(code: impl Into<String>) -> Self {
        Self::of(FaultEffect::Error(code.into()))
    }

    /// A delay of 1 ms to 30 s before the operation. Further rules apply after it.
    pub fn delay(time: Duration) -> Self {
        Self::of(FaultEffect::Delay(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
    }

    /// A connection that ends without an answer. Nothing is done.
    pub fn drop_before() -> Self {
        Self::of(FaultEffect::Drop(DropMoment::Before))
    }

    /// A connection that ends without an answer when the operation is done, so that its outcome is
    /// stored, but not known.
    pub fn drop_after() -> Self {
        Self::of(FaultEffect::Drop(DropMoment::After))
    }

    fn of(then: FaultEffect) -> Self {
        Self(FaultRuleDocument {
            account: None,
            operation: None,
            table: None,
            partition: None,
            row: None,
            skip: 0,
            times: 1,
            then,
        })
    }

    /// Selects the requests for an account.
    pub fn account(mut self, name: impl Into<String>) -> Self {
        self.0.account = Some(name.into());
        self
    }

    /// Selects an operation by its name in metrics, such as `InsertEntity`; inside transactions too.
    /// `EntityGroupTransaction` is a transaction as a whole.
    pub fn operation(mut self, name: impl Into<String>) -> Self {
        self.0.operation = Some(name.into());
        self
    }

    /// Selects a table, in any case.
    pub fn table(mut self, name: impl Into<String>) -> Self {
        self.0.table = Some(name.into());
        self
    }

    /// Selects a PartitionKey.
    pub fn partition(mut self, key: impl Into<String>) -> Self {
        self.0.partition = Some(key.into());
        self
    }

    /// Selects a RowKey.
    pub fn row(mut self, key: impl Into<String>) -> Self {
        self.0.row = Some(key.into());
        self
    }

    /// Leaves out the first matches; at most 1 000 000.
    pub fn skip(mut self, matches: u64) -> Self {
        self.0.skip = matches;
        self
    }

    /// Sets how many matches meet the fault; 1 to 1 000 000.
    pub fn times(mut self, matches: u64) -> Self {
        self.0.times = matches;
        self
    }
}

impl Server {
    /// Orders faults in place of all that were ordered before; none for an empty list. A reset
    /// removes them, too.
    ///
    /// # Errors
    /// Returns [`ServerError::Faults`] for names that the server does not know, for errors that an
    /// operation cannot have, for numbers out of their limits, and for more than 100 rules. The
    /// rules then stay as they were.
    pub fn set_faults(&self, rules: impl IntoIterator<Item = FaultRule>) -> Result<(), ServerError> {
        self.order(None, rules)
    }

    /// Orders faults of one account, in place of those that name it.
    ///
    /// # Errors
    /// As [`Server::set_faults`], for rules of other accounts, and [`ServerError::NoSuchAccount`].
    pub fn set_account_faults(
        &self,
        account: &str,
        rules: impl IntoIterator<Item = FaultRule>,
    ) -> Result<(), ServerError> {
        self.order(Some(&self.known(account)?), rules)
    }

    /// Returns the counts of all rules, in their order.
    ///
    /// # Errors
    /// Returns [`ServerError::Stopped`] if the server has stopped.
    pub fn faults(&self) -> Result<Vec<FaultCount>, ServerError> {
        let rules = self.service()?.fault_rules.list(None);
        Ok(rules.into_iter().map(|rule| FaultCount { matched: rule.matched, hits: rule.hits }).collect())
    }

    fn order(
        &self,
        account: Option<&str>,
        rules: impl IntoIterator<Item = FaultRule>,
    ) -> Result<(), ServerError> {
        let rules = rules.into_iter().map(|FaultRule(rule)| rule).collect();
        Ok(self.service()?.set_fault_rules(account, rules)?)
    }
}

impl From<FaultRuleError> for ServerError {
    fn from(error: FaultRuleError) -> Self {
        Self::Faults(error.into())
    }
}
