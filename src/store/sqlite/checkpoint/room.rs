//! Keeps the log's file longer than the log.
//!
//! A sync that finds the file longer than at the last one has to write down its new
//! length and where its new bytes are, too, and waits for the disk more often. So a
//! commit shall find bytes there that it only writes over, as those do that come after
//! the log has begun anew.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom, Write as _};

use rusqlite::Connection;

use crate::store::sqlite::connection::OpenError;
use crate::store::sqlite::transaction::Transaction;

/// Bytes before the first page of a log, and before each page.
const HEAD: u64 = 32;
const PAGE_HEAD: u64 = 24;

/// The file of a log, and what is known of its length.
pub struct Room {
    file: File,
    /// Bytes that a page takes.
    page: u64,
    /// The file is at least this long, if nobody has cut it off.
    length: u64,
    /// What the file is made longer by at once.
    zeros: Vec<u8>,
}

impl Room {
    /// Of the log that `writer` writes, which is made longer by `pages` pages at once.
    /// `None` where there is none: commits do without.
    pub fn open(writer: &Connection, pages: u16) -> Option<Self> {
        let tried = Self::try_open(writer, pages);
        tried.inspect_err(|error| tracing::debug!(%error, "the log has no file that can be made longer")).ok()
    }

    fn try_open(writer: &Connection, pages: u16) -> Result<Self, OpenError> {
        let page: u32 = writer.pragma_query_value(None, "page_size", |row| row.get(0))?;
        let page = u64::from(page) + PAGE_HEAD;
        let path = writer.path().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let file = OpenOptions::new().write(true).open(format!("{path}-wal"))?;
        let zeros = vec![0; usize::try_from(page * u64::from(pages)).unwrap_or_default()];
        Ok(Self { file, page, length: 0, zeros })
    }

    /// To be called when a log begins: another process may have cut the file off before.
    pub const fn log_begins(&mut self) {
        self.length = 0;
    }

    /// To be called after each commit, with the log's pages. Makes the file longer when
    /// little room is left.
    pub fn keep(&mut self, writer: &Connection, logged: u64) {
        let wanted = HEAD + logged * self.page + self.zeros.len() as u64 / 4;
        if self.length >= wanted {
            return;
        }
        if let Err(error) = self.look_and_lengthen(writer, wanted) {
            tracing::debug!(%error, "the log's file could not be made longer ahead of the log");
            // Until the next log, commits make it longer themselves.
            self.length = u64::MAX;
        }
    }

    fn look_and_lengthen(&mut self, writer: &Connection, wanted: u64) -> io::Result<()> {
        self.length = self.file.metadata()?.len();
        if self.length >= wanted {
            return Ok(());
        }
        // While this transaction lasts no process writes to the log, nor cuts it off. So
        // nothing of a commit is written over.
        let _alone = Transaction::of_writes(writer).map_err(io::Error::other)?;
        let end = self.file.seek(SeekFrom::End(0))?;
        self.file.write_all(&self.zeros)?;
        self.length = end + self.zeros.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::store::sqlite::checkpoint::bed;

    struct Bed {
        database: bed::Bed,
        room: Room,
    }

    impl Bed {
        fn new() -> Self {
            let database = bed::Bed::new();
            database.writer.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
            let room = Room::open(&database.writer, 16).unwrap();
            Self { database, room }
        }

        fn path(&self) -> PathBuf {
            self.database.folder.path().join("a.db")
        }

        fn log(&self) -> PathBuf {
            self.database.folder.path().join("a.db-wal")
        }

        fn length(&self) -> u64 {
            self.log().metadata().unwrap().len()
        }

        fn keep(&mut self, logged: u64) {
            self.room.keep(&self.database.writer, logged);
        }

        /// Pages of the log.
        fn logged(&self) -> u64 {
            let counted = self
                .database
                .writer
                .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, u32>(1));
            u64::from(counted.unwrap())
        }
    }

    fn count(file: &Path) -> (i64, String) {
        let db = Connection::open(file).unwrap();
        let rows = db.query_row("SELECT count(*) FROM tables", [], |row| row.get(0)).unwrap();
        (rows, db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap())
    }

    #[test]
    fn commits_find_room_and_what_a_crash_leaves_is_whole() {
        let mut bed = Bed::new();
        // Keeps the log from beginning anew.
        let _reader = bed.database.reader();
        let mut longer = 0;
        for n in 0..200 {
            let before = bed.length();
            bed.database.commit(n);
            assert!(n == 0 || bed.length() == before, "commit {n} made the file longer");
            bed.keep(bed.logged());
            longer += u32::from(bed.length() > before);
            let left = std::fs::read(bed.log()).unwrap();
            assert!(left.ends_with(&vec![0; bed.room.zeros.len() / 4]), "after commit {n}");
        }
        assert!((10..190).contains(&longer), "{longer} times");
        let crashed = tempfile::tempdir().unwrap();
        for name in ["a.db", "a.db-wal"] {
            std::fs::copy(bed.database.folder.path().join(name), crashed.path().join(name)).unwrap();
        }
        assert_eq!(count(&crashed.path().join("a.db")), (200, "ok".to_owned()));
    }

    #[test]
    fn without_a_log_there_is_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let plain = Connection::open(folder.path().join("a.db")).unwrap();
        plain.execute_batch("CREATE TABLE a (b)").unwrap();
        assert!(Room::open(&plain, 16).is_none());
        assert!(!folder.path().join("a.db-wal").exists());
    }

    #[test]
    fn nothing_is_written_while_another_process_writes() {
        let mut bed = Bed::new();
        bed.database.writer.busy_timeout(std::time::Duration::ZERO).unwrap();
        bed.database.commit(0);
        let logged = bed.logged();
        let other = Connection::open(bed.path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let before = bed.length();
        bed.keep(logged);
        assert_eq!(bed.length(), before);
        drop(other);
        bed.room.log_begins();
        bed.keep(logged);
        assert!(bed.length() > before);
        assert!(bed.database.writer.is_autocommit());
    }

    #[test]
    fn a_log_that_was_cut_off_gets_room_again() {
        let mut bed = Bed::new();
        bed.database.commit(0);
        bed.keep(bed.logged());
        bed.database.writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert_eq!(bed.length(), 0);
        bed.database.commit(1);
        let before = bed.length();
        bed.room.log_begins();
        bed.keep(bed.logged());
        assert!(bed.length() > before);
        assert_eq!(count(&bed.path()), (2, "ok".to_owned()));
    }
}
