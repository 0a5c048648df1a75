//! Quotes names and texts in statements that cannot have parameters, except those of property indexes.

use std::fmt::Write as _;

/// Returns a name as an SQL identifier in double quotes. U+0000, which no database accepts, is left out.
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('\u{0}', "").replace('"', "\"\""))
}

/// Returns a text as a literal of standard SQL, as SQLite reads it. U+0000 is left out.
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\u{0}', "").replace('\'', "''"))
}

/// Returns a text as a PostgreSQL literal that does not depend on `standard_conforming_strings`. U+0000 is left out.
pub(crate) fn escaped_literal(text: &str) -> String {
    if text.contains('\\') {
        return format!("E{}", literal(&text.replace('\\', "\\\\")));
    }
    literal(text)
}

/// Returns column names of a view for the wanted names, in the same order. Each has at most `max_bytes` bytes, and
/// differs from the others and from `taken`, ignoring case. Names are cut and numbered where necessary.
pub fn column_names(wanted: &[&str], taken: &[&str], max_bytes: usize) -> Vec<String> {
    let mut used: std::collections::HashSet<String> = taken.iter().map(|name| name.to_lowercase()).collect();
    let mut names = Vec::with_capacity(wanted.len());
    for name in wanted {
        let mut given = cut(name, max_bytes).to_owned();
        let mut number = 1;
        while !used.insert(given.to_lowercase()) {
            number += 1;
            let mut suffix = String::new();
            let _ = write!(suffix, "_{number}");
            given = format!("{}{suffix}", cut(name, max_bytes.saturating_sub(suffix.len())));
        }
        names.push(given);
    }
    names
}

/// Cuts a text to at most this many bytes, at the end of a character.
fn cut(text: &str, max_bytes: usize) -> &str {
    let mut end = text.len().min(max_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quotes_are_doubled_and_nothing_ends_a_name_or_text_early() {
        assert_eq!(identifier("Name"), "\"Name\"");
        assert_eq!(identifier("a\"; DROP TABLE entities; --"), "\"a\"\"; DROP TABLE entities; --\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(escaped_literal("\\' OR 1=1 --"), "E'\\\\'' OR 1=1 --'");
        assert_eq!((identifier("a\u{0}b"), literal("a\u{0}b")), ("\"ab\"".into(), "'ab'".into()));
    }

    #[test]
    fn names_are_cut_and_told_apart() {
        let long = "a".repeat(255);
        let names = column_names(&[&long, &long, "rowkey", "RowKey_2", "B", "b"], &["RowKey"], 63);
        assert_eq!(names[0], "a".repeat(63));
        assert_eq!(names[1], format!("{}_2", "a".repeat(61)));
        assert_eq!(names[2..], ["rowkey_2", "RowKey_2_2", "B", "b_2"]);
    }

    proptest! {
        #[test]
        fn sqlite_reads_back_every_name_and_text(text in "[^\u{0}]{1,40}") {
            let db = rusqlite::Connection::open_in_memory().unwrap();
            let sql = format!("SELECT {} AS {}", literal(&text), identifier(&text));
            let mut statement = db.prepare(&sql).unwrap();
            prop_assert_eq!(statement.column_name(0).unwrap(), text.as_str());
            let read: String = statement.query_row([], |row| row.get(0)).unwrap();
            prop_assert_eq!(read, text);
        }

        #[test]
        fn columns_are_short_and_distinct(
            wanted in prop::collection::vec("[aAbB_2é\u{10ffff}\"]{1,12}", 0..30),
        ) {
            let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
            let names = column_names(&wanted, &["a"], 6);
            let folded: std::collections::HashSet<String> = names.iter().map(|n| n.to_lowercase()).collect();
            prop_assert_eq!(folded.len(), wanted.len());
            prop_assert!(names.iter().all(|name| name.len() <= 6) && !folded.contains("a"));
        }
    }
}
