//! Dumps: folders of compressed newline-delimited JSON.
//!
//! `manifest.json` lists the tables with their policies, and the parts of each with its first and last
//! key, number of entities and SHA-256. A part is a sequence of zstd frames, one for each page, which
//! `zstdcat` reads; its lines are in the order of keys. A folder without a manifest is incomplete.

mod contents;
mod lines;
mod manifest;
mod part;
mod read;
mod write;

pub(crate) use manifest::{MANIFEST, digest, hex, origin};
pub(crate) use read::DumpSource;
pub(crate) use write::DumpTarget;
