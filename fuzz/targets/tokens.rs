#![no_main]
//! Continuation tokens: every text that a key can be has one token, and nothing
//! else is one.

use libfuzzer_sys::fuzz_target;
use rowhouse::protocol::plan::page::{read_table_token, read_token, table_token, token};
use rowhouse_fuzz::{assert_refused, now};

/// Bytes of text whose token is not too long.
const MOST: usize = 6000;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match read_token(text) {
        Ok(read) => assert_eq!(token(&read), text),
        Err(error) => assert_refused(&error),
    }
    if let Err(error) = read_table_token(text) {
        assert_refused(&error);
    }
    if text.len() > MOST {
        return;
    }
    let made = token(text);
    assert!(made.bytes().all(|b| b.is_ascii_alphanumeric() || b"!-*_".contains(&b)), "{made}");
    if text.contains('\0') {
        return assert!(read_token(&made).is_err() && read_table_token(&made).is_err());
    }
    assert_eq!(read_token(&made).as_deref(), Ok(text));
    if !text.contains('\u{1}') {
        let name = read_table_token(&table_token(text, now()));
        assert_eq!(name, Ok(text.to_ascii_lowercase()));
    }
});
