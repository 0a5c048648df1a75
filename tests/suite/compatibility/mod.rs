//! `docs/reference/compatibility.md`, made from `page.md` beside this file: the same text,
//! but that proofs become links, the codes are those of the server, and what a
//! row does not say of the service or of Azurite is filled in.
//!
//! A table whose last column is `proved by` claims something, so each row of it
//! names proofs, or `-` where nothing but the words is there. `scripts/compatibility`
//! writes the page anew.

mod errors;
mod proofs;

use std::collections::BTreeMap;

use proofs::{Proof, read, root};
use rowhouse::error::Code;

const SOURCE: &str = "tests/suite/compatibility/page.md";
const PAGE: &str = "docs/reference/compatibility.md";
/// Set by `scripts/compatibility`.
const WRITE: &str = "ROWHOUSE_WRITE_COMPATIBILITY";
/// The last column of tables whose rows are proved.
const PROVED: &str = "proved by";
/// How the first column of tables begins whose methods the tests of SDKs have to call.
const METHODS: &str = "methods of ";

/// A line of a table, without its outer bars.
fn cells(line: &str) -> Option<Vec<&str>> {
    let inner = line.strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(str::trim).collect())
}

/// What was found while the page was made.
#[derive(Default)]
struct Page {
    text: String,
    proofs: Vec<Proof>,
    mistakes: Vec<String>,
    /// The header of the table that the next line may belong to.
    header: Vec<String>,
}

impl Page {
    fn make(source: &str) -> Self {
        let mut page = Self::default();
        for line in source.lines() {
            page.line(line);
        }
        page
    }

    fn line(&mut self, line: &str) {
        let made = match (cells(line), line) {
            (_, "{codes}") => codes(),
            (None, _) => {
                self.header.clear();
                line.to_owned()
            }
            (Some(cells), _) if self.header.is_empty() => {
                self.header = cells.iter().map(|cell| (*cell).to_owned()).collect();
                line.to_owned()
            }
            (Some(cells), _) if cells.iter().all(|cell| cell.starts_with("---")) => line.to_owned(),
            (Some(cells), _) if self.header.last().is_some_and(|last| last == PROVED) => {
                self.row(line, &cells)
            }
            _ => line.to_owned(),
        };
        self.text.push_str(&made);
        self.text.push('\n');
    }

    /// A row that is proved.
    fn row(&mut self, line: &str, cells: &[&str]) -> String {
        if cells.len() != self.header.len() {
            self.mistakes.push(format!("{line}: not {} cells", self.header.len()));
            return line.to_owned();
        }
        let (named, said) = cells.split_last().expect("a row has cells");
        let proofs = self.proofs_of(line, named);
        if self.header[0].starts_with(METHODS) && !proofs.is_empty() {
            self.mistakes
                .extend(uncalled(said[0], &proofs).map(|name| format!("{line}: nothing calls {name}")));
        }
        let filled = self.header.iter().zip(said).map(|(column, cell)| match (column.as_str(), *cell) {
            ("Azure", "") => "the same".to_owned(),
            (_, cell) => cell.to_owned(),
        });
        let filled: Vec<String> = filled.chain([links(&proofs)]).collect();
        self.proofs.extend(proofs);
        format!("| {} |", filled.join(" | ")).replace("|  |", "| |")
    }

    fn proofs_of(&mut self, line: &str, named: &str) -> Vec<Proof> {
        let mut found = Vec::new();
        match named {
            "-" => {}
            "" => self.mistakes.push(format!("{line}: neither a proof nor -")),
            _ => {
                for name in named.split_whitespace() {
                    match Proof::find(name) {
                        Ok(proof) => found.push(proof),
                        Err(mistake) => self.mistakes.push(mistake),
                    }
                }
            }
        }
        found
    }
}

/// Methods in backticks that no proof calls.
fn uncalled<'a>(cell: &'a str, proofs: &[Proof]) -> impl Iterator<Item = &'a str> {
    let text: String = proofs.iter().filter_map(|proof| read(&proof.file)).collect();
    let names = cell.split('`').skip(1).step_by(2);
    names.filter(move |name| !text.contains(&format!("{name}(")) && !text.contains(&format!(".{name}")))
}

/// A link for each file, whose title names the tests.
fn links(proofs: &[Proof]) -> String {
    let mut files: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for proof in proofs {
        let at = files.iter().position(|(_, file, _)| *file == proof.file).unwrap_or_else(|| {
            files.push((&proof.label, &proof.file, Vec::new()));
            files.len() - 1
        });
        files[at].2.extend(proof.test.as_deref());
    }
    let link = |(label, file, tests): (&str, &str, Vec<&str>)| {
        let title = if tests.is_empty() { String::new() } else { format!(" \"{}\"", tests.join(", ")) };
        format!("[{label}](../../{file}{title})")
    };
    files.into_iter().map(link).collect::<Vec<_>>().join(", ")
}

/// The codes that the server answers with, by status.
fn codes() -> String {
    let mut by_status: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for code in Code::ALL {
        let facts = code.facts();
        let codes = by_status.entry(facts.status).or_default();
        codes.push(format!("`{}`", facts.code));
    }
    let rows = by_status.into_iter().map(|(status, mut codes)| {
        codes.sort();
        codes.dedup();
        format!("| {status} | {} |", codes.join(", "))
    });
    ["| status | codes |".to_owned(), "|---|---|".to_owned()]
        .into_iter()
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}

fn made() -> Page {
    Page::make(&read(SOURCE).expect("the source of the page"))
}

#[test]
fn the_page_is_what_its_source_and_the_tests_say() {
    let page = made();
    assert!(page.mistakes.is_empty(), "\n{}", page.mistakes.join("\n"));
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(root().join(PAGE), &page.text).expect("the page can be written");
    }
    let written = read(PAGE).expect("the page");
    let differs = page.text.lines().zip(written.lines()).find(|(made, written)| made != written);
    assert!(page.text == written, "{PAGE} is not of now; scripts/compatibility writes it: {differs:?}");
}

#[test]
fn no_module_proves_what_the_page_does_not_say() {
    let page = made();
    let said = |module: &String| {
        let folders = ["conformance/", ""].map(|folder| format!("tests/suite/{folder}{module}"));
        let ends = folders.map(|path| [format!("{path}.rs"), format!("{path}/mod.rs")]).concat();
        page.proofs.iter().any(|proof| ends.iter().any(|end| proof.file.ends_with(end)))
    };
    let silent: Vec<_> = proofs::modules().into_iter().filter(|module| !said(module)).collect();
    assert!(silent.is_empty(), "no row of {SOURCE} is proved by {silent:?}");
}

/// The section of the page with this title.
fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n## {title}\n")).expect("a section with this title");
    rest.split("\n## ").next().unwrap_or_default()
}

#[test]
fn codes_that_are_never_answered_are_not_among_those_that_are() {
    let page = made();
    let never = section(&page.text, "Codes that are never answered");
    let rows = never.lines().filter_map(cells).skip(2);
    let codes: Vec<&str> = rows.flat_map(|row| row[0].split('`').skip(1).step_by(2)).collect();
    assert!(codes.len() > 20, "{codes:?}");
    let known: Vec<&str> = Code::ALL.iter().map(|code| code.facts().code).collect();
    let wrong: Vec<_> = codes.iter().filter(|code| known.contains(code)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn mistakes_of_a_row_are_noticed() {
    let mistakes = |row: &str| {
        let source =
            format!("| feature | Rowhouse | Azure | Azurite | {PROVED} |\n|---|---|---|---|---|\n{row}\n");
        Page::make(&source).mistakes.len()
    };
    assert_eq!(mistakes("| a | works | | | etag |"), 0);
    assert_eq!(mistakes("| a | works | | | - |"), 0);
    assert_eq!(mistakes("| a | works | | | |"), 1);
    assert_eq!(mistakes("| a | works | | | etag.nothing none |"), 2);
    assert_eq!(mistakes("| a | works | | etag |"), 1);
    let called = |row: &str| {
        let source = format!("| methods of a | Rowhouse | {PROVED} |\n|---|---|---|\n{row}\n");
        Page::make(&source).mistakes.len()
    };
    assert_eq!(called("| `create_table`, `delete_table` | works | python:tables |"), 0);
    assert_eq!(called("| `create_table`, `fly_away` | works | python:tables |"), 1);
}
