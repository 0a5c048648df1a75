//! `docs/reference/errors.md` has a row for each code, as the server answers it.

use std::collections::BTreeSet;

use rowhouse_protocol::error::Code;

use super::cells;

const TEXT: &str = include_str!("../../../docs/reference/errors.md");
pub(super) const PAGE: &str = "docs/reference/errors.md";
/// The columns of its tables.
const HEADER: [&str; 5] = ["status", "code", "message", "when", "what to do"];

/// Status, code and message of each row.
fn listed() -> Vec<[String; 3]> {
    let rows = TEXT.lines().filter_map(cells).filter(|row| {
        row.len() == HEADER.len() && *row != HEADER && !row.iter().all(|cell| cell.starts_with("---"))
    });
    let facts = rows.map(|row| {
        assert!(row.iter().all(|cell| !cell.is_empty()), "{row:?}");
        [row[0].to_owned(), row[1].trim_matches('`').to_owned(), row[2].to_owned()]
    });
    facts.collect()
}

#[test]
fn every_error_is_on_the_page_as_it_is_answered() {
    let listed = listed();
    let answered = Code::ALL.map(|code| {
        let facts = code.facts();
        [facts.status.to_string(), facts.code.to_owned(), facts.message.to_owned()]
    });
    let (on_page, known) = (BTreeSet::from_iter(&listed), BTreeSet::from_iter(&answered));
    let missing: Vec<_> = known.difference(&on_page).collect();
    assert!(missing.is_empty(), "not on the page: {missing:#?}");
    let invented: Vec<_> = on_page.difference(&known).collect();
    assert!(invented.is_empty(), "never answered: {invented:#?}");
    assert_eq!(listed.len(), on_page.len(), "a row twice");
}
