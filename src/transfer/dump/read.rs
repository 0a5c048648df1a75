//! Reading a dump.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;

use super::manifest::{DumpPart, DumpTable, Manifest, hex};
use crate::codec::policies::{self, Policy};
use crate::codec::properties::{self, ServiceProperties};
use crate::model::entity::BorrowedEntity;
use crate::model::{Key, Ticks};
use crate::plan::Predicate;
use crate::plan::predicate::Prepared;
use crate::transfer::endpoint::{Page, Rejected, RowReader, TransferError, TransferResult, TransferSource};
use crate::transfer::range::{Lower, RowRange};
use crate::transfer::row::Row;

/// Entities of a page.
const ROWS: usize = 500;
/// Bytes of the lines of a page.
const BYTES: usize = 1 << 20;
/// Maximum bytes of a line: an entity of 1 MiB, with its binary in base64 and everything escaped.
const MAX_LINE: u64 = 16 << 20;

/// A dump to read from.
pub(crate) struct DumpSource {
    folder: PathBuf,
    manifest: Manifest,
    filter: Option<Predicate>,
}

impl DumpSource {
    /// Opens a complete dump.
    ///
    /// # Errors
    /// [`TransferError`] if its manifest cannot be read.
    pub(crate) fn open(folder: &Path, filter: Option<Predicate>) -> TransferResult<Self> {
        Ok(Self { folder: folder.to_owned(), manifest: Manifest::read(folder)?, filter })
    }

    fn table(&self, name: &str) -> Option<&DumpTable> {
        self.manifest.tables.iter().find(|table| table.name.eq_ignore_ascii_case(name))
    }
}

impl TransferSource for DumpSource {
    fn tables(&self) -> TransferResult<Vec<String>> {
        Ok(self.manifest.tables.iter().map(|table| table.name.clone()).collect())
    }

    fn ranges(&self, table: &str) -> TransferResult<Vec<RowRange>> {
        let parts = self.table(table).map_or(&[][..], |table| &table.parts);
        let mut ranges = vec![RowRange::everything()];
        for part in parts.iter().skip(1) {
            let first = part.first_key();
            if let Some(before) = ranges.last_mut() {
                before.upper = Some(first.clone());
            }
            ranges.push(RowRange { lower: Lower::From(first), upper: None });
        }
        Ok(ranges)
    }

    fn expected(&self, table: &str) -> TransferResult<Option<u64>> {
        Ok(self.table(table).filter(|_| self.filter.is_none()).map(|table| table.entities))
    }

    fn open<'a>(
        &'a self,
        table: &str,
        range: &RowRange,
        _keys_only: bool,
    ) -> TransferResult<Box<dyn RowReader + 'a>> {
        let overlaps = |part: &&DumpPart| {
            !range.lower.is_beyond(&part.last_key())
                && range.upper.as_ref().is_none_or(|upper| part.first_key() < *upper)
        };
        let parts = self.table(table).map_or(&[][..], |table| &table.parts).iter().filter(overlaps);
        let filter = self.filter.as_ref().map(Prepared::new);
        Ok(Box::new(Lines { dump: self, parts: parts.collect(), open: None, range: range.clone(), filter }))
    }

    /// Ranges are not split: the parts of the dump are ranges already.
    fn probe(&self, _table: &str, _range: &RowRange) -> TransferResult<Option<Key>> {
        Ok(None)
    }

    fn get(&self, table: &str, key: &Key) -> TransferResult<Option<Row>> {
        let upper = Key::new(key.partition.as_str(), format!("{}\u{1}", key.row));
        let range = RowRange { lower: Lower::From(key.clone()), upper: Some(upper) };
        let mut reader = self.open(table, &range, false)?;
        while let Some(page) = reader.next()? {
            if let Some(row) = page.rows.into_iter().next() {
                return Ok(Some(row));
            }
        }
        Ok(None)
    }

    fn policies(&self, table: &str) -> TransferResult<Option<Vec<Policy>>> {
        let stored = self.table(table).and_then(|table| table.policies.as_deref());
        let read = stored.map(policies::from_stored).transpose();
        read.map_err(|error| TransferError::Endpoint(format!("the policies of {table}: {}", error.text())))
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        let read = self.manifest.properties.as_deref().map(properties::from_stored).transpose();
        read.map_err(|error| TransferError::Endpoint(format!("the service properties: {}", error.text())))
    }
}

/// The lines of the parts that overlap a range.
struct Lines<'a> {
    dump: &'a DumpSource,
    parts: VecDeque<&'a DumpPart>,
    open: Option<BufReader<Decoder<'static, BufReader<File>>>>,
    range: RowRange,
    filter: Option<Prepared<'a>>,
}

impl Lines<'_> {
    /// Opens a part, after checking its hash.
    fn open_part(&self, part: &DumpPart) -> TransferResult<BufReader<Decoder<'static, BufReader<File>>>> {
        let path = self.dump.folder.join(&part.file);
        let wrong =
            |reason: &dyn std::fmt::Display| TransferError::Endpoint(format!("{}: {reason}", path.display()));
        let mut file = File::open(&path).map_err(|error| wrong(&error))?;
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = file.read(&mut buffer).map_err(|error| wrong(&error))?;
            if read == 0 {
                break;
            }
            digest.update(&buffer[..read]);
        }
        if hex(digest) != part.sha256 {
            return Err(wrong(&"is damaged: its SHA-256 is not the one in the manifest"));
        }
        let file = File::open(&path).map_err(|error| wrong(&error))?;
        Ok(BufReader::new(Decoder::new(file).map_err(|error| wrong(&error))?))
    }

    /// Returns the next line without its end; `None` after the last part.
    fn line(&mut self, line: &mut String) -> TransferResult<bool> {
        loop {
            if self.open.is_none() {
                let Some(part) = self.parts.pop_front() else { return Ok(false) };
                self.open = Some(self.open_part(part)?);
            }
            let Some(reader) = &mut self.open else { return Ok(false) };
            line.clear();
            if reader.by_ref().take(MAX_LINE).read_line(line)? > 0 {
                return Ok(true);
            }
            self.open = None;
        }
    }

    fn is_selected(&self, row: &Row) -> TransferResult<bool> {
        let Some(filter) = &self.filter else { return Ok(true) };
        let entity = BorrowedEntity {
            partition: &row.key.partition,
            row: &row.key.row,
            modified: row.modified.unwrap_or(Ticks::MIN),
            properties: row.properties.as_str(),
            order: row.properties.order(),
        };
        let matched = filter.matches(entity);
        matched.map_err(|error| TransferError::Endpoint(error.text().to_owned()))
    }
}

impl RowReader for Lines<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        let (mut page, mut line, mut bytes) = (Page::default(), String::new(), 0);
        while page.rows.len() < ROWS && bytes < BYTES {
            if !self.line(&mut line)? {
                let is_empty = page.rows.is_empty() && page.rejected.is_empty();
                return Ok((!is_empty).then_some(page));
            }
            bytes += line.len();
            match Row::from_json(line.trim_end()) {
                Err(reason) => page.rejected.push(Rejected { entity: line.trim_end().to_owned(), reason }),
                Ok(row) if self.range.lower.is_beyond(&row.key) => {}
                // The source of the dump may sort in another way: rows of the range may follow.
                Ok(row) if self.range.upper.as_ref().is_some_and(|upper| row.key >= *upper) => {}
                Ok(row) if self.is_selected(&row)? => page.rows.push(row),
                Ok(_) => {}
            }
        }
        Ok(Some(page))
    }
}
