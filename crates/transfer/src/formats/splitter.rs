//! Splits a JSON file into the text of its values while reading it. The inside of a value is not checked, so that the
//! file can be read on after an invalid value.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::error::{TransferError, TransferResult};
use crate::formats::files::{self, MAX_ENTITY_TEXT};
use crate::protocol::codec::json_object;

/// A JSON file that is being read.
pub(super) struct Splitter {
    reader: Box<dyn BufRead>,
    path: PathBuf,
    offset: u64,
}

/// The position of a byte in a value.
#[derive(Default)]
struct Nesting {
    depth: u64,
    in_string: bool,
    is_escaped: bool,
}

/// The relation of a byte to a value.
enum ValuePart {
    Inside,
    Last,
    /// The byte is after the end.
    Beyond,
}

impl Nesting {
    fn next(&mut self, byte: u8) -> ValuePart {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return if self.in_string || self.depth > 0 { ValuePart::Inside } else { ValuePart::Last };
        }
        match byte {
            b',' | b':' | b'}' | b']' | b' ' | b'\t' | b'\r' | b'\n' if self.depth == 0 => {
                return ValuePart::Beyond;
            }
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => return ValuePart::Inside,
        }
        if self.depth == 0 && !self.in_string { ValuePart::Last } else { ValuePart::Inside }
    }
}

impl Splitter {
    pub(super) fn open(path: &Path) -> TransferResult<Self> {
        Ok(Self { reader: files::open_text(path)?, path: path.to_owned(), offset: 0 })
    }

    /// Returns an error with the file and the position.
    pub(super) fn wrong(&self, reason: &str) -> TransferError {
        files::file_error(&self.path, &format!("byte {}: {reason}", self.offset))
    }

    /// Returns the next byte that is not white space, without consuming it.
    pub(super) fn peek(&mut self) -> TransferResult<Option<u8>> {
        loop {
            let buffer = self.reader.fill_buf().map_err(|error| files::file_error(&self.path, &error))?;
            if buffer.is_empty() {
                return Ok(None);
            }
            let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let (blanks, all) = (buffer.iter().take_while(|byte| blank(byte)).count(), buffer.len());
            let next = buffer.get(blanks).copied();
            self.consume(blanks);
            if blanks < all {
                return Ok(next);
            }
        }
    }

    /// Consumes the next byte if it is this one.
    pub(super) fn take(&mut self, byte: u8) -> TransferResult<bool> {
        let is = self.peek()? == Some(byte);
        self.consume(usize::from(is));
        Ok(is)
    }

    /// Consumes the next byte, which must be this one.
    pub(super) fn expect(&mut self, byte: u8) -> TransferResult<()> {
        if self.take(byte)? {
            return Ok(());
        }
        match self.peek()? {
            None => Err(self.wrong("the file is not complete")),
            Some(_) => Err(self.wrong(&format!("it is not JSON: '{}' is expected", char::from(byte)))),
        }
    }

    /// Reads an object; `each` gets the name of each member as JSON text, and consumes its value.
    pub(super) fn members(
        &mut self,
        mut each: impl FnMut(&mut Self, &[u8]) -> TransferResult<()>,
    ) -> TransferResult<()> {
        self.expect(b'{')?;
        if self.take(b'}')? {
            return Ok(());
        }
        loop {
            let name = self.value()?;
            self.expect(b':')?;
            each(self, &name)?;
            if !self.take(b',')? {
                return self.expect(b'}');
            }
        }
    }

    /// Reads a list; `each` consumes one element.
    pub(super) fn elements(
        &mut self,
        mut each: impl FnMut(&mut Self) -> TransferResult<()>,
    ) -> TransferResult<()> {
        self.expect(b'[')?;
        if self.take(b']')? {
            return Ok(());
        }
        loop {
            each(self)?;
            if !self.take(b',')? {
                return self.expect(b']');
            }
        }
    }

    pub(super) fn value(&mut self) -> TransferResult<Vec<u8>> {
        let mut text = Vec::new();
        self.scan(&mut |part| {
            text.extend_from_slice(part);
            text.len() as u64 <= MAX_ENTITY_TEXT
        })?;
        Ok(text)
    }

    pub(super) fn skip(&mut self) -> TransferResult<()> {
        self.scan(&mut |_| true)
    }

    /// Passes the parts of the next value to `keep`, which returns whether the value may be longer.
    fn scan(&mut self, keep: &mut dyn FnMut(&[u8]) -> bool) -> TransferResult<()> {
        self.peek()?;
        let (begun, mut nesting) = (self.offset, Nesting::default());
        loop {
            let buffer = self.reader.fill_buf().map_err(|error| files::file_error(&self.path, &error))?;
            let (mut used, mut is_done) = (0, buffer.is_empty());
            for byte in buffer {
                let part = nesting.next(*byte);
                used += usize::from(!matches!(part, ValuePart::Beyond));
                is_done = !matches!(part, ValuePart::Inside);
                if is_done {
                    break;
                }
            }
            let (may_go_on, is_end) = (keep(&buffer[..used]), buffer.is_empty());
            self.consume(used);
            if !may_go_on {
                return Err(self.wrong(&format!("an entity of more than {MAX_ENTITY_TEXT} bytes")));
            }
            if is_end && (nesting.depth > 0 || nesting.in_string) {
                return Err(self.wrong("the file is not complete"));
            }
            if is_done {
                let is_missing = self.offset == begun;
                return if is_missing {
                    Err(self.wrong("it is not JSON: a value is missing"))
                } else {
                    Ok(())
                };
            }
        }
    }

    fn consume(&mut self, bytes: usize) {
        self.reader.consume(bytes);
        self.offset += bytes as u64;
    }
}

/// Maximum members of an object, more than any entity has with its annotations.
const MAX_MEMBERS: usize = 2048;

/// The members of an object in their order, with the JSON text of their values. No value is altered or refused before
/// its type is known.
pub(super) struct Object<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Object<'a> {
    pub(super) fn parse(json: &'a [u8]) -> Result<Self, String> {
        let json = std::str::from_utf8(json).map_err(|_| "it is not UTF-8")?;
        if !json.trim_start().starts_with('{') {
            return Err("it is not a JSON object".into());
        }
        let mut object = Self(Vec::new());
        let add = |name, raw| {
            if object.0.len() == MAX_MEMBERS {
                return Err(format!("it has more than {MAX_MEMBERS} members"));
            }
            object.0.push((name, raw));
            Ok(())
        };
        json_object::each_member(json, add).map_err(|error| error.to_string())?;
        let mut names = BTreeSet::new();
        match object.0.iter().find(|(name, _)| !names.insert(name.as_ref())) {
            Some((name, _)) => Err(format!("{name} stands twice")),
            None => Ok(object),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(member, _)| member == name).map(|(_, raw)| *raw)
    }

    /// Returns the content of a member that is a string.
    pub(super) fn string(&self, name: &str) -> Option<Cow<'a, str>> {
        self.get(name).and_then(json_object::string)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(name, raw)| (name.as_ref(), *raw))
    }

    /// Whether it has a key, which makes it an entity.
    pub(super) fn has_key(&self) -> bool {
        self.get("PartitionKey").is_some() || self.get("RowKey").is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &[u8]) -> Splitter {
        let reader = std::io::BufReader::with_capacity(3, std::io::Cursor::new(text.to_vec()));
        Splitter { reader: Box::new(reader), path: PathBuf::from("x"), offset: 0 }
    }

    #[test]
    fn values_are_split_as_they_are_written() {
        let mut splitter = of(br#" [ {"a":"\"]}\\", "b":[1,{}]} ,-1.50 , "x" , null ] "#);
        let mut values = Vec::new();
        splitter
            .elements(|splitter| {
                values.push(String::from_utf8(splitter.value()?).unwrap());
                Ok(())
            })
            .unwrap();
        assert_eq!(values, [r#"{"a":"\"]}\\", "b":[1,{}]}"#, "-1.50", "\"x\"", "null"]);
        assert_eq!(splitter.peek().unwrap(), None);
    }

    #[test]
    fn what_ends_early_is_refused() {
        for text in ["", "[", "[1", "[1,", "[1,]", "[{\"a\":1", "[\"a", "[\"a\\\"", "[1 2]", "{}"] {
            assert!(of(text.as_bytes()).elements(Splitter::skip).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut splitter = of(&text);
            let _ = splitter.elements(Splitter::skip);
            let _ = splitter.members(|splitter, _| splitter.skip());
        }
    }
}
