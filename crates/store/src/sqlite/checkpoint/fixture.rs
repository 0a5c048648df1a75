//! A new database, for tests of its log.

use rusqlite::Connection;

use crate::sqlite::Location;
use crate::sqlite::connections::open;
use crate::sqlite::connections::options::SqliteOptions;

pub(crate) struct LogFixture {
    pub folder: tempfile::TempDir,
    pub options: SqliteOptions,
    pub writer: Connection,
}

impl LogFixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = SqliteOptions::new(Location::File(folder.path().join("a.db")));
        let writer = open::open(&options).unwrap();
        // The log starts empty, however large the schema is.
        super::truncate_log(&writer).unwrap();
        Self { folder, options, writer }
    }

    /// Commits a row of about one page.
    pub(crate) fn commit(&self, n: i64) {
        let row = "INSERT INTO tables (table_no, account, name_lower, name, spread, created)
                   VALUES (?1, 'a', ?1, ?2, 1, 1)";
        self.writer.execute(row, rusqlite::params![n, "x".repeat(3000)]).unwrap();
    }

    /// A connection that holds a snapshot of the current state while it lives.
    pub(crate) fn reader(&self) -> Connection {
        let reader = Connection::open(self.folder.path().join("a.db")).unwrap();
        reader.execute_batch("BEGIN; SELECT count(*) FROM tables").unwrap();
        reader
    }
}
