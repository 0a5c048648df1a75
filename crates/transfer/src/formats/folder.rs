//! The folder of a temporary database.

use std::fs::File;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::error::{TransferError, TransferResult};

/// The file of the database in the folder.
pub(super) const DATABASE: &str = "staged.db";
/// What the folder's name begins with.
const PREFIX: &str = "rowhouse-staged-";
/// Bytes of free space below which a failure is put down to it.
const LITTLE: u64 = 16 << 20;

/// A folder for temporary files. It is removed when this is dropped, or by the next copy if the process is
/// killed.
pub(super) struct StagingFolder {
    path: PathBuf,
    /// The folder, locked: what has no lock was left behind.
    _lock: File,
}

impl StagingFolder {
    /// Creates a folder where the system has its temporary files.
    pub(super) fn create() -> TransferResult<Self> {
        let parent = std::env::temp_dir();
        remove_abandoned(&parent);
        let path = parent.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
        let create = || {
            create_private(&path)?;
            let lock = File::open(&path)?;
            lock.lock()?;
            Ok::<_, std::io::Error>(lock)
        };
        let lock = create().map_err(|error| failed(&path, &error))?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StagingFolder {
    fn drop(&mut self) {
        // If this fails, the next copy removes it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Creates a folder that other users of the machine cannot look into, as files that are read may be private.
fn create_private(path: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Removes folders of processes that were killed. What cannot be removed stays: this is no reason to fail.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_staging = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // A process that has just begun has no database yet, and perhaps no lock.
        if !is_staging || !path.join(DATABASE).is_file() {
            continue;
        }
        if let Ok(folder) = File::open(&path)
            && folder.try_lock().is_ok()
        {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Returns the error of a temporary file, with the folder, and the want of space if that is the reason.
pub(super) fn failed(folder: &Path, error: &dyn std::fmt::Display) -> TransferError {
    let place = folder.parent().unwrap_or(folder).display();
    let hint = if has_little_space(folder) {
        format!("; {place} is full: set TMPDIR to a folder with more space")
    } else {
        String::new()
    };
    TransferError::Failed(format!("temporary files in {place}: {error}{hint}"))
}

#[cfg(unix)]
fn has_little_space(folder: &Path) -> bool {
    let place = folder.parent().unwrap_or(folder);
    rustix::fs::statvfs(place).is_ok_and(|of| of.f_bavail.saturating_mul(of.f_frsize) < LITTLE)
}

#[cfg(not(unix))]
fn has_little_space(_folder: &Path) -> bool {
    false
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(unix)]
    fn nobody_else_can_look_into_the_folder() {
        let folder = super::StagingFolder::create().unwrap();
        let permissions = std::fs::metadata(folder.path()).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&permissions) & 0o777, 0o700);
    }
}
