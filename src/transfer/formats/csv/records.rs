//! The records of a CSV file.

use std::io::BufRead;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::transfer::error::{TransferError, TransferResult};
use crate::transfer::formats::opening::{self, MAX_ENTITY_TEXT};

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CsvForm {
    pub delimiter: u8,
    pub end: LineEnd,
}

/// How lines end. A carriage return elsewhere belongs to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    Feed,
    ReturnAndFeed,
    Return,
}

impl CsvForm {
    /// Finds the form by the line with the names of the columns.
    pub(super) fn of(header: &str) -> Option<Self> {
        let line = header.split(['\r', '\n']).next()?;
        let end = match &header.as_bytes()[line.len()..] {
            [b'\r', b'\n', ..] => LineEnd::ReturnAndFeed,
            [b'\r', ..] => LineEnd::Return,
            _ => LineEnd::Feed,
        };
        let at = line.find("PartitionKey")?;
        let after = line[at + "PartitionKey".len()..].trim_start_matches('"').bytes().next();
        let before = line[..at].trim_end_matches('"').bytes().last();
        // Names of properties are made of letters, digits and underscores.
        let delimiter = after.filter(|byte| *byte != b'@').or(before)?;
        (!delimiter.is_ascii_alphanumeric() && delimiter.is_ascii()).then_some(Self { delimiter, end })
    }
}

/// The values of a line.
#[derive(Default)]
pub(super) struct Record {
    text: String,
    values: Vec<Range<usize>>,
    /// Whether the line has an end, or else the file ends in it.
    pub is_terminated: bool,
}

impl Record {
    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn get(&self, at: usize) -> Option<&str> {
        self.text.get(self.values.get(at)?.clone())
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    /// Whether it is an empty line.
    fn is_blank(&self) -> bool {
        self.len() == 1 && self.text.is_empty()
    }
}

/// Where in a value a byte is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Start,
    Plain,
    Quoted,
    /// Behind a quote within quotes: the end of the value, or the first of two.
    Closing,
}

/// A CSV file that is being read.
pub(super) struct Records {
    reader: Box<dyn BufRead>,
    form: CsvForm,
    path: PathBuf,
    line: u64,
}

impl Records {
    /// Opens a file.
    pub(super) fn open(path: &Path, form: CsvForm) -> TransferResult<Self> {
        Ok(Self { reader: opening::open_text(path)?, form, path: path.to_owned(), line: 0 })
    }

    /// Reads the next record that is not an empty line; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Record) -> TransferResult<bool> {
        while self.read(record)? {
            if !record.is_blank() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn read(&mut self, record: &mut Record) -> TransferResult<bool> {
        record.values.clear();
        let mut line = CsvLine {
            form: self.form,
            bytes: std::mem::take(&mut record.text).into_bytes(),
            values: &mut record.values,
            begun: 0,
            position: Position::Start,
        };
        line.bytes.clear();
        self.line += 1;
        let (mut is_end, mut any) = (false, false);
        while !is_end {
            let buffer = self.reader.fill_buf().map_err(|error| opening::named(&self.path, &error))?;
            if buffer.is_empty() {
                break;
            }
            any = true;
            let found = buffer.iter().position(|byte| line.take(*byte));
            is_end = found.is_some();
            let used = found.map_or(buffer.len(), |at| at + 1);
            self.reader.consume(used);
            if line.bytes.len() as u64 > MAX_ENTITY_TEXT {
                return Err(self.wrong(&format!("a row of more than {MAX_ENTITY_TEXT} bytes")));
            }
        }
        if !is_end && line.position == Position::Quoted {
            return Err(self.wrong("the file ends within quotes: it is not complete"));
        }
        if any && !is_end {
            line.end_value();
        }
        let text = String::from_utf8(line.bytes);
        record.text = text.map_err(|_| self.wrong("it is not UTF-8"))?;
        record.is_terminated = is_end;
        Ok(any)
    }

    fn wrong(&self, reason: &str) -> TransferError {
        opening::named(&self.path, &format!("row {}: {reason}", self.line))
    }
}

/// A line that is being read.
struct CsvLine<'r> {
    form: CsvForm,
    bytes: Vec<u8>,
    values: &'r mut Vec<Range<usize>>,
    /// Where the value begins.
    begun: usize,
    position: Position,
}

impl CsvLine<'_> {
    /// Takes a byte; returns whether the line ends with it.
    fn take(&mut self, byte: u8) -> bool {
        let end = if self.form.end == LineEnd::Return { b'\r' } else { b'\n' };
        match (self.position, byte) {
            (Position::Quoted, b'"') => self.position = Position::Closing,
            (Position::Start, b'"') => self.position = Position::Quoted,
            (Position::Quoted, _) => self.bytes.push(byte),
            (Position::Closing, b'"') => {
                self.bytes.push(byte);
                self.position = Position::Quoted;
            }
            (_, _) if byte == self.form.delimiter => self.end_value(),
            (_, _) if byte == end => {
                if self.form.end == LineEnd::ReturnAndFeed && self.position == Position::Plain {
                    // The return of the line end.
                    let has_return = self.bytes.len() > self.begun && self.bytes.ends_with(b"\r");
                    self.bytes.truncate(self.bytes.len() - usize::from(has_return));
                }
                self.end_value();
                return true;
            }
            (_, _) => {
                self.bytes.push(byte);
                self.position = Position::Plain;
            }
        }
        false
    }

    fn end_value(&mut self) {
        self.values.push(self.begun..self.bytes.len());
        self.begun = self.bytes.len();
        self.position = Position::Start;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_is_found_by_the_names_of_the_columns() {
        let form = |header: &str| CsvForm::of(header).map(|form| (form.delimiter, form.end));
        for (header, expected) in [
            ("PartitionKey,RowKey\n", Some((b',', LineEnd::Feed))),
            ("PartitionKey,RowKey", Some((b',', LineEnd::Feed))),
            ("\"PartitionKey\"\t\"RowKey\"\r\na\r", Some((b'\t', LineEnd::ReturnAndFeed))),
            ("Age^PartitionKey^RowKey\r\n", Some((b'^', LineEnd::ReturnAndFeed))),
            ("RowKey~PartitionKey\ra~b\r\n", Some((b'~', LineEnd::Return))),
            ("a,b\n", None),
            ("PartitionKeys,b\n", None),
        ] {
            assert_eq!(form(header), expected, "{header:?}");
        }
    }

    #[test]
    fn values_are_split_as_they_are_written() {
        let read = |text: &str, end| {
            let reader = std::io::BufReader::with_capacity(2, std::io::Cursor::new(text.to_owned()));
            let form = CsvForm { delimiter: b',', end };
            let mut records = Records { reader: Box::new(reader), form, path: PathBuf::from("x"), line: 0 };
            let (mut record, mut found) = (Record::default(), Vec::new());
            while records.next(&mut record)? {
                found.push(record.values().collect::<Vec<_>>().join("|"));
            }
            Ok::<_, TransferError>(found)
        };
        for (text, end, expected) in [
            ("a,\"b\"\"\n,c\",d\n\n,\n", LineEnd::Feed, &["a|b\"\n,c|d", "|"][..]),
            ("a\r,b\r\n\r\n\"x\r\",\"y\r\"\r\nz", LineEnd::ReturnAndFeed, &["a\r|b", "x\r|y\r", "z"]),
            ("a,b\n\r\rc,\"\r\"\r", LineEnd::Return, &["a|b\n", "c|\r"]),
            ("5\" pipe,\"a\" b\n", LineEnd::Feed, &["5\" pipe|a b"]),
        ] {
            assert_eq!(read(text, end).unwrap(), expected, "{text:?}");
        }
        for text in ["a,\"b", "a,\"", "a\n\"b\"\",c\n"] {
            assert!(read(text, LineEnd::Feed).is_err(), "{text:?}");
        }
    }
}
