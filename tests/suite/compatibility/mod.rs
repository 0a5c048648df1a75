//! `docs/reference/compatibility.md`, made from `page.md` beside this file: the same text,
//! but that proofs become links. The choices in `docs/reference/protocol.md` are
//! made from `choices.md` in the same way.
//!
//! A table whose last column is `proved by` claims something, so each row of it
//! names proofs, or `-` where nothing but the words is there. `scripts/compatibility`
//! writes the page anew.

mod errors;
mod proofs;

use proofs::{Proof, read, root};
use rowhouse_protocol::error::Code;

const SOURCE: &str = "tests/suite/compatibility/page.md";
const PAGE: &str = "docs/reference/compatibility.md";
/// The tables of choices, which stand between the marks of the other page.
const CHOICES: &str = "tests/suite/compatibility/choices.md";
const PROTOCOL: &str = "docs/reference/protocol.md";
const MARKS: [&str; 2] = ["<!-- choices:start -->\n\n", "\n<!-- choices:end -->"];
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
        let made = match cells(line) {
            None => {
                self.header.clear();
                line.to_owned()
            }
            Some(cells) if self.header.is_empty() => {
                self.header = cells.iter().map(|cell| (*cell).to_owned()).collect();
                line.to_owned()
            }
            Some(cells) if cells.iter().all(|cell| cell.starts_with("---")) => line.to_owned(),
            Some(cells) if self.header.last().is_some_and(|last| last == PROVED) => self.row(line, &cells),
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
        let filled: Vec<String> =
            said.iter().map(|cell| (*cell).to_owned()).chain([links(&proofs)]).collect();
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

fn made(source: &str) -> Page {
    Page::make(&read(source).expect("the source of the page"))
}

/// The page with other text between the marks.
fn with_choices(page: &str, choices: &str) -> String {
    let (before, rest) = page.split_once(MARKS[0]).expect("the first mark");
    let (_, after) = rest.split_once(MARKS[1]).expect("the second mark");
    format!("{before}{}{choices}{}{after}", MARKS[0], MARKS[1])
}

/// Holds a page to be this text, or writes it.
fn is_up_to_date(page: &str, text: &str) {
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(root().join(page), text).expect("the page can be written");
    }
    let written = read(page).expect("the page");
    let differs = text.lines().zip(written.lines()).find(|(made, written)| made != written);
    assert!(text == written, "{page} is out of date; scripts/compatibility writes it: {differs:?}");
}

#[test]
fn the_page_is_what_its_source_and_the_tests_say() {
    let page = made(SOURCE);
    assert!(page.mistakes.is_empty(), "\n{}", page.mistakes.join("\n"));
    is_up_to_date(PAGE, &page.text);
}

#[test]
fn the_choices_are_what_their_source_and_the_tests_say() {
    let choices = made(CHOICES);
    assert!(choices.mistakes.is_empty(), "\n{}", choices.mistakes.join("\n"));
    let protocol = read(PROTOCOL).expect("the page");
    is_up_to_date(PROTOCOL, &with_choices(&protocol, &choices.text));
}

#[test]
fn no_module_proves_what_the_pages_do_not_say() {
    let proofs = [made(SOURCE).proofs, made(CHOICES).proofs].concat();
    let said = |module: &String| {
        let files = proofs::module_files(module);
        proofs.iter().any(|proof| files.contains(&proof.file))
    };
    let silent: Vec<_> = proofs::modules().into_iter().filter(|module| !said(module)).collect();
    assert!(silent.is_empty(), "no row of {SOURCE} or {CHOICES} is proved by {silent:?}");
}

/// The section of the page with this title.
fn section<'a>(text: &'a str, title: &str) -> &'a str {
    let (_, rest) = text.split_once(&format!("\n## {title}\n")).expect("a section with this title");
    rest.split("\n## ").next().unwrap_or_default()
}

#[test]
fn codes_that_are_never_answered_are_not_among_those_that_are() {
    let page = read(errors::PAGE).expect("the page");
    let never = section(&page, "Codes that are never answered");
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
