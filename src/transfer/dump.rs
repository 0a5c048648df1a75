//! Dumps: a folder of compressed newline-delimited JSON and a manifest.
//!
//! `manifest.json` lists the tables with their policies, and the parts of each with its first and
//! last key, number of entities and SHA-256. A part is a sequence of zstd frames, one for each page,
//! which `zstdcat` reads; its lines are in the order of keys. A folder without a manifest is
//! incomplete.

mod manifest;
mod read;
mod write;

pub(super) use manifest::MANIFEST;
pub(super) use read::DumpSource;
pub(super) use write::DumpTarget;
