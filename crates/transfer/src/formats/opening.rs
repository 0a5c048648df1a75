//! Opening files, whatever they are compressed with.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder;

use crate::error::{TransferError, TransferResult};

/// Bytes by which a file is recognized.
const BEGINNING: u64 = 1 << 16;
/// Maximum bytes of an entity in a file: one of the maximum size whose bytes are a list of numbers has half of
/// that.
pub(super) const MAX_ENTITY_TEXT: u64 = 32 << 20;
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const SEVEN_ZIP: &[u8] = &[0x37, 0x7a, 0xbc, 0xaf];

/// Opens a file, and decompresses it if its content is gzip or zstd, whatever its name says.
pub(super) fn open(path: &Path) -> TransferResult<Box<dyn BufRead>> {
    let wrong = |reason: &dyn std::fmt::Display| named(path, reason);
    // Files are read more than once, and a pipe without a writer would never end.
    if !std::fs::metadata(path).map_err(|error| wrong(&error))?.is_file() {
        return Err(wrong(&"is not a regular file; if it is a pipe, write its content to a file first"));
    }
    let mut file = BufReader::new(File::open(path).map_err(|error| wrong(&error))?);
    let beginning = file.fill_buf().map_err(|error| wrong(&error))?;
    if beginning.starts_with(SEVEN_ZIP) {
        return Err(wrong(&"is a 7-Zip archive; unpack it first"));
    }
    if beginning.starts_with(GZIP) {
        return Ok(Box::new(BufReader::new(MultiGzDecoder::new(file))));
    }
    if beginning.starts_with(ZSTD) {
        let decoder = Decoder::with_buffer(file).map_err(|error| wrong(&error))?;
        return Ok(Box::new(BufReader::new(decoder)));
    }
    Ok(Box::new(file))
}

/// Opens a file of text, without its byte order mark.
pub(super) fn open_text(path: &Path) -> TransferResult<Box<dyn BufRead>> {
    let mut reader = open(path)?;
    let beginning = reader.fill_buf().map_err(|error| named(path, &error))?;
    match beginning {
        [0xef, 0xbb, 0xbf, ..] => reader.consume(3),
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, _, ..] | [_, 0, ..] => {
            return Err(named(path, &"is UTF-16; convert it first: iconv -f UTF-16 -t UTF-8"));
        }
        _ => {}
    }
    Ok(reader)
}

/// Returns an error that names its file.
pub(super) fn named(path: &Path, reason: &dyn std::fmt::Display) -> TransferError {
    TransferError::Failed(format!("{}: {reason}", path.display()))
}

/// Returns the folder that a file is in.
pub(super) fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Returns the beginning of a text.
pub(super) fn beginning(path: &Path) -> TransferResult<String> {
    let mut bytes = Vec::new();
    open_text(path)?.take(BEGINNING).read_to_end(&mut bytes).map_err(|error| named(path, &error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
