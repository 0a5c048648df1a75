//! What the code refers to is there: sections and numbered choices of docs/reference/protocol.md.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::files;

const PROTOCOL: &str = include_str!("../../../docs/reference/protocol.md");
/// What stands before the number of a section.
const SECTION: &str = "§";
/// What stands before the number of a choice.
const CHOICE: &str = "UNVERIFIED ";

/// The numbers that follow `mark` in a text, such as `3` and `10.5`.
fn numbers<'a>(text: &'a str, mark: &'a str) -> impl Iterator<Item = &'a str> {
    text.match_indices(mark).filter_map(move |(at, _)| {
        let rest = text[at + mark.len()..].trim_start_matches(' ');
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number = rest[..end].trim_end_matches('.');
        number.starts_with(|c: char| c.is_ascii_digit()).then_some(number)
    })
}

/// The sections of the page on the protocol.
fn sections() -> BTreeSet<&'static str> {
    let headings = PROTOCOL.lines().filter(|line| line.starts_with("##"));
    headings.flat_map(|line| numbers(line, SECTION)).collect()
}

/// The first cells of the table of choices, up to the one without numbers.
fn choices() -> BTreeSet<&'static str> {
    let title = format!("\n## {SECTION}15 What is not verified\n");
    let (_, rest) = PROTOCOL.split_once(&title).expect("a section with this title");
    let section = rest.split("\n## ").next().unwrap_or_default();
    let first = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(" | ").next());
    first.filter(|cell| cell.bytes().all(|b| b.is_ascii_digit())).collect()
}

/// The references of a text to what is not there.
fn unresolved(text: &str) -> Vec<String> {
    let (sections, choices) = (sections(), choices());
    let missing = |mark: &str, known: &BTreeSet<&str>| -> Vec<String> {
        let unknown = numbers(text, mark).filter(|number| !known.contains(number));
        unknown.map(|number| format!("{mark}{number}")).collect()
    };
    [missing(SECTION, &sections), missing(CHOICE, &choices)].concat()
}

#[test]
fn references_to_nothing_are_noticed() {
    let text = format!(
        "(protocol {SECTION}3.9, {SECTION} 99.1 and {SECTION}14.), {CHOICE}5, {CHOICE}99: {SECTION}x"
    );
    assert_eq!(unresolved(&text), [format!("{SECTION}99.1"), format!("{CHOICE}99")]);
}

#[test]
fn every_section_and_choice_that_is_referred_to_is_there() {
    let code = ["src", "crates", "tests", "benches", "fuzz"].map(|folder| (folder, "rs"));
    let folders = code.into_iter().chain([("docs", "md")]);
    let files: Vec<_> = folders.flat_map(|(folder, extension)| files(folder, extension)).collect();
    let wrong: Vec<String> = files
        .iter()
        .flat_map(|(path, text)| {
            unresolved(text).into_iter().map(move |what| format!("{}: {what}", path.display()))
        })
        .collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let in_code = |mark: &str| -> usize {
        let is_code =
            |path: &PathBuf| ["src", "crates", "tests"].iter().any(|folder| path.starts_with(folder));
        let code = files.iter().filter(|(path, _)| is_code(path));
        code.map(|(_, text)| numbers(text, mark).count()).sum()
    };
    assert!(in_code(SECTION) > 100 && in_code(CHOICE) > 20, "references are still spelled so");
}
