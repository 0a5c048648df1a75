#![no_main]
//! Continuation tokens: every text that a key can be has one token, and nothing
//! else is one. Where a page may begin at keys, no text is read as both.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::{assert_refused, now};
use rowhouse_protocol::model::{Key, PageOrder};
use rowhouse_protocol::plan::page::{
    decode_token, encode_token, entity_tokens, read_entity_tokens, read_table_token, table_token,
};

/// Bytes of text whose token is not too long.
const MAX_TEXT: usize = 6000;

/// Reads a text where a page begins: as a key it is taken as it is, and a token names what it was made of.
fn begins_a_page(text: &str) {
    let ascending = |row| read_entity_tokens(PageOrder::Ascending, text, row);
    match (decode_token(text), ascending(None)) {
        (Ok(named), Ok(key)) => assert_eq!(key, Key::new(named, "")),
        (Ok(_), Err(error)) => panic!("a token is refused: {error}"),
        (Err(_), Ok(key)) => assert!(!text.starts_with("1!") && key == Key::new(text, "")),
        (Err(_), Err(error)) => assert_refused(&error),
    }
    let is_token = decode_token(text).is_ok();
    assert_eq!(ascending(Some("")).is_ok(), ascending(None).is_ok() && !is_token);
    assert!(ascending(Some("plain")).is_ok() != is_token || ascending(None).is_err());
    assert!(ascending(Some(&encode_token("row"))).is_ok() == is_token);
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match decode_token(text) {
        Ok(read) => assert_eq!(encode_token(&read), text),
        Err(error) => assert_refused(&error),
    }
    begins_a_page(text);
    if let Err(error) = read_table_token(text) {
        assert_refused(&error);
    }
    if text.len() > MAX_TEXT {
        return;
    }
    let made = encode_token(text);
    assert!(made.bytes().all(|b| b.is_ascii_alphanumeric() || b"!-*_".contains(&b)), "{made}");
    if text.contains('\0') {
        return assert!(decode_token(&made).is_err() && read_table_token(&made).is_err());
    }
    assert_eq!(decode_token(&made).as_deref(), Ok(text));
    let key = Key::new(text, text);
    for order in [PageOrder::Ascending, PageOrder::Descending] {
        let (partition, row) = entity_tokens(order, &key);
        assert_eq!(read_entity_tokens(order, &partition, Some(&row)).as_ref(), Ok(&key));
    }
    if !text.contains('\u{1}') {
        let name = read_table_token(&table_token(text, now()));
        assert_eq!(name, Ok(text.to_ascii_lowercase()));
    }
});
