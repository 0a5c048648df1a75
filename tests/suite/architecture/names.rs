//! One name for one thing: no two types of ours share a name, and no private words.

use std::collections::BTreeMap;

use super::sources;

/// Words that the code had for what the field has a word for, and what to say.
const BANNED: [(&str, &str); 16] = [
    ("told", "`stated` in a file, `reported` to somebody, `database_message` of an error"),
    ("looked", "`examined` of rows, `read` of keys"),
    ("felt", "`blocking` of a step for which requests wait"),
    ("unfelt", "`quiet` of a step for which no request waits"),
    ("is_felt", "`blocks_requests`"),
    ("outlive", "say what is held until when, as `hold_permit_until_closed`"),
    ("doubt", "say what is checked, as `recheck_before_reuse`"),
    ("fn shown", "`display` of a text, `to_json` of JSON"),
    ("TellRespread", "`On…Progress` of what receives progress"),
    ("tell_apart", "say what it makes, as `make_versions_unique`"),
    ("carry_over", "`checkpoint`"),
    ("glimpse", "`borrowed`"),
    ("linger", "`busy_poll`"),
    ("fn turn", "`due` of a warning, `permit` of what is limited"),
    ("tells", "`states` of a file, `has` of what it contains"),
    ("Elsewhere", "say what is there, as `Running`"),
];

/// Whether a word, or words, stands in a text by itself.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        let after = &text[at + word.len()..];
        !text[..at].ends_with(is_part) && !after.starts_with(is_part)
    })
}

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
        for name in source.code.lines().filter_map(defined) {
            files.entry(name.to_owned()).or_default().push(source.path.display().to_string());
        }
    }
    let shared: BTreeMap<_, _> = files.into_iter().filter(|(_, files)| files.len() > 1).collect();
    assert_eq!(shared, BTreeMap::new());
}

#[test]
fn words_are_found_whole() {
    for (text, word) in [("as told.", "told"), ("told", "told"), ("fn shown(x)", "fn shown")] {
        assert!(has_word(text, word), "{text}");
    }
    for (text, word) in [("untold", "told"), ("told_by", "told"), ("let shown = x", "fn shown")] {
        assert!(!has_word(text, word), "{text}");
    }
}

#[test]
fn no_banned_word_is_used() {
    let mut wrong = Vec::new();
    for source in sources() {
        for (word, instead) in BANNED.iter().filter(|(word, _)| has_word(&source.text, word)) {
            wrong.push(format!("{}: {word}; say {instead}", source.path.display()));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
