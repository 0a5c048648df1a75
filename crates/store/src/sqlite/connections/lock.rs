//! Prevents two servers from using the same database file.

use std::fs::{File, OpenOptions, TryLockError, canonicalize};
use std::io;
use std::path::{Path, PathBuf, absolute};

use crate::sqlite::connections::access::obstacle;
use crate::sqlite::connections::options::OpenError;

/// The right to serve a database file, until it is dropped. The operating system releases it when the
/// process ends for whatever reason.
pub struct ServerLock {
    _file: File,
}

impl ServerLock {
    /// Locks the file beside the database. Returns `None`, with a warning, if the file system does not
    /// support locks.
    ///
    /// # Errors
    /// [`OpenError::Served`] if another server holds the lock.
    pub fn take(database: &Path) -> Result<Option<Self>, OpenError> {
        let path = beside(database, ".lock");
        let locked = open(&path).map_err(TryLockError::Error).and_then(|file| {
            file.try_lock()?;
            Ok(Self { _file: file })
        });
        match locked {
            Ok(lock) => Ok(Some(lock)),
            Err(TryLockError::WouldBlock) => {
                Err(OpenError::Served(database.display().to_string(), path.display().to_string()))
            }
            Err(TryLockError::Error(error)) => {
                warn(database, &path, &error);
                Ok(None)
            }
        }
    }
}

/// Warns, unless the database itself cannot be written: then the server does not start anyway.
fn warn(database: &Path, path: &Path, error: &io::Error) {
    if obstacle(database).is_none() {
        let file = path.display();
        tracing::warn!(%error, "cannot lock {file}; make sure that no other server uses this database");
    }
}

pub(crate) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Returns the path of a lock file. It follows symbolic links, so that they share one lock; a database with hard links
/// is not opened.
pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let real = canonicalize(database).or_else(|_| absolute(database)).unwrap_or_else(|_| database.to_owned());
    let mut name = real.into_os_string();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_by_whatever_name() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("a.db"), folder.path().join("link.db"));
        std::fs::write(&file, "").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let held = ServerLock::take(&file).unwrap();
        assert!(held.is_some());
        for name in [&file, &link] {
            assert!(
                matches!(ServerLock::take(name), Err(OpenError::Served(_, lock)) if lock.ends_with("a.db.lock"))
            );
        }
        drop(held);
        assert!(ServerLock::take(&link).unwrap().is_some());
    }

    #[test]
    fn where_there_can_be_no_lock_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.db");
        std::fs::create_dir(folder.path().join("a.db.lock")).unwrap();
        assert!(ServerLock::take(&file).unwrap().is_none());
        assert!(ServerLock::take(&folder.path().join("none").join("a.db")).unwrap().is_none());
    }
}
