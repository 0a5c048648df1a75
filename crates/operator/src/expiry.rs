//! Expiry: the rules of tables, and one step of the sweep that deletes expired entities.

use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::durations::{self, Time};
use super::indexes::IndexCatalog;
use super::{OperatorError, parse_table_name};
use crate::observe::metrics::METRICS;
use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::protocol::error::Code;
use crate::protocol::model::names::check_property_name;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::protocol::model::{CompareOp, EdmValue, Key, Stored, TableName, Ticks};
use crate::protocol::plan::index::{TIMESTAMP, ValueOrder};
use crate::protocol::plan::{Field, Predicate, Projection, Scan, Span};
use crate::store::{ExpiryRule, Failure, SWEEP_RETRY_PAUSE, Store, StoreResult, SweepState, TableExpiry};

/// Maximum number of entities that a step deletes. It is small, because writes to SQLite wait for the step.
const STEP_ROWS: usize = 500;
/// Maximum bytes of keys that a step reads.
const STEP_BYTES: usize = 1 << 20;
/// Maximum time that a step reads.
const STEP_TIME: Duration = Duration::from_millis(250);
/// The shortest and the longest default interval between the starts of two passes, in ticks.
const DEFAULT_INTERVALS: (i64, i64) = (60 * TICKS_PER_SECOND, 6 * 3600 * TICKS_PER_SECOND);
/// The shortest interval that an operator can set, in ticks.
const MIN_INTERVAL: i64 = TICKS_PER_SECOND;
/// The default interval is the delay divided by this number, within `DEFAULT_INTERVALS`. It is at most 2 % of a delay of
/// at least 50 minutes.
const INTERVAL_DIVISOR: i64 = 50;

/// A rule as operators write it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct NewRule {
    /// Age at which entities expire, since their Timestamp, such as 90s, 15m, 12h, 30d or 4w
    #[arg(long, value_name = "DURATION", required_unless_present = "at", conflicts_with_all = ["at", "plus"])]
    pub after: Option<String>,
    /// DateTime property with the time at which an entity expires; entities without it, or with another type,
    /// stay
    #[arg(long, value_name = "PROPERTY")]
    pub at: Option<String>,
    /// Duration to add to the time of that property
    #[arg(long, value_name = "DURATION", requires = "at")]
    pub plus: Option<String>,
    /// Minimum time between the starts of two passes over the table [default: a fiftieth of the age, 1m to
    /// 6h]
    #[arg(long, value_name = "DURATION")]
    pub every: Option<String>,
}

/// A rule, and how far its passes have come.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Expiry")]
pub struct ExpiryReport {
    pub account: String,
    pub table: String,
    /// The age at which entities expire; null if they expire at the time in a property.
    pub after: Option<String>,
    /// The property; null if entities expire by age.
    pub at: Option<String>,
    /// The duration that is added to the time in the property.
    pub plus: Option<String>,
    /// The minimum time between the starts of two passes.
    pub every: String,
    pub set: Time,
    /// Entities that had expired at this time are deleted; null before the end of the first pass.
    pub swept_until: Option<Time>,
    /// Whether a pass is under way.
    sweeping: bool,
    /// Seconds since the next pass should have begun; 0 if it is not late.
    pub behind_seconds: i64,
    /// Entities deleted since the rule was set.
    pub expired: u64,
}

impl ExpiryReport {
    fn new(expiry: &TableExpiry, now: Ticks) -> Self {
        let TableExpiry { account, table, rule, made, sweep, .. } = expiry;
        let (after, plus) = match rule.property {
            None => (Some(durations::display(rule.delay)), None),
            Some(_) => (None, Some(durations::display(rule.delay))),
        };
        Self {
            account: account.clone(),
            table: table.clone(),
            after,
            at: rule.property.clone(),
            plus,
            every: durations::display(rule.interval),
            set: Time(*made),
            swept_until: sweep.clean.map(Time),
            sweeping: sweep.began.is_some(),
            behind_seconds: behind(expiry, now) / TICKS_PER_SECOND,
            expired: sweep.expired,
        }
    }
}

/// A table by its account and name.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NamedTable {
    pub account: String,
    pub table: String,
}

impl NewRule {
    pub fn read(&self) -> Result<ExpiryRule, OperatorError> {
        let wrong = |text: &str| Err(OperatorError::Argument(text.to_owned()));
        let (property, delay) = match (&self.after, &self.at, &self.plus) {
            (Some(after), None, None) => (None, durations::parse(after)?),
            (None, Some(at), plus) => {
                let delay = plus.as_deref().map_or(Ok(0), durations::parse)?;
                (Some(property(at)?), delay)
            }
            (Some(_), ..) => {
                return wrong("after cannot be combined with at or plus: give the age, or the property");
            }
            (None, None, _) => return wrong("give after or at"),
        };
        if property.is_none() && delay == 0 {
            return wrong("after: must be at least 1s");
        }
        let interval = match self.every.as_deref().map(durations::parse).transpose()? {
            Some(interval) if interval < MIN_INTERVAL => return wrong("every: must be at least 1s"),
            Some(interval) => interval,
            None => (delay / INTERVAL_DIVISOR).clamp(DEFAULT_INTERVALS.0, DEFAULT_INTERVALS.1),
        };
        Ok(ExpiryRule { property, delay, interval })
    }
}

fn property(name: &str) -> Result<String, OperatorError> {
    let is_system = ["PartitionKey", "RowKey", "Timestamp"].contains(&name);
    if is_system || check_property_name(name).is_err() {
        return Err(OperatorError::Argument(format!(
            "at: {name} is not a property; to expire entities by their Timestamp, give after"
        )));
    }
    Ok(name.to_owned())
}

/// Lists the rules of one account or of all accounts.
pub async fn list(
    store: &Store,
    account: Option<&str>,
    now: Ticks,
) -> Result<Vec<ExpiryReport>, OperatorError> {
    Ok(store.expiries(account).await?.iter().map(|rule| ExpiryReport::new(rule, now)).collect())
}

/// Sets the rule of a table. Servers begin to sweep the table at once.
pub async fn set(
    store: &Store,
    account: &str,
    table: &str,
    rule: &NewRule,
    now: Ticks,
) -> Result<ExpiryReport, OperatorError> {
    let (table, rule) = (parse_table_name(table)?, rule.read()?);
    store.set_expiry(table.in_account(account), &rule, now).await?;
    let rules = store.expiries(Some(account)).await?;
    let set = rules.into_iter().find(|found| found.table.eq_ignore_ascii_case(table.as_given()));
    let set = same_rule(set.ok_or(OperatorError::TableNotFound)?, &rule)?;
    Ok(ExpiryReport::new(&set, now))
}

/// Returns the rule that was read back, unless another command has replaced the rule that was set.
fn same_rule(found: TableExpiry, rule: &ExpiryRule) -> Result<TableExpiry, OperatorError> {
    if found.rule == *rule { Ok(found) } else { Err(OperatorError::OtherRule) }
}

/// Removes the rule of a table. Entities that the rule has deleted stay deleted.
pub async fn clear(store: &Store, account: &str, table: &str) -> Result<NamedTable, OperatorError> {
    if store.clear_expiry(parse_table_name(table)?.in_account(account)).await? {
        return Ok(NamedTable { account: account.to_owned(), table: table.to_owned() });
    }
    Err(OperatorError::NotSet(format!("the account {account} has no table {table} whose entities expire")))
}

/// Returns the ticks since one interval after the start of the last finished pass, or after the rule was set; 0 before
/// that time.
fn behind(expiry: &TableExpiry, now: Ticks) -> i64 {
    let last = expiry.sweep.clean.filter(|clean| *clean <= now).unwrap_or(expiry.made);
    (now.raw() - last.raw().saturating_add(expiry.rule.interval)).max(0)
}

/// Returns the predicate for the entities that have expired; `None` if no entity can have expired yet. Only DateTime
/// values expire: a value of any other type compares as less than every time, so the lower bound excludes it.
pub(crate) fn expired_predicate(rule: &ExpiryRule, now: Ticks) -> Option<Predicate> {
    let cutoff = Ticks::from_raw(now.raw().saturating_sub(rule.delay))?;
    let compare = |field: Field, op, at| Predicate::Compare { field, op, literal: EdmValue::DateTime(at) };
    Some(match &rule.property {
        None => compare(Field::Timestamp, CompareOp::Le, cutoff),
        Some(property) => {
            let field = || Field::Custom(property.clone());
            Predicate::All(vec![
                compare(field(), CompareOp::Ge, Ticks::MIN),
                compare(field(), CompareOp::Le, cutoff),
            ])
        }
    })
}

static NOT_SWEPT: WarningLimiter = WarningLimiter::new();
static SWEPT: WarningLimiter = WarningLimiter::new();

/// Sweeps a table for a step: continues where the last step ended, and deletes the expired entities that were not
/// written since they were read. A table whose step has failed waits, so that the other tables are not blocked. Returns
/// whether the step found the maximum number of expired entities.
pub(crate) async fn step(store: &Store, expiry: &TableExpiry, now: Ticks) -> StoreResult<bool> {
    let failure = match try_step(store, expiry, now).await {
        Ok(done) => return Ok(done),
        Err(failure) => failure,
    };
    let due = now.later(SWEEP_RETRY_PAUSE);
    store.record_sweep(expiry, &SweepState { due, ..expiry.sweep.clone() }).await?;
    if let Some(DueWarning { left_out }) = NOT_SWEPT.due() {
        let TableExpiry { account, table, .. } = expiry;
        tracing::warn!(account, table, ?failure, left_out, "expired entities were not deleted; will retry");
    }
    Ok(false)
}

async fn try_step(store: &Store, expiry: &TableExpiry, now: Ticks) -> StoreResult<bool> {
    let (found, next) = find_expired(store, expiry, now).await?;
    let deleted = if found.is_empty() { 0 } else { store.delete_expired(expiry, &found).await? };
    METRICS.expired.add(deleted);
    if deleted > 0
        && let Some(DueWarning { left_out }) = SWEPT.due()
    {
        let (TableExpiry { account, table, .. }, now) = (expiry, now.to_canonical());
        tracing::info!(account, table, deleted, now, left_out, "deleted expired entities");
    }
    // A clock that was ahead may have recorded a time after `now`.
    let began = expiry.sweep.began.map_or(now, |began| began.min(now));
    let expired = expiry.sweep.expired.saturating_add(deleted);
    let sweep = match next {
        Some(next) => {
            SweepState { due: now, began: Some(began), position: Some(next), expired, ..expiry.sweep }
        }
        None => {
            let due = began.later(expiry.rule.interval).max(now);
            SweepState { due, began: None, position: None, clean: Some(began), expired }
        }
    };
    store.record_sweep(expiry, &sweep).await?;
    Ok(found.len() >= STEP_ROWS)
}

/// Returns the next entities that have expired, with their versions, and where to continue.
async fn find_expired(
    store: &Store,
    expiry: &TableExpiry,
    now: Ticks,
) -> StoreResult<(Vec<(Key, Ticks)>, Option<Key>)> {
    let Some(predicate) = expired_predicate(&expiry.rule, now) else { return Ok((Vec::new(), None)) };
    let table = TableName::parse(&expiry.table)?;
    let lower = expiry.sweep.position.clone().unwrap_or_else(|| Key::new("", ""));
    let scan = Scan {
        residual: Some(predicate),
        rows: STEP_ROWS,
        bytes: STEP_BYTES,
        time: STEP_TIME,
        projection: Projection::SystemOnly,
        ..Scan::of_spans(vec![Span { lower, upper: None }])
    };
    let read =
        async |scan: &Scan| store.page(table.in_account(&expiry.account), scan, Vec::<Stored>::new()).await;
    let mut page = match oldest_first_scan(store, expiry, &table, &scan).await? {
        Some(oldest_first) => read(&oldest_first).await,
        None => read(&scan).await,
    };
    // The database has lost the index.
    if matches!(&page, Err(Failure::Refused(error)) if error.code == Code::NotImplemented) {
        page = read(&scan).await;
    }
    match page {
        Ok((found, end)) => {
            // In the order of an index, the next scan starts at the beginning, because the entities of this page are
            // deleted by then.
            let next = end.next.or_else(|| end.next_in_index.map(|_| Key::new("", "")));
            Ok((found.into_iter().map(|entity| (entity.key, entity.modified)).collect(), next))
        }
        // The table was deleted a moment ago, with its rule.
        Err(Failure::Refused(error)) if error.code == Code::TableNotFound => Ok((Vec::new(), None)),
        Err(failure) => Err(failure),
    }
}

/// Returns the scan in the order of expiry; `None` without an index for this order.
async fn oldest_first_scan(
    store: &Store,
    expiry: &TableExpiry,
    table: &TableName,
    scan: &Scan,
) -> StoreResult<Option<Scan>> {
    let property = expiry.rule.property.as_deref().unwrap_or(TIMESTAMP);
    let by = Some(Box::new(ValueOrder::by(property)));
    let mut ordered = Scan { by, spans: vec![Span::everything()], ..scan.clone() };
    let indexes = IndexCatalog::new(store.indexes().await?);
    let is_applied = indexes.apply(&expiry.account, table, &mut ordered).is_ok();
    let is_narrowed = ordered.by.as_ref().is_some_and(|by| by.range.is_some());
    Ok((is_applied && is_narrowed).then_some(Scan { indexed: Vec::new(), ..ordered }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::codec::stored;
    use crate::protocol::plan::predicate::Prepared;

    fn text(after: Option<&str>, at: Option<&str>, plus: Option<&str>, every: Option<&str>) -> NewRule {
        let [after, at, plus, every] = [after, at, plus, every].map(|part| part.map(str::to_owned));
        NewRule { after, at, plus, every }
    }

    #[test]
    fn a_rule_is_not_reported_as_set_if_another_one_is_found() {
        let rule = |delay| ExpiryRule { property: None, delay, interval: 1 };
        let now = Ticks::MIN;
        let sweep = SweepState { due: now, began: None, position: None, clean: None, expired: 0 };
        let (account, table) = ("a".to_owned(), "t".to_owned());
        let found = TableExpiry { table_no: 7, spread: 1, account, table, rule: rule(5), made: now, sweep };
        assert_eq!(same_rule(found.clone(), &rule(5)), Ok(found.clone()));
        assert_eq!(same_rule(found, &rule(6)), Err(OperatorError::OtherRule));
    }

    #[test]
    fn rules_are_read_as_operators_write_them() {
        let second = TICKS_PER_SECOND;
        let rule = text(Some("100d"), None, None, None).read().unwrap();
        assert_eq!((rule.property, rule.delay, rule.interval), (None, 8_640_000 * second, 6 * 3600 * second));
        let rule = text(None, Some("Expires"), None, None).read().unwrap();
        assert_eq!((rule.property.as_deref(), rule.delay, rule.interval), (Some("Expires"), 0, 60 * second));
        let rule = text(None, Some("Expires"), Some("5h"), Some("1s")).read().unwrap();
        assert_eq!((rule.delay, rule.interval), (18_000 * second, second));
        for (after, at, plus, every) in [
            (None, None, None, None),
            (Some("1d"), Some("Expires"), None, None),
            (Some("1d"), None, Some("1d"), None),
            (None, None, Some("1d"), None),
            (Some("0s"), None, None, None),
            (Some("soon"), None, None, None),
            (Some("1d"), None, None, Some("0s")),
            (None, Some("Timestamp"), None, None),
            (None, Some("no name"), None, None),
        ] {
            assert!(text(after, at, plus, every).read().is_err(), "{after:?} {at:?} {plus:?} {every:?}");
        }
    }

    #[test]
    fn only_dates_that_have_passed_expire() {
        let at = |text: &str| Ticks::parse(text).unwrap();
        let rule = ExpiryRule { property: Some("E".into()), delay: 3600 * TICKS_PER_SECOND, interval: 1 };
        let predicate = expired_predicate(&rule, at("2020-01-01T01:00:00Z")).unwrap();
        let holds = |value: EdmValue| {
            let entity = Stored {
                key: Key::new("p", "r"),
                modified: Ticks::MIN,
                properties: stored::encode(&[("E", value)]),
            };
            Prepared::new(&predicate).matches((&entity).into()).unwrap()
        };
        assert!(holds(EdmValue::DateTime(at("2020-01-01T00:00:00Z"))));
        assert!(holds(EdmValue::DateTime(Ticks::MIN)));
        assert!(!holds(EdmValue::DateTime(at("2020-01-01T00:00:00.0000001Z"))));
        for other in [
            EdmValue::String("2019-01-01T00:00:00Z".into()),
            EdmValue::Int64(0),
            EdmValue::Double(f64::NAN),
            EdmValue::Boolean(false),
            EdmValue::Guid(uuid::Uuid::nil()),
            EdmValue::Binary(Vec::new()),
        ] {
            assert!(!holds(other.clone()), "{other:?}");
        }
        let missing = ExpiryRule { property: Some("Other".into()), ..rule };
        let predicate = expired_predicate(&missing, Ticks::MAX).unwrap();
        let entity = Stored {
            key: Key::new("p", "r"),
            modified: Ticks::MIN,
            properties: stored::encode(&[("E", EdmValue::Int32(1))]),
        };
        assert!(!Prepared::new(&predicate).matches((&entity).into()).unwrap());
        let ages = ExpiryRule { property: None, delay: i64::MAX, interval: 1 };
        assert_eq!(expired_predicate(&ages, Ticks::MAX), None, "nothing is that old");
    }
}
