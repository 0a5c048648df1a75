//! The selection of tables and entities that a command applies to.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::protocol::model::Ticks;
use crate::protocol::odata::{self, Grammar};
use crate::protocol::plan::filter::{self, Subject};
use crate::protocol::plan::predicate::Predicate;

/// Whether a place distinguishes tables by the case of their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NameCase {
    #[default]
    Ignored,
    /// `People` and `people` are two tables, as in Cosmos DB.
    Distinguished,
}

impl NameCase {
    pub fn is_same(self, a: &str, b: &str) -> bool {
        match self {
            NameCase::Ignored => a.eq_ignore_ascii_case(b),
            NameCase::Distinguished => a == b,
        }
    }

    /// Returns a name or pattern as it is compared.
    pub(crate) fn fold(self, name: &str) -> Cow<'_, str> {
        match self {
            NameCase::Ignored => name.to_ascii_lowercase().into(),
            NameCase::Distinguished => name.into(),
        }
    }

    pub(crate) fn fold_all(self, names: &[String]) -> HashSet<String> {
        names.iter().map(|name| self.fold(name).into_owned()).collect()
    }
}

/// The tables and entities that a command applies to: all by default.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Patterns of table names with `*` and `?`; empty selects all.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// How the names of tables are compared with the patterns.
    pub name_case: NameCase,
    pub filter: Option<String>,
    /// Selects entities changed at this time or later.
    pub since: Option<Ticks>,
    /// Maximum comparisons of the filter.
    pub max_comparisons: usize,
}

impl Selection {
    pub fn has_table(&self, name: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| self.matches(pattern, name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    fn matches(&self, pattern: &str, name: &str) -> bool {
        matches(&self.name_case.fold(pattern), &self.name_case.fold(name))
    }

    /// Whether all tables and entities are selected; `since` is ignored.
    pub fn is_everything(&self) -> bool {
        self.include.is_empty() && self.exclude.is_empty() && self.filter.is_none()
    }

    /// Returns the names and the patterns that match none of these tables.
    pub fn unmatched(&self, tables: &[String]) -> (Vec<&str>, Vec<&str>) {
        let is_unmatched = |pattern: &&str| !tables.iter().any(|table| self.matches(pattern, table));
        let given = self.include.iter().chain(&self.exclude).map(String::as_str);
        given.filter(is_unmatched).partition(|pattern| !pattern.contains(['*', '?']))
    }

    /// Returns the filter with `since`, as text.
    pub(crate) fn filter_text(&self) -> Option<String> {
        let since = self.since.map(|since| format!("Timestamp ge datetime'{}'", since.to_canonical()));
        match (&self.filter, since) {
            (None, since) => since,
            (Some(filter), None) => Some(filter.clone()),
            (Some(filter), Some(since)) => Some(format!("({filter}) and {since}")),
        }
    }

    /// Returns the filter with `since`, for the stores.
    pub fn predicate(&self) -> Result<Option<Predicate>, String> {
        self.parse_filter(true)
    }

    /// Returns the filter with `since`, limited to Azure's filters.
    pub(crate) fn predicate_for_endpoint(&self) -> Result<Option<Predicate>, String> {
        self.parse_filter(false)
    }

    fn parse_filter(&self, extended: bool) -> Result<Option<Predicate>, String> {
        let Some(text) = self.filter_text() else { return Ok(None) };
        let grammar = Grammar { max_comparisons: self.max_comparisons.max(1000), extended };
        let parsed = odata::parse(&text, grammar);
        let read = parsed.and_then(|expression| filter::predicate(&expression, Subject::Entities));
        read.map(Some).map_err(|error| error.text().to_owned())
    }
}

/// Whether a text matches a pattern with `*` (any text) and `?` (any character).
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, from)) = star else { return false };
                star = Some((at, from + 1));
                p = at + 1;
                t = from + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_select_tables_by_case_where_names_differ_by_it() {
        let select = |include: &[&str], exclude: &[&str]| Selection {
            include: include.iter().map(|p| (*p).to_owned()).collect(),
            exclude: exclude.iter().map(|p| (*p).to_owned()).collect(),
            ..Selection::default()
        };
        assert!(select(&[], &[]).has_table("Anything"));
        let some = select(&["log*", "People"], &["*2020?"]);
        for (name, expected) in
            [("Logs", true), ("log20201", false), ("log2020", true), ("people", true), ("peoples", false)]
        {
            assert_eq!(some.has_table(name), expected, "{name}");
        }
        let exact = Selection { name_case: NameCase::Distinguished, ..some };
        assert!(exact.has_table("People") && exact.has_table("logs"));
        assert!(!exact.has_table("people") && !exact.has_table("Logs"));
        let (names, _) = exact.unmatched(&["people".into()]);
        assert_eq!(names, ["People"]);
    }

    #[test]
    fn since_and_a_filter_are_joined() {
        let since = Ticks::parse("2026-01-02T03:04:05Z").ok();
        let both = Selection { filter: Some("A eq 1 or B eq 2".into()), since, ..Selection::default() };
        assert_eq!(
            both.filter_text().as_deref(),
            Some("(A eq 1 or B eq 2) and Timestamp ge datetime'2026-01-02T03:04:05Z'")
        );
        assert!(both.predicate().is_ok_and(|predicate| predicate.is_some()));
        let wrong = Selection { filter: Some("A eq".into()), ..Selection::default() };
        assert!(wrong.predicate().is_err());
        let extended = Selection { filter: Some("startswith(A,'x')".into()), ..Selection::default() };
        assert!(extended.predicate().is_ok() && extended.predicate_for_endpoint().is_err());
    }
}
