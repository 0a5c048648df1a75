//! Rules as tests write and read them.

use serde::{Deserialize, Serialize};

/// Maximum rules of a server.
pub(super) const MAX_RULES: usize = 100;

/// A fault, and the requests that it is for. What a rule does not name, it does not select by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaultRuleDocument {
    /// The name of an account of the server.
    pub account: Option<String>,
    /// An operation, as metrics name it: `InsertEntity`.
    pub operation: Option<String>,
    /// The name of a table, in any case.
    pub table: Option<String>,
    /// A PartitionKey. A query has it if its filter fixes it.
    pub partition: Option<String>,
    /// A RowKey. A query has it if its filter fixes both keys.
    pub row: Option<String>,
    /// How many matches come before the first fault; at most 1 000 000.
    #[serde(default)]
    pub skip: u64,
    /// How many matches meet the fault; 1 to 1 000 000.
    #[serde(default = "once")]
    pub times: u64,
    /// The fault.
    pub then: FaultEffect,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum FaultEffect {
    /// An error of the service, by its code: `ServerBusy`. Nothing is done.
    Error(String),
    /// Milliseconds to wait before the operation; 1 to 30 000. Further rules apply after it.
    Delay(u64),
    /// The connection ends without an answer.
    Drop(DropMoment),
}

/// When a connection is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DropMoment {
    /// Nothing is done.
    Before,
    /// The operation is done: what it writes is stored.
    After,
}

/// A rule, and what it has counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct FaultRuleCount {
    /// The rule.
    #[serde(flatten)]
    pub rule: FaultRuleDocument,
    /// Matches so far.
    pub matched: u64,
    /// How many of them met the fault.
    pub hits: u64,
}

/// Why rules were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FaultRuleError {
    /// The server would have more than 100 rules.
    #[error("a server has at most {MAX_RULES} rules")]
    TooMany,
    /// A rule is invalid.
    #[error("rule {number}: {reason}")]
    Invalid {
        /// Its place in the list, from 1 on.
        number: usize,
        /// What is wrong.
        reason: InvalidRule,
    },
}

/// What is wrong with a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidRule {
    /// The server has no such account.
    #[error("there is no account {0:?}")]
    Account(String),
    /// Only rules of the account that the request names can be set.
    #[error("it is for account {0:?}, not for the one that is set")]
    OtherAccount(String),
    /// There is no such operation.
    #[error("there is no operation {0:?}")]
    Operation(String),
    /// No table can have this name.
    #[error("no table is called {0:?}")]
    Table(String),
    /// The operation has no table, partition or row, so the rule would match nothing.
    #[error("{0} has no {1}")]
    Member(&'static str, &'static str),
    /// The service has no such error.
    #[error("there is no error {0:?}, or only malformed requests get it")]
    Code(String),
    /// The operation cannot fail like this.
    #[error("{0} cannot fail with {1}")]
    CodeOfOperation(&'static str, &'static str),
    /// A number is out of its limits.
    #[error("{0} is {1} to {2}")]
    Number(&'static str, u64, u64),
}

const fn once() -> u64 {
    1
}

impl FaultRuleDocument {
    /// Returns this rule for an account; unchanged if none is given.
    ///
    /// # Errors
    /// If it names another one.
    pub(super) fn of_account(mut self, account: Option<&str>) -> Result<Self, InvalidRule> {
        let Some(account) = account else { return Ok(self) };
        let named = self.account.get_or_insert_with(|| account.to_owned());
        if named == account { Ok(self) } else { Err(InvalidRule::OtherAccount(named.clone())) }
    }
}
