//! JSON strings, printed.

/// Appends a JSON string of text that is known to need no escape.
pub fn push_plain(out: &mut String, text: &str) {
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

/// Appends what stands between the quotes of a JSON string.
pub fn push_escaped(out: &mut String, text: &str) {
    let mut rest = text;
    loop {
        let clean = clean_length(rest.as_bytes());
        out.push_str(&rest[..clean]);
        let Some(byte) = rest.as_bytes().get(clean) else { return };
        push_escape(out, *byte);
        rest = &rest[clean + 1..];
    }
}

/// How many bytes come before the first that has no place in a JSON string as it
/// is: a quote, a backslash or a control character.
pub fn clean_length(bytes: &[u8]) -> usize {
    let needs_escape = |byte: &u8| (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\');
    // Blocks are looked at as a whole, without a way out, since that becomes a few
    // instructions on vectors; the one that is not clean, in words.
    let is_clean = |block: &&[u8; 32]| !block.iter().fold(false, |any, byte| any | needs_escape(byte));
    let mut clean = 32 * bytes.as_chunks().0.iter().take_while(is_clean).count();
    for word in bytes[clean..].as_chunks().0 {
        match marks(u64::from_le_bytes(*word)) {
            0 => clean += 8,
            found => return clean + found.trailing_zeros() as usize / 8,
        }
    }
    let rest = &bytes[clean..];
    clean + rest.iter().position(needs_escape).unwrap_or(rest.len())
}

/// The highest bit of each byte that has no place in a JSON string. Bytes above
/// such a one may be taken for one too, those below never are.
const fn marks(word: u64) -> u64 {
    let controls = word.wrapping_sub(ONES * 0x20) & !word & (ONES << 7);
    controls | zero_bytes(word ^ (ONES * b'"' as u64)) | zero_bytes(word ^ (ONES * b'\\' as u64))
}

/// A one in each byte.
pub const ONES: u64 = u64::MAX / 255;

/// The highest bit of each byte that is zero. Bytes above such a one may be taken
/// for zero too, those below never are.
pub const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & (ONES << 7)
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
            clean in "[a-zé😀]{0,70}",
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
