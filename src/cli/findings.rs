//! The findings of `rowhouse check`, and that about the version of PostgreSQL.

use std::ops::RangeInclusive;

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

/// The major versions that the tests cover.
const TESTED: RangeInclusive<u32> = 14..=18;

/// Judges the database product at a place.
pub(super) fn of_product(product: &str, place: &str) -> Finding {
    let (oldest, newest) = (TESTED.start(), TESTED.end());
    let found = format!("{product} answers at {place}");
    match major_version(product) {
        Some(version) if version < *oldest => {
            let why = format!("{found}; before PostgreSQL {oldest}, statements on partitions are slow");
            problem("database", why, format!("upgrade it to PostgreSQL {oldest} or newer"))
        }
        Some(version) if version > *newest => {
            let advice = format!(
                "test your programs with it before you rely on it: Rowhouse was tested with PostgreSQL up \
                 to {newest}"
            );
            warning("database", found, advice)
        }
        _ => ok("database", found),
    }
}

/// Returns the major version of PostgreSQL, such as 14 of `PostgreSQL 14.20` or 19 of `PostgreSQL 19beta1`.
fn major_version(product: &str) -> Option<u32> {
    let version = product.strip_prefix("PostgreSQL ")?;
    version.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_not_tested_are_told() {
        for (product, expected) in [
            ("PostgreSQL 9.6.24", CheckResult::Problem),
            ("PostgreSQL 13.23", CheckResult::Problem),
            ("PostgreSQL 14.20", CheckResult::Ok),
            ("PostgreSQL 18.1", CheckResult::Ok),
            ("PostgreSQL 19beta1", CheckResult::Warning),
            ("PostgreSQL", CheckResult::Ok),
            ("SQLite 3.50.4", CheckResult::Ok),
        ] {
            assert_eq!(of_product(product, "here").verdict, expected, "{product}");
        }
    }
}
