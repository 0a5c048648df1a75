//! Reading through a dump in one file: whether it is complete and unaltered, and where each table is.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use zstd::stream::read::Decoder;

use super::contents::{DumpContents, DumpPiece, DumpedTable};
use super::manifest::{MAX_LINE, MAX_MANIFEST, hex};
use super::single::{DumpList, END, FirstLine, LastLine, SINGLE_VERSION};
use crate::protocol::model::Key;
use crate::transfer::error::{TransferError, TransferResult};
use crate::transfer::rows::range::sorts_alike;

/// Compressed bytes from which on a new piece begins: pieces are read side by side.
const PIECE_BYTES: u64 = 4 << 20;

/// A frame of the file, to be read to its end.
type Frame = BufReader<Decoder<'static, BufReader<File>>>;

/// What an entity's line says of its place.
#[derive(Deserialize)]
struct EntityPlace<'a> {
    #[serde(rename = "odata.type", borrow)]
    table: Cow<'a, str>,
    #[serde(rename = "PartitionKey", borrow)]
    partition: Cow<'a, str>,
    #[serde(rename = "RowKey", borrow)]
    row: Cow<'a, str>,
}

/// The entities of a frame.
struct FrameEntities {
    table: String,
    entities: u64,
    /// The key of the first line.
    begin: Key,
    least: Key,
    greatest: Key,
}

/// What was read so far.
#[derive(Default)]
struct DumpScan {
    tables: Vec<DumpedTable>,
    digest: Sha256,
}

/// Reads through a dump in one file.
///
/// # Errors
/// [`TransferError`] if it is incomplete, altered, or was not written by `rowhouse copy`, or if `stop` is
/// set.
pub(super) fn scan(path: &Path, stop: &AtomicBool) -> TransferResult<DumpContents> {
    read_through(path, stop).map_err(|error| match error {
        TransferError::Failed(reason) => TransferError::Failed(format!("{}: {reason}", path.display())),
        other => other,
    })
}

fn read_through(path: &Path, stop: &AtomicBool) -> TransferResult<DumpContents> {
    let mut file = BufReader::new(File::open(path)?);
    let length = file.get_ref().metadata()?.len();
    let mut scan = DumpScan::default();
    let mut offset = 0;
    let mut line = String::new();
    while offset < length {
        if stop.load(Ordering::Relaxed) {
            return Err(TransferError::Interrupted);
        }
        let mut frame: Frame = BufReader::new(Decoder::with_buffer(file)?.single_frame());
        // The last line may list many tables.
        read_line(&mut frame, &mut line, MAX_MANIFEST)?;
        if line.starts_with(END) {
            return scan.finish(&line, next_offset(frame)?.1 == length);
        }
        let entities = match offset {
            0 => scan.begin(&line).map(|()| None)?,
            _ => Some(scan.entities(&mut frame, &mut line)?),
        };
        let next;
        (file, next) = next_offset(frame)?;
        if let Some(entities) = entities {
            scan.add(path, entities, offset, next - offset)?;
        }
        offset = next;
    }
    Err(wrong("is incomplete: its last line is missing"))
}

fn wrong(reason: &str) -> TransferError {
    TransferError::Failed(reason.to_owned())
}

/// Reads a line with its end; it is empty at the end of the frame.
fn read_line(frame: &mut Frame, line: &mut String, limit: u64) -> TransferResult<()> {
    line.clear();
    let read = frame.by_ref().take(limit).read_line(line);
    read.map_err(|error| wrong(&format!("is incomplete or damaged: {error}")))?;
    Ok(())
}

/// Returns the file behind a frame that was read, and the offset there.
fn next_offset(mut frame: Frame) -> TransferResult<(BufReader<File>, u64)> {
    if !frame.fill_buf()?.is_empty() {
        return Err(wrong("was compressed by another program; only `rowhouse copy` writes such files"));
    }
    let mut file = frame.into_inner().finish();
    let offset = file.stream_position()?;
    Ok((file, offset))
}

impl DumpScan {
    /// Takes the first line.
    fn begin(&mut self, line: &str) -> TransferResult<()> {
        let first: FirstLine =
            serde_json::from_str(line).map_err(|error| wrong(&format!("the first line: {error}")))?;
        if first.about.version != SINGLE_VERSION {
            return Err(wrong(&format!("is not of version {SINGLE_VERSION}")));
        }
        self.digest.update(line);
        Ok(())
    }

    /// Reads the entities of a frame, of which `line` is the first.
    fn entities(&mut self, frame: &mut Frame, line: &mut String) -> TransferResult<FrameEntities> {
        let mut found: Option<FrameEntities> = None;
        while !line.is_empty() {
            self.digest.update(line.as_bytes());
            let place: EntityPlace<'_> =
                serde_json::from_str(line).map_err(|error| wrong(&format!("is damaged: {error}")))?;
            let key = Key::new(place.partition, place.row);
            match &mut found {
                None => found = Some(FrameEntities::new(place.table.into_owned(), key)),
                Some(found) if found.table == place.table => found.add(key),
                Some(_) => return Err(wrong("is damaged: tables are mixed")),
            }
            read_line(frame, line, MAX_LINE)?;
        }
        found.ok_or_else(|| wrong("is damaged: it has an empty frame"))
    }

    /// Adds the entities of a frame to their table.
    fn add(&mut self, path: &Path, found: FrameEntities, offset: u64, bytes: u64) -> TransferResult<()> {
        let known = self.tables.iter().position(|table| table.name == found.table);
        if known.is_some_and(|at| at + 1 < self.tables.len()) {
            return Err(wrong("is damaged: a table is in two places"));
        }
        if known.is_none() {
            let (name, policies, pieces) = (found.table, None, Vec::new());
            self.tables.push(DumpedTable { name, entities: 0, policies, pieces });
        }
        let Some(table) = self.tables.last_mut() else { return Ok(()) };
        table.entities += found.entities;
        // Pieces must be disjoint in whatever order the source had.
        let is_full = |piece: &DumpPiece| piece.bytes >= PIECE_BYTES && sorts_alike(&found.begin);
        match table.pieces.last_mut() {
            Some(piece) if !is_full(piece) => {
                piece.bytes += bytes;
                piece.first = piece.first.clone().min(found.least);
                piece.last = piece.last.clone().max(found.greatest);
                return Ok(());
            }
            Some(piece) if piece.last >= found.least => {
                return Err(wrong("is damaged: entities are not in the order of their keys"));
            }
            _ => {}
        }
        let (file, first, last) = (path.to_owned(), found.least, found.greatest);
        let is_checked = AtomicBool::new(true);
        table.pieces.push(DumpPiece { file, offset, bytes, sha256: None, is_checked, first, last });
        Ok(())
    }

    /// Compares what was read with the last line.
    fn finish(mut self, line: &str, is_last: bool) -> TransferResult<DumpContents> {
        let LastLine { list: DumpList { properties, tables, sha256 } } =
            serde_json::from_str(line).map_err(|error| wrong(&format!("the last line: {error}")))?;
        if !is_last {
            return Err(wrong("is damaged: something follows the last line"));
        }
        if hex(self.digest) != sha256 {
            return Err(wrong("is damaged: the SHA-256 of its lines is not the one in the last line"));
        }
        let mut contents = DumpContents { properties, tables: Vec::new() };
        for listed in tables {
            let found = self.tables.iter().position(|table| table.name == listed.name);
            let pieces = found.map_or(Vec::new(), |at| std::mem::take(&mut self.tables[at].pieces));
            if found.map_or(0, |at| self.tables[at].entities) != listed.entities {
                return Err(wrong(&format!(
                    "is damaged: {} has not {} entities",
                    listed.name, listed.entities
                )));
            }
            let (name, entities, policies) = (listed.name, listed.entities, listed.policies);
            contents.tables.push(DumpedTable { name, entities, policies, pieces });
        }
        match self.tables.iter().find(|table| !table.pieces.is_empty()) {
            Some(table) => Err(wrong(&format!("is damaged: {} is not in the last line", table.name))),
            None => Ok(contents),
        }
    }
}

impl FrameEntities {
    fn new(table: String, key: Key) -> Self {
        Self { table, entities: 1, begin: key.clone(), least: key.clone(), greatest: key }
    }

    fn add(&mut self, key: Key) {
        self.entities += 1;
        if key < self.least {
            self.least = key;
        } else if key > self.greatest {
            self.greatest = key;
        }
    }
}
