//! The files that a new operation and a new feature for operators touch are those that
//! docs/internals/architecture.md lists.

use std::collections::BTreeSet;

use super::{code, sources};

/// Files that name single operations because these are special, so no new one has to go there.
const SPECIAL: [&str; 3] = [
    // Which operations a batch may hold.
    "protocol/request/batch.rs",
    // Narrows queries to the keys that a signature allows.
    "service/authorize.rs",
    // Explains queries of entities, which alone have a filter that is planned.
    "service/explain_query.rs",
];

/// What a plan or operation is called in code: `QueryTables` of `Plan::QueryTables`.
fn named(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for prefix in ["Plan::", "Operation::"] {
        for (at, _) in code.match_indices(prefix) {
            let is_whole = !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
            let name: String =
                code[at + prefix.len()..].chars().take_while(char::is_ascii_alphanumeric).collect();
            if is_whole && name.starts_with(|c: char| c.is_ascii_uppercase()) {
                found.insert(name);
            }
        }
    }
    found
}

/// The paths in the row of docs/internals/architecture.md that starts with these words.
fn documented(row: &str) -> Vec<String> {
    let page = include_str!("../../../docs/internals/architecture.md");
    let line = page.lines().find(|line| line.starts_with(&format!("| {row} |"))).expect("the row is there");
    line.split('`').skip(1).step_by(2).filter(|text| text.ends_with(".rs")).map(str::to_owned).collect()
}

/// `set_policies.rs` for `SetPolicies`.
fn own_file(operation: &str) -> String {
    let mut file = String::new();
    for letter in operation.chars() {
        if letter.is_ascii_uppercase() && !file.is_empty() {
            file.push('_');
        }
        file.push(letter.to_ascii_lowercase());
    }
    format!("service/operations/{file}.rs")
}

#[test]
fn an_operation_is_found_in_the_documented_files_and_nowhere_else() {
    let documented = documented("a new operation");
    assert!(documented.len() <= 9, "{documented:?}");
    let sources = sources();
    let path = |at: &std::path::Path| at.display().to_string();
    let operations = sources.iter().find(|s| path(&s.path) == "service/operations/mod.rs");
    let operations = named(&code(&operations.expect("operations are run there").text));
    assert!(operations.len() > 10, "{operations:?}");

    // One by one: each documented file, but the one of its own, knows them all.
    for operation in &operations {
        let own = own_file(operation);
        assert!(sources.iter().any(|s| path(&s.path) == own), "{operation} has no file {own}");
    }
    let by_name: BTreeSet<String> = sources
        .iter()
        .filter(|source| !named(&code(&source.text)).is_disjoint(&operations))
        .map(|source| path(&source.path))
        .filter(|file| !SPECIAL.contains(&file.as_str()))
        .collect();
    for file in &by_name {
        assert!(documented.contains(file), "{file} names operations, and is not documented");
    }
    // These know operations by what they look like or are called, not by their variants.
    let others = [
        "protocol/request/allowed_methods.rs",
        "observe/metrics/operation.rs",
        "service/operations/get_stats.rs",
    ];
    for file in &documented {
        let is_known = by_name.contains(file) || others.contains(&file.as_str());
        assert!(is_known, "{file} is documented, and names no operation");
        assert!(sources.iter().any(|s| path(&s.path) == *file), "there is no {file}");
    }
}

/// How code names expiry, the example of a feature for operators.
const EXPIRY: [&str; 7] =
    ["ExpiryRule", "ExpirySummary", "TableExpiry", "SweepState", "NewRule", "ExpireCommand", "expiry::"];

fn names_expiry(code: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let names = |word: &str| {
        code.match_indices(word).any(|(at, _)| {
            let after = &code[at + word.len()..];
            !code[..at].ends_with(is_part) && (word.ends_with(':') || !after.starts_with(is_part))
        })
    };
    EXPIRY.into_iter().any(names)
}

#[test]
fn a_feature_for_operators_is_found_in_the_documented_files_and_nowhere_else() {
    let documented: BTreeSet<String> = documented("a new operator feature").into_iter().collect();
    assert!(documented.len() <= 11, "{documented:?}");
    let sources = sources();
    let by_name = sources.iter().filter(|source| names_expiry(&code(&source.text)));
    let by_name: BTreeSet<String> = by_name.map(|source| source.path.display().to_string()).collect();
    assert_eq!(by_name, documented);
}
