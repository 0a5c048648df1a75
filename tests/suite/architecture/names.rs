//! One name for one thing: no two types of ours share a name.

use std::collections::BTreeMap;

use super::{code, sources};

/// The type that a line at the outermost level defines.
fn defined(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub") {
        None => line,
        Some(rest) => match rest.strip_prefix('(') {
            None => rest.trim_start(),
            Some(rest) => rest.split_once(')')?.1.trim_start(),
        },
    };
    let (keyword, rest) = line.split_once(' ')?;
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
    matches!(keyword, "struct" | "enum" | "trait" | "union" | "type").then_some(&rest[..end])
}

#[test]
fn definitions_are_found_with_any_visibility() {
    for line in ["struct A;", "pub enum A {", "pub(crate) trait A: B {", "pub(in crate::x) type A<T> = B<T>;"]
    {
        assert_eq!(defined(line), Some("A"), "{line}");
    }
    for line in ["    struct A;", "fn a() {", "pub use x::A;", "impl A {"] {
        assert_eq!(defined(line), None, "{line}");
    }
}

#[test]
fn no_two_types_share_a_name() {
    let mut files: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for name in code(&source.text).lines().filter_map(defined) {
            files.entry(name.to_owned()).or_default().push(source.path.display().to_string());
        }
    }
    let shared: BTreeMap<_, _> = files.into_iter().filter(|(_, files)| files.len() > 1).collect();
    assert_eq!(shared, BTreeMap::new());
}
