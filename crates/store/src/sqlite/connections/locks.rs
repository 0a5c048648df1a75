//! Lock files beside a database: one for the server, and one for each drop that waits for an index build.

use std::fs::{self, File, OpenOptions, TryLockError, canonicalize};
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::sqlite::connections::open::obstacle;
use crate::sqlite::connections::options::{Location, OpenError};

/// Interval between two checks for other processes' lock files during a build.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The exclusive right to serve a database file, until it is dropped. The operating system releases the lock when the
/// process ends.
pub struct ServerLock {
    _file: File,
}

impl ServerLock {
    /// Locks the file beside the database. Returns `None`, with a warning, if the file system does not support locks.
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

/// Warns, unless the database itself is unwritable and the server will not start.
fn warn(database: &Path, path: &Path, error: &io::Error) {
    if obstacle(database).is_none() {
        let file = path.display();
        tracing::warn!(%error, "cannot lock {file}; make sure that no other server uses this database");
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

/// Returns the path of a lock file. Symbolic links are resolved, so that they share one lock. Rowhouse refuses
/// databases with hard links.
fn beside(database: &Path, suffix: &str) -> PathBuf {
    let real = canonicalize(database).or_else(|_| absolute(database)).unwrap_or_else(|_| database.to_owned());
    let mut name = real.into_os_string();
    name.push(suffix);
    name.into()
}

/// The indexes whose builds are cancelled. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct CancelledBuilds {
    /// The cancellations of this process, by index number, one entry for each.
    here: Arc<Mutex<Vec<i64>>>,
    /// The database file; `None` in memory, where no other process has access.
    database: Option<PathBuf>,
}

impl CancelledBuilds {
    pub(crate) fn new(location: &Location) -> Self {
        let database = match location {
            Location::File(path) => Some(path.clone()),
            Location::Memory => None,
        };
        Self { here: Arc::default(), database }
    }

    /// Cancels the build of an index in any process, until the result is dropped.
    pub(crate) fn cancel(&self, index_no: i64) -> Cancellation {
        self.here.lock().push(index_no);
        let file = self.file(index_no).and_then(|path| match LockedFile::take(path) {
            Ok(file) => Some(file),
            // Another process waits to drop this index, or a build checks the file.
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(error)) => {
                tracing::warn!(%error, "a build of an index in another process cannot be cancelled");
                None
            }
        });
        Cancellation { builds: self.clone(), index_no, _file: file }
    }

    pub(crate) fn has(&self, index_no: i64) -> bool {
        self.has_here(index_no) || self.file(index_no).is_some_and(|path| is_locked(&path))
    }

    /// Returns the function that a build polls to detect its cancellation.
    pub(crate) fn watch(&self, index_no: i64) -> impl FnMut() -> bool + Send + 'static {
        let (builds, mut last_look) = (self.clone(), Instant::now());
        move || {
            if last_look.elapsed() < LOOK_PAUSE {
                return builds.has_here(index_no);
            }
            last_look = Instant::now();
            builds.has(index_no)
        }
    }

    fn has_here(&self, index_no: i64) -> bool {
        self.here.lock().contains(&index_no)
    }

    /// The lock file that cancels the build of an index.
    fn file(&self, index_no: i64) -> Option<PathBuf> {
        self.database.as_ref().map(|database| beside(database, &format!(".drop-{index_no}")))
    }
}

/// Cancels the build of an index until this value is dropped.
pub(crate) struct Cancellation {
    builds: CancelledBuilds,
    index_no: i64,
    _file: Option<LockedFile>,
}

impl Drop for Cancellation {
    fn drop(&mut self) {
        let mut here = self.builds.here.lock();
        if let Some(at) = here.iter().position(|index_no| *index_no == self.index_no) {
            here.swap_remove(at);
        }
    }
}

/// A file that this process has locked and will remove. If a process is killed, its lock ends and its file stays
/// without effect.
struct LockedFile {
    path: PathBuf,
    _file: File,
}

impl LockedFile {
    fn take(path: PathBuf) -> Result<Self, TryLockError> {
        let file = open(&path).map_err(TryLockError::Error)?;
        file.try_lock()?;
        Ok(Self { path, _file: file })
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "cannot remove {}", self.path.display());
        }
    }
}

fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
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

    #[test]
    fn each_cancellation_is_for_one_index_and_ends_alone() {
        let builds = CancelledBuilds::new(&Location::Memory);
        let (first, second, again) = (builds.cancel(1), builds.cancel(2), builds.cancel(1));
        assert_eq!([1, 2, 3].map(|index_no| builds.has(index_no)), [true, true, false]);
        drop((first, second));
        assert_eq!([1, 2].map(|index_no| builds.has(index_no)), [true, false]);
        drop(again);
        assert!(!builds.has(1));
    }

    #[test]
    fn others_that_have_the_file_learn_of_a_cancellation_while_it_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("a.db"));
        let (one, other) = (CancelledBuilds::new(&location), CancelledBuilds::new(&location));
        fs::write(folder.path().join("a.db.drop-1"), "").unwrap();
        assert!(!other.has(1), "a killed process has left the file");
        let held = one.cancel(1);
        assert_eq!([1, 2].map(|index_no| other.has(index_no)), [true, false]);
        drop(other.cancel(1));
        assert!(other.has(1), "the first one still waits");
        drop(held);
        assert!(!other.has(1));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
