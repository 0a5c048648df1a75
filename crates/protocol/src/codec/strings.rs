//! Prints JSON strings.

/// Appends a JSON string that needs no escapes.
pub(crate) fn push_plain(out: &mut String, text: &str) {
    out.push('"');
    out.push_str(text);
    out.push('"');
}

/// Appends a JSON string.
pub fn push_string(out: &mut String, text: &str) {
    out.push('"');
    push_escaped(out, text);
    out.push('"');
}

/// Appends the content of a JSON string.
pub(crate) fn push_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    loop {
        let clean = clean_length(rest.as_bytes());
        out.push_str(&rest[..clean]);
        let Some(byte) = rest.as_bytes().get(clean) else { return };
        push_escape(out, *byte);
        rest = &rest[clean + 1..];
    }
}

/// Returns the number of bytes before the first one that must be escaped in JSON: a quote, a backslash or a
/// control character.
pub(crate) fn clean_length(bytes: &[u8]) -> usize {
    let (blocks, _) = bytes.as_chunks::<BLOCK>();
    let is_clean = |block: &&[u8; BLOCK]| !block.iter().fold(false, |found, byte| found | is_escaped(byte));
    let clean = BLOCK * blocks.iter().take_while(is_clean).count();
    bytes[clean..].iter().position(is_escaped).map_or(bytes.len(), |at| clean + at)
}

/// Number of bytes that are compared together.
const BLOCK: usize = 16;

/// Returns whether a byte must be escaped in a JSON string. It is branch-free, so that a block is compared at once.
fn is_escaped(byte: &u8) -> bool {
    (*byte < b' ') | (*byte == b'"') | (*byte == b'\\')
}

fn push_escape(out: &mut String, byte: u8) {
    match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        b'\n' => out.push_str("\\n"),
        b'\r' => out.push_str("\\r"),
        b'\t' => out.push_str("\\t"),
        0x08 => out.push_str("\\b"),
        0x0c => out.push_str("\\f"),
        control => {
            const HEX: &[u8; 16] = b"0123456789abcdef";
            out.push_str("\\u00");
            out.push(char::from(HEX[usize::from(control >> 4)]));
            out.push(char::from(HEX[usize::from(control & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn strings_print_as_any_json_printer_would(
            clean in "[ -!#-\\[\\]-~\u{7f}é😀]{0,70}",
            text in "[\u{0}-\u{21}\"\\\\aé]{0,70}",
        ) {
            for text in [text.clone(), clean.clone() + &text, text + &clean] {
                let mut out = String::new();
                push_string(&mut out, &text);
                prop_assert_eq!(out, serde_json::to_string(&text).unwrap());
            }
        }
    }
}
