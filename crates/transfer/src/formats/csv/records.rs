//! The records of a CSV file.

use std::io::BufRead;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::error::{TransferError, TransferResult};
use crate::formats::files::{self, MAX_ENTITY_TEXT};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CsvForm {
    pub delimiter: u8,
    pub end: LineEnd,
    /// The number of lines before the header.
    pub preamble: u64,
}

/// The beginnings of lines that PowerShell and Excel write before the header.
const PREAMBLES: [&str; 3] = ["#TYPE ", "sep=", "\"sep="];

/// The error of a file whose quotes are not doubled.
const BEHIND_QUOTE: &str = "text follows the closing quote of a value; quotes in values must be doubled (\"\"), and not \
     escaped with a backslash, as Azure Data Factory and Spark do by default";
/// The error of a file in which `\""` before a delimiter is ambiguous: it may end a value, or be part of it.
const DOUBTFUL: &str = "a value has \\\"\" before a delimiter: it may end there, with an escaped quote, or go on; write the \
     file again with doubled quotes, and not with backslashes";
/// The error of a file in which a carriage return may be part of a value or of the line end.
const MIXED_ENDS: &str = "it ends with a carriage return and a line feed, and the names of the columns with a line feed \
     alone; give all lines the same end, such as with: sed 's/\\r$//'";

/// The line end. A carriage return elsewhere belongs to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineEnd {
    Feed,
    ReturnAndFeed,
    Return,
}

impl CsvForm {
    /// Finds the form by the header.
    pub(super) fn detect(beginning: &str) -> Option<Self> {
        let (mut header, mut preamble) = (beginning, 0);
        while PREAMBLES.iter().any(|known| header.starts_with(known)) {
            (header, preamble) = (header.split_once('\n')?.1, preamble + 1);
        }
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
        (!delimiter.is_ascii_alphanumeric() && delimiter.is_ascii()).then_some(Self {
            delimiter,
            end,
            preamble,
        })
    }
}

#[derive(Default)]
pub(super) struct Record {
    text: String,
    values: Vec<Range<usize>>,
    /// Whether the line has an end. The last line of a truncated file has none.
    pub is_terminated: bool,
    has_quotes: bool,
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

    /// Whether the record has neither text nor empty quotes.
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && !self.has_quotes
    }
}

/// The position in a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Position {
    Start,
    Plain,
    Quoted,
    /// After a quote within quotes, which is the end of the value or the first of two quotes.
    Closing,
    /// After a doubled quote that follows a backslash.
    Doubtful,
}

pub(super) struct Records {
    reader: Box<dyn BufRead>,
    form: CsvForm,
    path: PathBuf,
    line: u64,
}

impl Records {
    pub(super) fn open(path: &Path, form: CsvForm) -> TransferResult<Self> {
        let mut reader = files::open_text(path)?;
        for _ in 0..form.preamble {
            reader.skip_until(b'\n').map_err(|error| files::file_error(path, &error))?;
        }
        Ok(Self { reader, form, path: path.to_owned(), line: form.preamble })
    }

    /// Reads the next record that is not an empty line; `false` at the end.
    pub(super) fn next(&mut self, record: &mut Record) -> TransferResult<bool> {
        while self.read(record)? {
            if record.len() > 1 || !record.is_empty() {
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
            has_quotes: false,
            wrong: None,
        };
        line.bytes.clear();
        self.line += 1;
        let (mut is_end, mut any) = (false, false);
        while !is_end {
            let buffer = self.reader.fill_buf().map_err(|error| files::file_error(&self.path, &error))?;
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
        if let Some(reason) = line.wrong {
            return Err(self.wrong(reason));
        }
        if !is_end && matches!(line.position, Position::Quoted | Position::Doubtful) {
            return Err(self.wrong("the file ends within quotes: it is not complete"));
        }
        if any && !is_end {
            line.end_value();
        }
        record.has_quotes = line.has_quotes;
        let text = String::from_utf8(line.bytes);
        record.text = text.map_err(|_| self.wrong("it is not UTF-8"))?;
        record.is_terminated = is_end;
        Ok(any)
    }

    fn wrong(&self, reason: &str) -> TransferError {
        files::file_error(&self.path, &format!("row {}: {reason}", self.line))
    }
}

struct CsvLine<'r> {
    form: CsvForm,
    bytes: Vec<u8>,
    values: &'r mut Vec<Range<usize>>,
    /// The start of the value.
    begun: usize,
    position: Position,
    has_quotes: bool,
    wrong: Option<&'static str>,
}

impl CsvLine<'_> {
    /// Takes a byte; returns whether the line ends with it or is invalid.
    fn take(&mut self, byte: u8) -> bool {
        let is_end = byte == if self.form.end == LineEnd::Return { b'\r' } else { b'\n' };
        let is_delimiter = byte == self.form.delimiter;
        match (self.position, byte) {
            (Position::Start, b'"') => (self.position, self.has_quotes) = (Position::Quoted, true),
            (Position::Quoted | Position::Doubtful, b'"') => self.position = Position::Closing,
            (Position::Doubtful, b'\r' | b'\n') => self.wrong = Some(DOUBTFUL),
            (Position::Doubtful, _) if is_delimiter => self.wrong = Some(DOUBTFUL),
            (Position::Quoted | Position::Doubtful, _) => self.push(byte, Position::Quoted),
            (Position::Closing, b'"') => {
                let is_escaped = self.bytes[self.begun..].ends_with(b"\\");
                self.push(byte, if is_escaped { Position::Doubtful } else { Position::Quoted });
            }
            _ if is_delimiter => self.end_value(),
            _ if is_end => {
                self.end_line();
                return true;
            }
            // The carriage return is part of the line end, unless text follows.
            (Position::Closing, b'\r') if self.form.end == LineEnd::ReturnAndFeed => {}
            (Position::Closing, _) => self.wrong = Some(BEHIND_QUOTE),
            _ => self.push(byte, Position::Plain),
        }
        self.wrong.is_some()
    }

    fn push(&mut self, byte: u8, position: Position) {
        self.bytes.push(byte);
        self.position = position;
    }

    fn end_line(&mut self) {
        if self.position == Position::Plain && self.bytes[self.begun..].ends_with(b"\r") {
            match self.form.end {
                LineEnd::ReturnAndFeed => drop(self.bytes.pop()),
                LineEnd::Feed => self.wrong = Some(MIXED_ENDS),
                LineEnd::Return => {}
            }
        }
        self.end_value();
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
        let form = |header: &str| CsvForm::detect(header).map(|form| (form.delimiter, form.end));
        for preamble in
            ["#TYPE System.Management.Automation.PSCustomObject\r\n", "sep=;\r\n", "\"sep=;\"\r\n"]
        {
            let found = CsvForm::detect(&format!("{preamble}PartitionKey;RowKey\r\n"));
            let form = CsvForm { delimiter: b';', end: LineEnd::ReturnAndFeed, preamble: 1 };
            assert_eq!(found, Some(form), "{preamble}");
        }
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
            let form = CsvForm { delimiter: b',', end, preamble: 0 };
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
            ("5\" pipe,\"C:\\\",\"\"\n", LineEnd::Feed, &["5\" pipe|C:\\|"]),
            ("\"a\\\"\"b\",\"\\\\\"\n", LineEnd::Feed, &["a\\\"b|\\\\"]),
        ] {
            assert_eq!(read(text, end).unwrap(), expected, "{text:?}");
        }
        for (text, words) in [
            ("a,\"b", "within quotes"),
            ("a,\"", "within quotes"),
            ("a\n\"b\"\",c\n", "within quotes"),
            ("\"a\" b\n", "closing quote"),
            ("\"say \\\"hi\\\" now\",c\n", "backslash"),
            ("\"say \\\"\",c\n", "backslash"),
            ("\"say \\\"\"\n", "backslash"),
            ("a,b\r\n", "carriage return"),
            ("a,\r\n", "carriage return"),
        ] {
            let refused = read(text, LineEnd::Feed).unwrap_err().to_string();
            assert!(refused.contains(words), "{text:?}: {refused}");
        }
    }
}
