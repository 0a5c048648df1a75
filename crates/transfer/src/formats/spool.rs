//! The entities that were rejected while files were read, in a file of their own: there may be more than
//! fit into memory.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::contract::Rejected;
use crate::error::{TransferError, TransferResult};

/// A rejected entity in the file.
#[derive(Serialize, Deserialize)]
struct SpooledEntity {
    table: String,
    rejected: Rejected,
}

/// Takes rejected entities. The file is created with the first.
pub(super) struct RejectedSpool {
    path: PathBuf,
    file: Option<BufWriter<File>>,
    entities: u64,
}

/// Rejected entities, to be read as often as needed. Whoever owns the folder removes the file.
pub(super) struct SpooledRejects {
    path: PathBuf,
    entities: u64,
}

impl RejectedSpool {
    /// Returns a spool whose file is in this folder.
    pub(super) fn new(folder: &Path) -> Self {
        Self { path: folder.join("rejected.jsonl"), file: None, entities: 0 }
    }

    /// Adds an entity of a table.
    pub(super) fn push(&mut self, table: &str, rejected: Rejected) -> TransferResult<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::new(File::create(&self.path)?)),
        };
        serde_json::to_writer(&mut *file, &SpooledEntity { table: table.to_owned(), rejected })
            .map_err(std::io::Error::from)?;
        file.write_all(b"\n")?;
        self.entities += 1;
        Ok(())
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> TransferResult<SpooledRejects> {
        if let Some(file) = &mut self.file {
            file.flush()?;
        }
        Ok(SpooledRejects { path: self.path, entities: self.entities })
    }
}

impl SpooledRejects {
    /// Passes on all entities with their tables.
    pub(super) fn each(
        &self,
        take: &mut dyn FnMut(&str, Rejected) -> TransferResult<()>,
    ) -> TransferResult<()> {
        if self.entities == 0 {
            return Ok(());
        }
        let file = BufReader::new(File::open(&self.path)?);
        for entity in serde_json::Deserializer::from_reader(file).into_iter() {
            let SpooledEntity { table, rejected } =
                entity.map_err(|error| TransferError::Failed(format!("rejected entities: {error}")))?;
            take(&table, rejected)?;
        }
        Ok(())
    }
}
