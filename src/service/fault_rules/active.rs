//! A rule that is in effect: what it matches, and its count.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::document::{FaultEffect, FaultRuleCount, FaultRuleDocument, InvalidRule};
use super::due::FaultAction;
use super::operations::{can_have, code_of, has_partition, has_row, has_table};
use crate::observe::metrics::OperationLabel;
use crate::protocol::model::{Key, TableName};
use crate::protocol::plan::{Plan, Write};

/// Maximum of the counts of a rule.
const MAX_COUNT: u64 = 1_000_000;
/// Maximum milliseconds of a delay: an operation ends by then.
const MAX_DELAY: u64 = 30_000;

/// What rules select by: a request, or an operation in a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FaultSubject<'a> {
    pub account: &'a str,
    pub operation: OperationLabel,
    pub table: Option<&'a TableName>,
    pub partition: Option<&'a str>,
    pub row: Option<&'a str>,
    /// Whether it is an operation in a batch.
    pub is_in_batch: bool,
}

impl<'a> FaultSubject<'a> {
    /// Returns what a plan is about, outside a batch.
    pub(crate) fn of(account: &'a str, operation: OperationLabel, plan: &'a Plan) -> Self {
        let (table, partition, row) = plan.subject();
        Self { account, operation, table, partition, row, is_in_batch: false }
    }

    /// Returns what a write in a batch is about.
    pub(crate) fn of_write(account: &'a str, table: &'a TableName, write: &'a Write) -> Self {
        let (operation, Key { partition, row }) = (write.kind.label(), &write.key);
        let (table, partition, row) = (Some(table), Some(partition.as_str()), Some(row.as_str()));
        Self { account, operation, table, partition, row, is_in_batch: true }
    }
}

/// A valid rule, and what it has counted.
#[derive(Debug)]
pub(super) struct ActiveRule {
    rule: FaultRuleDocument,
    operation: Option<OperationLabel>,
    table: Option<TableName>,
    pub(super) action: FaultAction,
    matched: AtomicU64,
}

impl ActiveRule {
    /// Checks a rule.
    pub(super) fn new(
        rule: FaultRuleDocument,
        is_account: impl Fn(&str) -> bool,
    ) -> Result<Self, InvalidRule> {
        if let Some(unknown) = rule.account.as_ref().filter(|account| !is_account(account)) {
            return Err(InvalidRule::Account(unknown.clone()));
        }
        let operation = rule.operation.as_deref().map(operation_of).transpose()?;
        let parse = |name: &String| TableName::parse(name).map_err(|_| InvalidRule::Table(name.clone()));
        let table = rule.table.as_ref().map(parse).transpose()?;
        if let Some(operation) = operation {
            check_members(&rule, operation)?;
        }
        check_number("skip", rule.skip, 0..=MAX_COUNT)?;
        check_number("times", rule.times, 1..=MAX_COUNT)?;
        let action = action_of(&rule.then, operation)?;
        Ok(Self { rule, operation, table, action, matched: AtomicU64::new(0) })
    }

    /// Whether the rule names this account.
    pub(super) fn is_of(&self, account: &str) -> bool {
        self.rule.account.as_deref() == Some(account)
    }

    /// Returns the rule with its count.
    pub(super) fn count(&self) -> FaultRuleCount {
        let FaultRuleDocument { skip, times, .. } = self.rule;
        let matched = self.matched.load(Ordering::Relaxed);
        FaultRuleCount { rule: self.rule.clone(), matched, hits: matched.saturating_sub(skip).min(times) }
    }

    /// Counts the subject if it matches, and returns whether it meets the fault. Each match has a
    /// number of its own, however many there are at a time.
    pub(super) fn hits(&self, subject: &FaultSubject<'_>) -> bool {
        let FaultRuleDocument { skip, times, .. } = self.rule;
        self.matches(subject) && (skip..skip + times).contains(&self.matched.fetch_add(1, Ordering::Relaxed))
    }

    fn matches(&self, subject: &FaultSubject<'_>) -> bool {
        let rule = &self.rule;
        let is =
            |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
        // A batch is one request. Only its operations have a row.
        let operation = match self.operation {
            Some(operation) => operation == subject.operation,
            None => !subject.is_in_batch || rule.row.is_some(),
        };
        let table = self.table.as_ref().map(TableName::lower);
        operation
            && is(&rule.account, Some(subject.account))
            && (table.is_none() || table == subject.table.map(TableName::lower))
            && is(&rule.partition, subject.partition)
            && is(&rule.row, subject.row)
    }
}

/// Finds an operation that rules can name: one that can be planned.
fn operation_of(name: &str) -> Result<OperationLabel, InvalidRule> {
    let planned =
        |label: &OperationLabel| !matches!(label, OperationLabel::Unknown | OperationLabel::Preflight);
    let found = OperationLabel::ALL.iter().copied().filter(planned).find(|label| label.text() == name);
    found.ok_or_else(|| InvalidRule::Operation(name.to_owned()))
}

/// Refuses a rule that could match nothing.
fn check_members(rule: &FaultRuleDocument, operation: OperationLabel) -> Result<(), InvalidRule> {
    for (name, is_named, has) in [
        ("table", rule.table.is_some(), has_table(operation)),
        ("partition", rule.partition.is_some(), has_partition(operation)),
        ("row", rule.row.is_some(), has_row(operation)),
    ] {
        if is_named && !has {
            return Err(InvalidRule::Member(operation.text(), name));
        }
    }
    Ok(())
}

fn check_number(name: &'static str, number: u64, limits: RangeInclusive<u64>) -> Result<(), InvalidRule> {
    match limits.contains(&number) {
        true => Ok(()),
        false => Err(InvalidRule::Number(name, *limits.start(), *limits.end())),
    }
}

fn action_of(effect: &FaultEffect, operation: Option<OperationLabel>) -> Result<FaultAction, InvalidRule> {
    match effect {
        FaultEffect::Error(name) => {
            let code = code_of(name).ok_or_else(|| InvalidRule::Code(name.clone()))?;
            match can_have(operation, code) {
                true => Ok(FaultAction::Error(code)),
                false => {
                    let operation = operation.map_or("every operation", OperationLabel::text);
                    Err(InvalidRule::CodeOfOperation(operation, code.facts().code))
                }
            }
        }
        FaultEffect::Delay(delay) => {
            check_number("delay", *delay, 1..=MAX_DELAY)?;
            Ok(FaultAction::Delay(Duration::from_millis(*delay)))
        }
        FaultEffect::Drop(moment) => Ok(FaultAction::Drop(*moment)),
    }
}
