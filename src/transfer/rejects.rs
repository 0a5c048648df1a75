//! The file of entities that could not be copied, with the reasons.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::endpoint::{Rejected, TransferResult};

/// A file of JSON lines with `table`, `reason` and `entity`. It is created when the first is added.
pub(crate) struct Rejects {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl Rejects {
    /// Appends to this file if it exists.
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), file: Mutex::new(None) }
    }

    /// Appends entities.
    ///
    /// # Errors
    /// Those of the file, so that no rejected entity is lost silently.
    pub(crate) fn add(&self, table: &str, rejected: &[Rejected]) -> TransferResult<()> {
        if rejected.is_empty() {
            return Ok(());
        }
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match &mut *file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().create(true).append(true).open(&self.path)?),
        };
        let mut lines = String::new();
        for Rejected { entity, reason } in rejected {
            let entity =
                serde_json::from_str(entity).unwrap_or_else(|_| serde_json::Value::from(entity.as_str()));
            let line = serde_json::json!({ "table": table, "reason": reason, "entity": entity });
            lines.push_str(&format!("{line}\n"));
        }
        Ok(file.write_all(lines.as_bytes())?)
    }
}
