//! Encodes and decodes entities. This module knows neither SQL nor HTTP.

/// Atom entries and feeds, the format of clients before 2015-12-11 (protocol §4.6).
pub mod atom {
    pub mod read;
    pub mod write;
}
pub mod failure;
pub mod feed;
/// JSON entities: reading and printing (protocol §4.2 to §4.5).
pub mod json {
    pub mod property;
    pub mod read;
    pub mod write;
}
pub mod json_object;
pub mod multipart;
pub mod policies;
pub mod properties;
pub mod stored;
pub mod uri;
pub mod validated;
pub mod xml;

/// Splits a text at the first occurrence of an ASCII character. For short texts, [`str::split_once`] takes three times
/// as long.
pub(crate) fn split_once(text: &str, ascii: u8) -> Option<(&str, &str)> {
    let at = memchr::memchr(ascii, text.as_bytes())?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}
