//! Copies a database file while other connections read and write it.

use std::fs::{self, File, OpenOptions, hard_link};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use uuid::Uuid;

use crate::sqlite::connections::options::BUSY_TIMEOUT;

/// Number of SQLite instructions between two checks of the stop flag.
const STOP_EVERY: i32 = 10_000;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{0} exists already; a backup does not replace a file")]
    Exists(String),
    #[error("cannot write {0}: {1}")]
    File(String, io::Error),
    #[error("cannot read the SQLite database {0}: {1}")]
    Source(String, rusqlite::Error),
    #[error("{0} is not a Rowhouse database: run `rowhouse migrate` first")]
    Foreign(String),
    #[error("cannot copy the SQLite database: {0}")]
    Copy(rusqlite::Error),
    #[error("cannot check the copy: {0}")]
    Check(rusqlite::Error),
    #[error("the copy is damaged: {0}")]
    Damaged(String),
    #[error("stopped; there is no backup")]
    Stopped,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    pub tables: i64,
    pub entities: i64,
}

pub struct Backup {
    source: PathBuf,
    file: PathBuf,
    partial: Partial,
    stop: Arc<AtomicBool>,
}

/// The unfinished copy, which is removed on drop.
struct Partial(PathBuf);

impl Partial {
    /// Creates the copy beside `file`. Its name is random, because PIDs are not unique across containers.
    fn create(file: &Path, mode: u32) -> Result<Self, BackupError> {
        let mut name = file.as_os_str().to_owned();
        name.push(format!(".{:08x}.partial", Uuid::new_v4().as_fields().0));
        let path = PathBuf::from(name);
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&path) {
            Ok(_) => Ok(Self(path)),
            Err(error) => Err(BackupError::File(path.display().to_string(), error)),
        }
    }

    fn sync(&self) -> Result<(), BackupError> {
        let synced = File::open(&self.0).and_then(|copy| copy.sync_all());
        synced.map_err(|error| BackupError::File(self.0.display().to_string(), error))
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The removal fails after a complete copy has been renamed. A full disk also leaves SQLite's journal.
        let _ = fs::remove_file(&self.0);
        let mut journal = self.0.as_os_str().to_owned();
        journal.push("-journal");
        let _ = fs::remove_file(journal);
    }
}

impl Backup {
    /// Creates an empty file beside `file`, with the permissions of the source.
    ///
    /// # Errors
    /// [`BackupError::Exists`], and errors of the folder.
    pub fn new(source: &Path, file: &Path) -> Result<Self, BackupError> {
        let failed = |error| BackupError::File(file.display().to_string(), error);
        if fs::symlink_metadata(file).is_ok() {
            return Err(BackupError::Exists(file.display().to_string()));
        }
        let file = absolute(file).map_err(failed)?;
        let mode = source.metadata().map_or(0o600, |found| found.mode() & 0o777);
        let partial = Partial::create(&file, mode)?;
        Ok(Self { source: source.to_owned(), file, partial, stop: Arc::default() })
    }

    /// The path of the unfinished copy.
    pub fn partial(&self) -> PathBuf {
        self.partial.0.clone()
    }

    /// Returns the flag that stops the copy.
    pub fn stop(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Copies the database, checks the copy, syncs it to disk and renames it to its final name.
    pub fn run(self) -> Result<Copied, BackupError> {
        self.copy()?;
        let copied = self.check()?;
        let failed = |error| BackupError::File(self.file.display().to_string(), error);
        self.partial.sync()?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(BackupError::Stopped);
        }
        match publish_without_overwriting(&self.partial.0, &self.file) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(BackupError::Exists(self.file.display().to_string()));
            }
            named => named.map_err(failed)?,
        }
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
        Ok(copied)
    }

    /// Copies one snapshot. Writes continue, and the copy lacks later commits.
    fn copy(&self) -> Result<(), BackupError> {
        let source = |error| BackupError::Source(self.source.display().to_string(), error);
        // A read-only connection cannot recover the log after a crash.
        let db = self.open(&self.source, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(source)?;
        if version(&db).map_err(source)? == 0 {
            return Err(BackupError::Foreign(self.source.display().to_string()));
        }
        // SQLite accepts only UTF-8 paths.
        let partial = self.partial.0.to_str().ok_or_else(|| {
            let error = io::Error::new(io::ErrorKind::InvalidFilename, "its name is not UTF-8");
            BackupError::File(self.file.display().to_string(), error)
        })?;
        db.execute("VACUUM INTO ?1", [partial]).map_err(|error| stopped_or(error, BackupError::Copy))?;
        Ok(())
    }

    fn check(&self) -> Result<Copied, BackupError> {
        let check = |error| stopped_or(error, BackupError::Check);
        let db = self.open(&self.partial.0, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(check)?;
        let said: String = db.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(check)?;
        if said != "ok" {
            return Err(BackupError::Damaged(said));
        }
        let count = |table| db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0));
        let tables = count("tables").map_err(check)?;
        let entities = count("entities").map_err(check)?;
        let bytes = self.partial.0.metadata().map_or(0, |found| found.len());
        Ok(Copied { bytes, tables, entities })
    }

    fn open(&self, path: &Path, access: OpenFlags) -> rusqlite::Result<Connection> {
        let db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        let stop = self.stop();
        db.progress_handler(STOP_EVERY, Some(move || stop.load(Ordering::Relaxed)))?;
        Ok(db)
    }
}

fn version(db: &Connection) -> rusqlite::Result<i64> {
    db.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn stopped_or(error: rusqlite::Error, other: fn(rusqlite::Error) -> BackupError) -> BackupError {
    match error.sqlite_error_code() {
        Some(ErrorCode::OperationInterrupted) => BackupError::Stopped,
        _ => other(error),
    }
}

/// Tries a hard link, then a rename. Some file systems have no hard links, others no rename without overwriting.
fn publish_without_overwriting(from: &Path, to: &Path) -> io::Result<()> {
    match hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => rename_without_replacing(from, to),
    }
}

fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::connections::open::open;
    use crate::sqlite::connections::options::{Location, SqliteOptions};

    fn source(folder: &Path) -> PathBuf {
        let path = folder.join("a.db");
        drop(open(&SqliteOptions::new(Location::File(path.clone()))).unwrap());
        path
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_stopped_or_comes_too_late_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (source, file) = (source(folder.path()), folder.path().join("b.db"));
        let before = names(folder.path());
        let backup = Backup::new(&source, &file).unwrap();
        backup.stop().store(true, Ordering::Relaxed);
        assert!(matches!(backup.run(), Err(BackupError::Stopped)));
        assert_eq!(names(folder.path()), before);
        let late = Backup::new(&source, &file).unwrap();
        fs::write(&file, "of somebody else").unwrap();
        assert!(matches!(late.run(), Err(BackupError::Exists(_))));
        assert_eq!(fs::read_to_string(&file).unwrap(), "of somebody else");
        assert!(matches!(Backup::new(&source, &file), Err(BackupError::Exists(_))));
        fs::remove_file(&file).unwrap();
        assert_eq!(names(folder.path()), before);
    }

    #[test]
    fn what_a_killed_backup_has_left_stays_and_stands_in_no_later_ones_way() {
        let folder = tempfile::tempdir().unwrap();
        let (source, file) = (source(folder.path()), folder.path().join("b.db"));
        let killed = Backup::new(&source, &file).unwrap();
        let left = killed.partial();
        std::mem::forget(killed);
        let copied = Backup::new(&source, &file).unwrap().run().unwrap();
        assert_eq!(file.metadata().unwrap().len(), copied.bytes);
        assert!(left.exists(), "it may be the file of a backup that runs");
    }

    #[test]
    fn the_file_that_cannot_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let source = source(folder.path());
        let Err(error) = Backup::new(&source, &folder.path().join("none").join("b.db")) else {
            panic!("there is no such folder")
        };
        let text = error.to_string();
        assert!(text.contains("none/b.db.") && text.contains(".partial: "), "{text}");
    }

    #[test]
    fn a_file_is_renamed_where_there_are_no_hard_links() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::write(&from, "new").unwrap();
        rename_without_replacing(&from, &to).unwrap();
        assert_eq!(names(folder.path()), ["to"]);
        fs::write(&from, "newer").unwrap();
        let refused = rename_without_replacing(&from, &to).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&to).unwrap(), "new");
    }
}
