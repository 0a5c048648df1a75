//! Faults that a test orders of its server.

use std::time::Duration;

use super::{Server, ServerError};
use crate::service::{FaultRule, Moment};

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
        Self { error: Some(code.into()), ..Self::default() }
    }

    /// A delay of 1 ms to 30 s before the operation. Further rules apply after it.
    pub fn delay(time: Duration) -> Self {
        Self { delay: Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)), ..Self::default() }
    }

    /// A connection that ends without an answer. Nothing is done.
    pub fn disconnect_before() -> Self {
        Self { disconnect: Some(Moment::Before), ..Self::default() }
    }

    /// A connection that ends without an answer when the operation is done, so that its outcome is
    /// stored, but not known.
    pub fn disconnect_after() -> Self {
        Self { disconnect: Some(Moment::After), ..Self::default() }
    }

    /// A short page: the answer to a query has at most `most` entities or tables, 1 to 1000, and a
    /// continuation token if there are more. Further rules apply to it.
    pub fn page(most: usize) -> Self {
        Self { page: Some(most), ..Self::default() }
    }

    /// Selects an operation by its name in metrics, such as `InsertEntity`; inside transactions too.
    /// `EntityGroupTransaction` is a transaction as a whole.
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

impl Server {
    /// Orders faults in place of all that were ordered before; none for an empty list. A reset of all
    /// accounts removes them, too.
    ///
    /// ```
    /// use rowhouse::testing::{FaultCount, FaultRule, Server};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = Server::start()?;
    /// server.set_faults([
    ///     FaultRule::error("ServerBusy").operation("InsertEntity").times(2),
    ///     FaultRule::disconnect_after().table("Orders").after(2),
    ///     FaultRule::page(1).operation("QueryEntities").times(1000),
    /// ])?;
    /// // … the code under test …
    /// assert_eq!(server.faults()?, [FaultCount { matched: 0, hits: 0 }; 3]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`ServerError::Faults`] for names that the server does not know, for errors of malformed
    /// requests, for numbers out of their limits, and for more than 100 rules. The rules then stay as
    /// they were.
    pub fn set_faults(&self, rules: impl IntoIterator<Item = FaultRule>) -> Result<(), ServerError> {
        let rules = self.service()?.fault_rules.replace(rules.into_iter().collect());
        rules.map_err(|error| ServerError::Faults(error.into()))
    }

    /// Returns the counts of all rules, in their order.
    ///
    /// # Errors
    /// Returns [`ServerError::Stopped`] if the server has stopped.
    pub fn faults(&self) -> Result<Vec<FaultCount>, ServerError> {
        let rules = self.service()?.fault_rules.list();
        Ok(rules.into_iter().map(|rule| FaultCount { matched: rule.matched, hits: rule.hits }).collect())
    }
}
