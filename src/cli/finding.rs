//! The findings of `rowhouse check`.

/// The result of one check.
pub(super) struct Finding {
    pub name: &'static str,
    pub verdict: CheckResult,
    pub found: String,
    /// The action that solves the problem; `None` if there is no problem.
    pub advice: Option<String>,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckResult {
    Ok,
    /// A server works, but possibly not as intended.
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
