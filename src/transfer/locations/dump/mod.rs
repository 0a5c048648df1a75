//! Dumps: compressed newline-delimited JSON, in a folder or in one file.
//!
//! In a folder, `manifest.json` lists the tables with their policies, and the parts of each with its
//! first and last key, number of entities and SHA-256. A part is a sequence of zstd frames, one for each
//! page, which `zstdcat` reads; its lines are in the order of keys. A folder without a manifest is
//! incomplete.
//!
//! A file has the same frames one after another, and a first and a last line of its own
//! ([`single`]). A file without the last line is incomplete.

mod contents;
mod lines;
mod manifest;
mod part;
mod read;
mod scan;
mod single;
mod single_write;
mod write;

pub(crate) use manifest::MANIFEST;
pub(crate) use read::DumpSource;
pub(crate) use single::{is_single, names_single};
pub(crate) use single_write::SingleDumpTarget;
pub(crate) use write::DumpTarget;
