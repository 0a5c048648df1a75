//! Spelling of keys and filters in URLs.

use std::fmt::Write;

/// Percent-encodes everything but letters, digits and `-._~`.
pub fn escape(text: &str) -> String {
    escape_except(text, "")
}

/// As [`escape`], leaving some more characters as they are.
pub fn escape_except(text: &str, raw: &str) -> String {
    let mut out = String::with_capacity(text.len() * 3);
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || "-._~".contains(c) || raw.contains(c) {
            out.push(c);
            continue;
        }
        let mut utf8 = [0; 4];
        for byte in c.encode_utf8(&mut utf8).bytes() {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// `/T(PartitionKey='p',RowKey='r')` as clients send it: quotes inside keys
/// doubled and encoded.
pub fn entity_path(table: &str, partition: &str, row: &str) -> String {
    let key = |text: &str| escape(&text.replace('\'', "''"));
    format!("/{table}(PartitionKey='{}',RowKey='{}')", key(partition), key(row))
}

/// The same address as the service prints it in `Location`: quotes inside keys
/// doubled and raw (UNVERIFIED 22 for the rest of the set).
pub fn printed_entity_path(table: &str, partition: &str, row: &str) -> String {
    let key = |text: &str| escape_except(&text.replace('\'', "''"), "'");
    format!("/{table}(PartitionKey='{}',RowKey='{}')", key(partition), key(row))
}
