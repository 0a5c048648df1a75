//! Fault injection for tests: errors, delays, connections that end without a response, and short pages. Rules
//! count their matches, so a test knows which request gets which fault.
//!
//! Only test mode and `rowhouse::testing` set rules.

mod injection;
mod rule;

use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use injection::Injection;
#[cfg_attr(
    not(feature = "testing"),
    expect(unreachable_pub, reason = "only rowhouse::testing exports it")
)]
pub use rule::FaultRule;
pub(crate) use rule::FaultSubject;
#[cfg(feature = "testing")]
pub(crate) use rule::Moment;

/// Maximum number of rules on a server.
const MAX_RULES: usize = 100;

/// The rules of a server, each with its number of matches. There are none at first.
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
    pub(crate) fn injection<'a>(
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
                    if faults.end_request() {
                        return injection;
                    }
                }
            }
        }
        injection
    }
}
