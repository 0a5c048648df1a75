//! What `rowhouse check` finds.

/// The result of one check.
pub(super) struct Finding {
    pub name: &'static str,
    pub verdict: CheckResult,
    pub found: String,
    /// What to do; `None` if all is well.
    pub advice: Option<String>,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckResult {
    Ok,
    /// A server works, but perhaps not as intended.
    Warning,
    Problem,
}

pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Finding {
    Finding { name, verdict: CheckResult::Ok, found: found.into(), advice: None }
}

pub(super) fn warning(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { name, verdict: CheckResult::Warning, found: found.into(), advice: Some(advice.into()) }
}

pub(super) fn problem(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { name, verdict: CheckResult::Problem, found: found.into(), advice: Some(advice.into()) }
}
