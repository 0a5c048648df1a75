//! Files of entities that could not be copied, with the reasons.

use std::fs::{File, OpenOptions};
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::contract::Rejected;
use crate::error::{TransferResult, failed, fatal, usage};

const BEGINNING: &[u8] = b"{\"entity\":";

/// A file of JSON lines with `table`, `reason` and `entity`. It is created with the first entity.
pub struct Rejects {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl Rejects {
    /// Starts a new file, or continues the file of an interrupted copy.
    pub fn open(path: &Path, is_continued: bool) -> TransferResult<Self> {
        if path.is_file() {
            let mut beginning = Vec::new();
            File::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
            if !BEGINNING.starts_with(&beginning) {
                let text = format!("{} contains something other than rejected entities", path.display());
                return Err(usage!("{text}; name another state with --state"));
            }
            if !is_continued {
                std::fs::remove_file(path)?;
            }
        }
        Ok(Self { path: path.to_owned(), file: Mutex::new(None) })
    }

    pub fn add(&self, table: &str, rejected: &[Rejected]) -> TransferResult<()> {
        if rejected.is_empty() {
            return Ok(());
        }
        let mut file = self.file.lock();
        let wrong = |error| fatal!("{}: {error}", self.path.display());
        let file = match &mut *file {
            Some(file) => file,
            none => {
                none.insert(OpenOptions::new().create(true).append(true).open(&self.path).map_err(wrong)?)
            }
        };
        let mut lines = String::new();
        for Rejected { entity, reason } in rejected {
            let [table, reason] = [table, reason].map(Value::from);
            let entity = one_line(entity);
            lines.push_str(&format!("{{\"entity\":{entity},\"reason\":{reason},\"table\":{table}}}\n"));
        }
        file.write_all(lines.as_bytes()).map_err(wrong)
    }
}

/// Returns the text of an entity on one line, with its numbers unaltered. Text that is not JSON becomes a
/// string.
fn one_line(entity: &str) -> String {
    match serde_json::from_str::<Value>(entity) {
        Ok(_) => entity.replace(['\r', '\n'], " "),
        Err(_) => Value::from(entity).to_string(),
    }
}

#[derive(Serialize, Deserialize)]
struct SpooledEntity {
    table: String,
    rejected: Rejected,
}

/// Rejected entities, to be read as often as needed. The file is created with the first one; the folder's owner
/// deletes it.
pub(crate) struct RejectedSpool {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl RejectedSpool {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { path: folder.join("rejected.jsonl"), file: None }
    }

    pub(crate) fn push(&mut self, table: &str, rejected: Rejected) -> TransferResult<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(BufWriter::new(File::create(&self.path)?)),
        };
        serde_json::to_writer(&mut *file, &SpooledEntity { table: table.to_owned(), rejected })
            .map_err(std::io::Error::from)?;
        Ok(file.write_all(b"\n")?)
    }

    pub(crate) fn finish(&mut self) -> TransferResult<()> {
        Ok(self.file.as_mut().map_or(Ok(()), BufWriter::flush)?)
    }

    pub(crate) fn each(
        &self,
        take: &mut dyn FnMut(&str, Rejected) -> TransferResult<()>,
    ) -> TransferResult<()> {
        if self.file.is_none() {
            return Ok(());
        }
        let file = BufReader::new(File::open(&self.path)?);
        for entity in serde_json::Deserializer::from_reader(file).into_iter() {
            let SpooledEntity { table, rejected } =
                entity.map_err(|error| failed!("rejected entities: {error}"))?;
            take(&table, rejected)?;
        }
        Ok(())
    }
}
