//! The public functions of a crate are used by others. Of `pub(crate)` ones, the compiler reports those that are never
//! used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::files;

/// The folder of a crate's code; that of all tests, benches and the root package is empty.
fn home(path: &Path) -> PathBuf {
    if path.starts_with("crates") { path.iter().take(2).collect() } else { PathBuf::new() }
}

fn words(text: &str) -> BTreeSet<&str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').collect()
}

/// The name of the function that a line makes public. Types are not checked: signatures need them where they have no
/// name.
fn published(line: &str) -> Option<&str> {
    let mut rest = line.trim_start().strip_prefix("pub ")?;
    while let Some(behind) = ["async ", "const ", "unsafe "].iter().find_map(|word| rest.strip_prefix(word)) {
        rest = behind;
    }
    rest.strip_prefix("fn ")?.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// The public functions of crates that only their own crate names.
fn unused(files: &[(PathBuf, String)]) -> Vec<String> {
    let mut users: BTreeMap<&str, BTreeSet<PathBuf>> = BTreeMap::new();
    for (path, text) in files {
        for word in words(text) {
            users.entry(word).or_default().insert(home(path));
        }
    }
    let is_used = |path: &Path, name: &str| users[name].iter().any(|user| *user != home(path));
    let published = files
        .iter()
        .filter(|(path, _)| path.starts_with("crates"))
        .flat_map(|(path, text)| text.lines().filter_map(published).map(move |name| (path, name)));
    published
        .filter(|(path, name)| !is_used(path, name))
        .map(|(path, name)| format!("{}: {name}", path.display()))
        .collect()
}

#[test]
fn functions_that_only_their_crate_names_are_found() {
    let file = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
    let found = unused(&[
        file(
            "crates/a/src/lib.rs",
            "pub const fn used() {}\npub async fn lone() {}\n    pub fn method(&self) {}",
        ),
        file("crates/a/src/b.rs", "fn f() { super::lone() }\npub(crate) fn own() {}\npub struct Type;"),
        file("crates/c/src/lib.rs", "use a::used;"),
    ]);
    assert_eq!(found, ["crates/a/src/lib.rs: lone", "crates/a/src/lib.rs: method"]);
}

#[test]
fn other_crates_use_public_functions() {
    let folders = ["crates", "src", "tests/suite", "benches", "fuzz", "examples"];
    let files: Vec<_> = folders.into_iter().flat_map(|folder| files(folder, "rs")).collect();
    let unused = unused(&files);
    assert!(unused.is_empty(), "other crates do not use these; make them pub(crate):\n{}", unused.join("\n"));
}
