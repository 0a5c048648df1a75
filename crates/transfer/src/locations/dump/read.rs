//! Reads dumps.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, Take};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering as Atomic;

use zstd::stream::read::Decoder;

use crate::contract::{OpenedRange, Page, Rejected, RowReader, TransferSource};
use crate::error::{TransferResult, failed};
use crate::locations::NonEntities;
use crate::locations::dump::{DumpPart, DumpTable, MAX_LINE_BYTES, Manifest, digest, hex};
use crate::protocol::codec::policies::{self, Policy};
use crate::protocol::codec::properties::{self, ServiceProperties};
use crate::protocol::model::Key;
use crate::protocol::plan::Predicate;
use crate::protocol::plan::predicate::Prepared;
use crate::rows::Row;
use crate::rows::range::{Lower, RowRange, may_follow, order_in_both, sorts_alike};

const PAGE_ROWS: usize = 500;
const PAGE_BYTES: usize = 1 << 20;

pub struct DumpSource {
    folder: PathBuf,
    manifest: Manifest,
    filter: Option<Predicate>,
}

impl DumpSource {
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

    fn can_change(&self) -> bool {
        false
    }

    fn ranges(&self, table: &str) -> TransferResult<Vec<RowRange>> {
        let parts = self.table(table).map_or(&[][..], |table| &table.parts);
        let mut ranges = vec![RowRange::everything()];
        for part in parts.iter().skip(1) {
            let first = part.first.clone();
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

    fn open<'a>(&'a self, table: &str, range: &RowRange, _keys_only: bool) -> OpenedRange<'a> {
        let overlaps = |part: &&DumpPart| {
            !is_passed_whole(&range.lower, part)
                && range.upper.as_ref().is_none_or(|upper| part.first < *upper)
        };
        let parts = self.table(table).map_or(&[][..], |table| &table.parts).iter().filter(overlaps);
        let filter = self.filter.as_ref().map(Prepared::new);
        let (parts, table, non_entities) = (parts.collect(), table.to_owned(), NonEntities::default());
        let (open, last, range) = (None, None, range.clone());
        Ok(Box::new(Lines { folder: &self.folder, table, parts, open, last, range, filter, non_entities }))
    }

    /// Ranges are not split, because each part of the dump already has its own.
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
        read.map_err(|error| failed!("the policies of {table}: {}", error.text()))
    }

    fn properties(&self) -> TransferResult<Option<ServiceProperties>> {
        let read = self.manifest.properties.as_deref().map(properties::from_stored).transpose();
        read.map_err(|error| failed!("the service properties: {}", error.text()))
    }
}

/// The lines of the parts that overlap a range.
struct Lines<'a> {
    folder: &'a Path,
    table: String,
    parts: VecDeque<&'a DumpPart>,
    open: Option<(&'a DumpPart, PartReader)>,
    /// The key of the last row, selected or not.
    last: Option<Key>,
    range: RowRange,
    filter: Option<Prepared<'a>>,
    non_entities: NonEntities,
}

/// Whether a row certainly precedes the key from which a copy continues. The source of the dump may sort differently,
/// so the row must precede the key in both orders.
fn is_passed(lower: &Lower, key: &Key) -> bool {
    match lower {
        Lower::From(_) => lower.is_beyond(key),
        Lower::After(reached) => !may_follow(key, reached),
    }
}

/// Whether [`is_passed`] is true of all rows of a part.
fn is_passed_whole(lower: &Lower, part: &DumpPart) -> bool {
    let order_may_differ = matches!(lower, Lower::After(reached) if !sorts_alike(reached));
    !order_may_differ && lower.is_beyond(&part.last)
}

type PartReader = BufReader<Decoder<'static, BufReader<Take<File>>>>;

/// Opens a part, after verifying its hash the first time.
fn open_part(folder: &Path, part: &DumpPart) -> TransferResult<PartReader> {
    let path = folder.join(&part.file);
    let wrong = |reason: &dyn Display| failed!("{}: {reason}", path.display());
    let mut file = File::open(&path).map_err(|error| wrong(&error))?;
    if !part.is_checked.load(Atomic::Relaxed) {
        if hex(digest(&mut file).map_err(|error| wrong(&error))?) != part.sha256 {
            return Err(wrong(&"is damaged: its SHA-256 differs from the manifest"));
        }
        part.is_checked.store(true, Atomic::Relaxed);
        file.rewind().map_err(|error| wrong(&error))?;
    }
    Ok(BufReader::new(Decoder::new(file.take(part.bytes)).map_err(|error| wrong(&error))?))
}

impl Lines<'_> {
    /// Reads the next line; returns `false` after the last part.
    fn line(&mut self, line: &mut String) -> TransferResult<bool> {
        loop {
            if self.open.is_none() {
                let Some(part) = self.parts.pop_front() else { return Ok(false) };
                self.open = Some((part, open_part(self.folder, part)?));
            }
            let Some((_, reader)) = &mut self.open else { return Ok(false) };
            line.clear();
            if reader.by_ref().take(MAX_LINE_BYTES).read_line(line)? > 0 {
                return Ok(true);
            }
            self.open = None;
        }
    }

    /// Checks that a row follows the previous row and belongs to its part, because another program may have written the
    /// dump.
    fn check_order(&mut self, key: &Key) -> TransferResult<()> {
        if let Some(before) = &self.last
            && !may_follow(key, before)
        {
            let table = &self.table;
            return Err(failed!(
                "{table}: the dump has {key:?} after {before:?}, so it is not in the order of keys"
            ));
        }
        if let Some((DumpPart { file, first, last, .. }, _)) = &self.open
            && (order_in_both(key, first) == Some(Ordering::Less)
                || order_in_both(key, last) == Some(Ordering::Greater))
        {
            return Err(failed!(
                "{}: {key:?} is outside the range that the manifest states for this file",
                self.folder.join(file).display()
            ));
        }
        self.last = Some(key.clone());
        Ok(())
    }

    fn is_selected(&self, row: &Row) -> TransferResult<bool> {
        self.filter.as_ref().map_or(Ok(true), |filter| row.is_selected(filter))
    }
}

impl RowReader for Lines<'_> {
    fn next(&mut self) -> TransferResult<Option<Page>> {
        let (mut page, mut line, mut bytes) = (Page::default(), String::new(), 0);
        while page.rows.len() + page.rejected.len() < PAGE_ROWS && bytes < PAGE_BYTES {
            if !self.line(&mut line)? {
                self.non_entities.check(&self.table, &page)?;
                let is_empty = page.rows.is_empty() && page.rejected.is_empty();
                return Ok((!is_empty).then_some(page));
            }
            bytes += line.len();
            let read = Row::from_json(line.trim_end());
            if let Ok(row) = &read {
                self.check_order(&row.key)?;
            }
            match read {
                Err(_) if line.trim_end().is_empty() => {}
                Err(reason) => page.rejected.push(Rejected { entity: line.trim_end().to_owned(), reason }),
                Ok(row) if is_passed(&self.range.lower, &row.key) => {}
                // Rows of the range may follow, because the source of the dump may sort differently.
                Ok(row) if self.range.upper.as_ref().is_some_and(|upper| row.key >= *upper) => {}
                Ok(row) if self.is_selected(&row)? => page.rows.push(row),
                Ok(_) => {}
            }
        }
        self.non_entities.check(&self.table, &page)?;
        Ok(Some(page))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A dump of a table with these rows in one part.
    fn dump(folder: &Path, rows: &[&str], last: &str) -> DumpSource {
        let line = |row: &&str| format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"{row}\"}}\n");
        let bytes = zstd::encode_all(rows.iter().map(line).collect::<String>().as_bytes(), 1).unwrap();
        std::fs::write(folder.join("p"), &bytes).unwrap();
        let part = DumpPart {
            file: "p".into(),
            entities: rows.len() as u64,
            bytes: bytes.len() as u64,
            sha256: hex(digest(&mut bytes.as_slice()).unwrap()),
            is_checked: AtomicBool::new(false),
            first: Key::new("p", rows[0]),
            last: Key::new("p", last),
        };
        let entities = rows.len() as u64;
        let tables = vec![DumpTable { name: "T".into(), entities, policies: None, parts: vec![part] }];
        let (format, created) = (String::new(), String::new());
        let manifest = Manifest { format, version: 1, created, origin: None, properties: None, tables };
        DumpSource { folder: folder.to_owned(), manifest, filter: None }
    }

    #[test]
    fn the_hash_of_a_part_is_computed_before_it_is_read_and_not_again() {
        let folder = tempfile::tempdir().unwrap();
        let source = dump(folder.path(), &["a", "b"], "b");
        let get = |source: &DumpSource, row| source.get("T", &Key::new("p", row));
        assert!(get(&source, "a").unwrap().is_some());
        // Bytes after the part's length are not part of it, but change the file's hash.
        let part = folder.path().join("p");
        let longer = [std::fs::read(&part).unwrap(), vec![0]].concat();
        std::fs::write(&part, &longer).unwrap();
        assert!(get(&source, "b").unwrap().is_some() && get(&source, "c").unwrap().is_none());
        let again = dump(folder.path(), &["a", "b"], "b");
        std::fs::write(&part, longer).unwrap();
        assert!(get(&again, "a").is_err_and(|error| error.to_string().contains("is damaged")));
    }

    #[test]
    fn a_dump_that_is_not_in_the_order_of_keys_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for rows in [["b", "a"], ["a", "a"]] {
            let source = dump(folder.path(), &rows, "b");
            let read = source.open("T", &RowRange::everything(), false).unwrap().next();
            assert!(read.is_err_and(|error| error.to_string().contains("order of keys")), "{rows:?}");
        }
        let source = dump(folder.path(), &["a", "b", "c"], "b");
        let read = source.open("T", &RowRange::everything(), false).unwrap().next();
        assert!(read.is_err_and(|error| error.to_string().contains("outside")));
    }

    #[test]
    fn a_copy_that_goes_on_reads_what_the_sources_order_has_behind_it() {
        let folder = tempfile::tempdir().unwrap();
        // By UTF-16 unit an emoji sorts before these; the key that a copy has reached is the greatest by code
        // point.
        let rows = ["a", "\u{1f600}", "\u{e000}", "\u{ffee}"];
        let source = dump(folder.path(), &rows, "\u{1f600}");
        assert!(!source.can_change());
        let read = |lower: Lower| -> Vec<String> {
            let mut reader = source.open("T", &RowRange { lower, upper: None }, false).unwrap();
            let mut found = Vec::new();
            while let Some(page) = reader.next().unwrap() {
                found.extend(page.rows.into_iter().map(|row| row.key.row));
            }
            found
        };
        assert_eq!(read(Lower::start()), rows);
        assert_eq!(read(Lower::After(Key::new("p", "a"))), rows[1..]);
        assert_eq!(read(Lower::After(Key::new("p", "\u{1f600}"))), rows[2..]);
        // Possibly written rows are read again, and found equal.
        assert_eq!(read(Lower::After(Key::new("p", "\u{ffee}"))), ["\u{1f600}"]);
    }
}
