//! The file of entities that could not be copied, with the reasons.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use crate::contract::Rejected;
use crate::error::{TransferError, TransferResult};

/// What the file begins with.
const BEGINNING: &[u8] = b"{\"entity\":";

/// A file of JSON lines with `table`, `reason` and `entity`. It is created when the first is added.
pub struct Rejects {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl Rejects {
    /// Begins the file anew, or continues that of an interrupted copy.
    pub fn open(path: &Path, is_continued: bool) -> TransferResult<Self> {
        if path.is_file() {
            let mut beginning = Vec::new();
            File::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
            if !BEGINNING.starts_with(&beginning) {
                let text = format!("{} contains something other than rejected entities", path.display());
                return Err(TransferError::Usage(format!("{text}; name another file with --rejects")));
            }
            if !is_continued {
                std::fs::remove_file(path)?;
            }
        }
        Ok(Self { path: path.to_owned(), file: Mutex::new(None) })
    }

    /// Appends entities.
    pub fn add(&self, table: &str, rejected: &[Rejected]) -> TransferResult<()> {
        if rejected.is_empty() {
            return Ok(());
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let wrong = |error| TransferError::Failed(format!("{}: {error}", self.path.display()));
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

/// Returns the text of an entity, so that no number is altered; what is not JSON becomes a string.
fn one_line(entity: &str) -> String {
    match serde_json::from_str::<Value>(entity) {
        Ok(_) => entity.replace(['\r', '\n'], " "),
        Err(_) => Value::from(entity).to_string(),
    }
}
