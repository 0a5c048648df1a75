//! The state of a copy in a SQLite file without secrets, which allows resuming the copy.

use std::cmp::Ordering;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row as SqliteRow, params};
use sha2::{Digest as _, Sha256};

use crate::contract::Counts;
use crate::error::{TransferError, TransferResult, failed, usage};
use crate::locations::dump::hex;
use crate::protocol::model::{Key, Ticks};
use crate::rows::range::{Lower, RowRange, order_in_both};
use crate::store::LoadMark;
use crate::store::contract::load::{new_copy, stale_copies};
use crate::work::work_queue::Task;

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS copy (fingerprint TEXT NOT NULL, name TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS tables (
        name TEXT PRIMARY KEY, prepared INTEGER NOT NULL, is_whole INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS ranges (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL,
        pk TEXT NOT NULL, rk TEXT NOT NULL, is_after INTEGER NOT NULL, upper_pk TEXT, upper_rk TEXT,
        done INTEGER NOT NULL DEFAULT 0,
        written INTEGER NOT NULL DEFAULT 0, unchanged INTEGER NOT NULL DEFAULT 0,
        rejected INTEGER NOT NULL DEFAULT 0, newest INTEGER);
    CREATE TABLE IF NOT EXISTS follow (state TEXT NOT NULL);";

/// The SQLite application id of state files, and its offset in the header of the file.
const APPLICATION_ID: u32 = 0x5248_6370;
const APPLICATION_ID_OFFSET: usize = 68;

pub struct Checkpoint {
    file: PathBuf,
    /// The unique name of the copy, which the target records with its marks.
    copy: String,
    fingerprint: Fingerprint,
    connection: Mutex<Connection>,
}

impl Checkpoint {
    /// Opens the state of an earlier run; `None` if there is none. Fails if the file has other content, or the state of
    /// another copy. The options of a state that is to be discarded may differ.
    pub fn find(file: &Path, fingerprint: &Fingerprint, is_to_discard: bool) -> TransferResult<Option<Self>> {
        // A full disk may have left an empty file.
        if std::fs::metadata(file).map_or(true, |found| found.len() == 0) {
            return Ok(None);
        }
        let shown = file.display();
        if !is_state(file)? {
            return Err(usage!("{shown} is not the state of a copy; name another file with --state"));
        }
        let connection = connect(file)?;
        let known: Option<(String, String)> = connection
            .query_row("SELECT fingerprint, name FROM copy", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some((known, copy)) = known else { return Ok(None) };
        match Fingerprint::difference(&known, &fingerprint.0) {
            Some(place @ ("FROM" | "TO")) => Err(usage!(
                "{shown} belongs to a copy with a different {place}; name another file with --state"
            )),
            Some(other) if !is_to_discard => Err(usage!(
                "{shown} belongs to an interrupted copy with a different {other}; repeat the earlier \
                 arguments, or begin again with --restart"
            )),
            _ => Ok(Some(Self::new(file, copy, fingerprint, connection))),
        }
    }

    /// Creates the state of a new copy.
    pub fn create(file: &Path, fingerprint: &Fingerprint) -> TransferResult<Self> {
        let (connection, copy) = (connect(file)?, new_copy());
        let insert = "INSERT INTO copy SELECT ?1, ?2 WHERE NOT EXISTS (SELECT 1 FROM copy)";
        match connection.execute(insert, [&fingerprint.0, &copy])? {
            0 => Err(failed!("{}: another copy has just begun with this state", file.display())),
            _ => Ok(Self::new(file, copy, fingerprint, connection)),
        }
    }

    fn new(file: &Path, copy: String, fingerprint: &Fingerprint, connection: Connection) -> Self {
        let (file, fingerprint) = (file.to_owned(), fingerprint.clone());
        Self { file, copy, fingerprint, connection: Mutex::new(connection) }
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn copy(&self) -> &str {
        &self.copy
    }

    /// Returns the origin of the copy, which stays the same after it is complete.
    pub(crate) fn origin(&self) -> String {
        self.fingerprint.origin()
    }

    /// Whether the copy has begun no table.
    pub fn is_untouched(&self) -> TransferResult<bool> {
        Ok(self
            .connection
            .lock()
            .query_row("SELECT NOT EXISTS (SELECT 1 FROM tables)", [], |row| row.get(0))?)
    }

    /// Adds the pages that only the target has recorded, in the transactions of their entities. Fails if a page is only
    /// in this file, because the target has then lost entities.
    pub(crate) fn catch_up(&self, marks: Vec<LoadMark>) -> TransferResult<()> {
        let open = self.open_ranges()?;
        // The target keeps no marks of a complete or stale copy.
        if !(open.is_empty() && marks.is_empty()) && self.copy >= stale_copies(Ticks::now()).0 {
            self.check_marks(&marks)?;
        }
        for LoadMark { range, reached, counts: [written, unchanged, rejected], .. } in marks {
            if open.iter().any(|task| task.id == range && !task.range.lower.is_beyond(&reached)) {
                self.advance(range, Some(&reached), None, Counts { written, unchanged, rejected })?;
            }
        }
        Ok(())
    }

    /// Checks that the target has recorded at least the pages in this file.
    fn check_marks(&self, marks: &[LoadMark]) -> TransferResult<()> {
        for (range, reached) in self.reached()? {
            let mark = marks.iter().find(|mark| mark.range == range);
            let is_behind = |mark: &LoadMark| order_in_both(&mark.reached, &reached) == Some(Ordering::Less);
            if mark.is_none_or(is_behind) {
                return Err(self.cannot_resume("TO has lost copied entities, as if a backup was restored"));
            }
        }
        Ok(())
    }

    /// Returns the ranges with written entities, and the last key or page number of each.
    fn reached(&self) -> TransferResult<Vec<(i64, Key)>> {
        self.select(
            "SELECT id, pk, rk FROM ranges WHERE is_after AND written + unchanged > 0 ORDER BY id",
            |row| Ok((row.get(0)?, Key { partition: row.get(1)?, row: row.get(2)? })),
        )
    }

    pub(crate) fn cannot_resume(&self, reason: &str) -> TransferError {
        let state = self.file.display();
        let text = format!(
            "{reason} since the copy was interrupted; its state is in {state}: begin again with --restart"
        );
        TransferError::Usage(text)
    }

    /// Restarts unfinished ranges, for a source without an order.
    pub(crate) fn restart(&self) -> TransferResult<()> {
        let restart = "UPDATE ranges SET pk = '', rk = '', is_after = 0, written = 0, unchanged = 0, rejected = 0 \
             WHERE NOT done";
        self.change(|connection| Ok(connection.execute(restart, []).map(drop)?))
    }

    /// Returns the tables that an earlier run has prepared, in order.
    pub fn tables(&self) -> TransferResult<Vec<String>> {
        self.select("SELECT name FROM tables WHERE prepared ORDER BY rowid", |row| row.get(0))
    }

    /// Returns the tables that are copied completely in a copy of changes.
    pub(crate) fn whole_tables(&self) -> TransferResult<Vec<String>> {
        self.select("SELECT name FROM tables WHERE is_whole", |row| row.get(0))
    }

    /// Records that a table is about to be created, so that the table counts as new even if this run ends before it is
    /// prepared.
    pub(crate) fn begin_table(&self, table: &str, is_whole: bool) -> TransferResult<()> {
        let begin = "INSERT OR IGNORE INTO tables VALUES (?1, 0, ?2)";
        self.change(|connection| Ok(connection.execute(begin, params![table, is_whole]).map(drop)?))
    }

    /// Removes a table that was about to be created, if the target refused to create it.
    pub(crate) fn withdraw_table(&self, table: &str) -> TransferResult<()> {
        let delete = "DELETE FROM tables WHERE name = ?1 AND NOT prepared";
        self.change(|connection| Ok(connection.execute(delete, [table]).map(drop)?))
    }

    /// Whether a table was about to be created and is not prepared.
    pub(crate) fn has_begun(&self, table: &str) -> TransferResult<bool> {
        let select = "SELECT count(*) FROM tables WHERE name = ?1 AND NOT prepared";
        Ok(self.connection.lock().query_row(select, [table], |row| row.get::<_, i64>(0))? > 0)
    }

    /// Records a prepared table and its ranges; returns the ranges with their numbers.
    pub(crate) fn add_table(&self, table: &str, ranges: Vec<RowRange>) -> TransferResult<Vec<Task>> {
        self.change(|connection| {
            let mut tasks = Vec::with_capacity(ranges.len());
            for range in ranges {
                let next = "SELECT coalesce(max(id), 0) + 1 FROM ranges";
                let id: i64 = connection.query_row(next, [], |row| row.get(0))?;
                let task = Task { id, table: table.to_owned(), range, resumed: None };
                insert_range(connection, &task)?;
                tasks.push(task);
            }
            let prepare =
                "INSERT INTO tables VALUES (?1, 1, 0) ON CONFLICT (name) DO UPDATE SET prepared = 1";
            connection.execute(prepare, [table])?;
            Ok(tasks)
        })
    }

    /// Returns the highest number of a range, done or not; 0 if there is none.
    pub(crate) fn last_id(&self) -> TransferResult<i64> {
        Ok(self
            .connection
            .lock()
            .query_row("SELECT coalesce(max(id), 0) FROM ranges", [], |row| row.get(0))?)
    }

    pub(crate) fn open_ranges(&self) -> TransferResult<Vec<Task>> {
        self.select(
            "SELECT id, name, pk, rk, is_after, upper_pk, upper_rk, written FROM ranges WHERE NOT done ORDER BY id",
            read_task,
        )
    }

    pub fn counts(&self) -> TransferResult<Vec<(String, Counts)>> {
        self.select(
            "SELECT t.name, coalesce(sum(written), 0), coalesce(sum(unchanged), 0), coalesce(sum(rejected), 0)
             FROM tables t LEFT JOIN ranges r ON r.name = t.name GROUP BY t.name ORDER BY t.rowid",
            |row| {
                let count = |at| row.get::<_, i64>(at).map(|n| u64::try_from(n).unwrap_or(0));
                Ok((row.get(0)?, Counts { written: count(1)?, unchanged: count(2)?, rejected: count(3)? }))
            },
        )
    }

    /// Records a page that was written, up to and including `last`, with the latest Timestamp of its entities.
    pub(crate) fn advance(
        &self,
        id: i64,
        last: Option<&Key>,
        newest: Option<Ticks>,
        counts: Counts,
    ) -> TransferResult<()> {
        let [written, unchanged, rejected] =
            [counts.written, counts.unchanged, counts.rejected].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        let connection = self.connection.lock();
        let mut statement = connection.prepare_cached(
            "UPDATE ranges SET pk = coalesce(?2, pk), rk = coalesce(?3, rk), is_after = is_after OR ?2 IS NOT NULL,
                 written = written + ?4, unchanged = unchanged + ?5, rejected = rejected + ?6,
                 newest = max(coalesce(newest, ?7), coalesce(?7, newest)) WHERE id = ?1",
        )?;
        let (pk, rk) = (last.map(|key| &key.partition), last.map(|key| &key.row));
        statement.execute(params![id, pk, rk, written, unchanged, rejected, newest.map(Ticks::raw)])?;
        Ok(())
    }

    /// Returns the latest Timestamp of the entities that were read.
    pub(crate) fn newest(&self) -> TransferResult<Option<Ticks>> {
        let select = "SELECT max(newest) FROM ranges";
        let newest: Option<i64> = self.connection.lock().query_row(select, [], |row| row.get(0))?;
        Ok(newest.and_then(Ticks::from_raw))
    }

    /// Returns the state of a follower; `None` if none was saved.
    pub(crate) fn follow_state(&self) -> TransferResult<Option<String>> {
        let select = "SELECT state FROM follow";
        Ok(self.connection.lock().query_row(select, [], |row| row.get(0)).optional()?)
    }

    pub(crate) fn set_follow_state(&self, state: &str) -> TransferResult<()> {
        self.change(|connection| {
            connection.execute("DELETE FROM follow", [])?;
            connection.execute("INSERT INTO follow VALUES (?1)", [state])?;
            Ok(())
        })
    }

    /// Ends a range where `behind` begins, and records `behind` as a new range.
    pub(crate) fn cut(&self, id: i64, behind: &Task) -> TransferResult<()> {
        self.change(|connection| {
            let at = behind.range.lower.key();
            let update = "UPDATE ranges SET upper_pk = ?2, upper_rk = ?3 WHERE id = ?1";
            connection.execute(update, params![id, at.partition, at.row])?;
            insert_range(connection, behind)
        })
    }

    pub(crate) fn finish(&self, id: i64) -> TransferResult<()> {
        self.connection.lock().execute("UPDATE ranges SET done = 1 WHERE id = ?1", [id])?;
        Ok(())
    }

    pub fn remove(self) {
        // If the file cannot be removed, the next run finds an empty state, which counts as none.
        let empty = "DELETE FROM copy; DELETE FROM tables; DELETE FROM ranges; DELETE FROM follow";
        let _ = self.connection.lock().execute_batch(empty);
        drop(self.connection);
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", self.file.display()));
        }
    }

    fn select<T>(
        &self,
        select: &str,
        read: impl FnMut(&SqliteRow<'_>) -> rusqlite::Result<T>,
    ) -> TransferResult<Vec<T>> {
        let connection = self.connection.lock();
        let mut statement = connection.prepare(select)?;
        Ok(statement.query_map([], read)?.collect::<rusqlite::Result<_>>()?)
    }

    /// Makes a change that survives a power failure, because the target may have marks of the ranges.
    fn change<T>(&self, change: impl FnOnce(&Connection) -> TransferResult<T>) -> TransferResult<T> {
        let mut connection = self.connection.lock();
        connection.execute_batch("PRAGMA synchronous=FULL")?;
        let transaction = connection.transaction()?;
        let changed = change(&transaction)?;
        transaction.commit()?;
        connection.execute_batch("PRAGMA synchronous=NORMAL")?;
        Ok(changed)
    }
}

/// Opens a file for this process alone, and creates its tables.
fn connect(file: &Path) -> TransferResult<Connection> {
    let open = || {
        let connection = Connection::open(file)?;
        connection.busy_timeout(Duration::ZERO)?;
        // SQLite may have rolled back the creation of the file, together with its mark.
        let mark: u32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        if mark != APPLICATION_ID {
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        // If a power failure loses the record of a page, the page is copied again.
        connection.execute_batch(
            "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        )?;
        connection.execute_batch(SCHEMA)?;
        Ok::<_, rusqlite::Error>(connection)
    };
    open().map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) => {
            failed!("{}: another command with this state still runs", file.display())
        }
        _ => error.into(),
    })
}

/// Whether a file is the state of a copy. Opening it as a database might change it.
fn is_state(file: &Path) -> TransferResult<bool> {
    let mut header = Vec::new();
    let length = APPLICATION_ID_OFFSET + size_of_val(&APPLICATION_ID);
    let read = File::open(file).and_then(|file| file.take(length as u64).read_to_end(&mut header));
    read.map_err(|error| TransferError::from(error).at(file))?;
    Ok(header.get(APPLICATION_ID_OFFSET..).is_some_and(|mark| *mark == APPLICATION_ID.to_be_bytes()))
}

fn insert_range(connection: &Connection, task: &Task) -> TransferResult<()> {
    let RowRange { lower, upper } = &task.range;
    let (key, is_after) = (lower.key(), matches!(lower, Lower::After(_)));
    let (upper_pk, upper_rk) = (upper.as_ref().map(|key| &key.partition), upper.as_ref().map(|key| &key.row));
    connection.execute(
        "INSERT INTO ranges (id, name, pk, rk, is_after, upper_pk, upper_rk) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![task.id, task.table, key.partition, key.row, is_after, upper_pk, upper_rk],
    )?;
    Ok(())
}

fn read_task(row: &SqliteRow<'_>) -> rusqlite::Result<Task> {
    let key = Key { partition: row.get(2)?, row: row.get(3)? };
    let lower = if row.get(4)? { Lower::After(key) } else { Lower::From(key) };
    let upper: (Option<String>, Option<String>) = (row.get(5)?, row.get(6)?);
    let upper = upper.0.zip(upper.1).map(|(partition, row)| Key { partition, row });
    let resumed = Some(u64::try_from(row.get::<_, i64>(7)?).unwrap_or(0));
    Ok(Task { id: row.get(0)?, table: row.get(1)?, range: RowRange { lower, upper }, resumed })
}

/// The named values that a resumed copy must share with the interrupted copy: the places, the contents of files and the
/// options.
#[derive(Debug, Clone, Default)]
pub struct Fingerprint(String);

impl Fingerprint {
    pub fn with(mut self, name: &'static str, value: impl std::fmt::Debug) -> Self {
        self.0.push_str(&format!("{name}\t{value:?}\n"));
        self
    }

    /// Returns a hash that identifies the copy.
    pub fn origin(&self) -> String {
        hex(Sha256::new_with_prefix(&self.0))
    }

    /// Returns the name of the first value that differs between two texts; `None` if they are equal.
    fn difference<'t>(known: &str, given: &'t str) -> Option<&'t str> {
        let mut lines = known.lines().zip(given.lines());
        let other = lines.find(|(a, b)| a != b).and_then(|(_, line)| line.split('\t').next());
        (known != given).then(|| other.unwrap_or("version of rowhouse"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_continued_only_by_the_same_copy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("s");
        let copy = |from: &str, mode: &str| Fingerprint::default().with("FROM", from).with("--mode", mode);
        let ours = copy("a", "insert");
        assert!(Checkpoint::find(&file, &ours, false).unwrap().is_none());
        let begun = Checkpoint::create(&file, &ours).unwrap();
        assert!(begun.is_untouched().unwrap());
        begun.begin_table("People", false).unwrap();
        assert!(!begun.is_untouched().unwrap());
        let refused = |from, mode, is_to_discard| {
            let found = Checkpoint::find(&file, &copy(from, mode), is_to_discard);
            found.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused("a", "insert", false).contains("still runs"));
        drop(begun);
        assert!(Checkpoint::create(&file, &ours).is_err());
        for word in ["a different --mode", "--restart"] {
            assert!(refused("a", "merge", false).contains(word));
        }
        assert_eq!(refused("a", "merge", true), "");
        for is_to_discard in [false, true] {
            assert!(refused("b", "insert", is_to_discard).contains("a different FROM"));
        }
        let again = Checkpoint::find(&file, &ours, false).unwrap().unwrap();
        assert!(!again.is_untouched().unwrap());
    }

    #[test]
    fn a_file_that_is_no_state_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("important.db");
        let foreign = Connection::open(&file).unwrap();
        foreign.execute_batch("CREATE TABLE copy (fingerprint TEXT, name TEXT)").unwrap();
        drop(foreign);
        let before = std::fs::read(&file).unwrap();
        for content in [&before[..], b"text"] {
            std::fs::write(&file, content).unwrap();
            for is_to_discard in [false, true] {
                let refused = Checkpoint::find(&file, &Fingerprint::default(), is_to_discard).err().unwrap();
                assert!(
                    matches!(&refused, TransferError::Usage(text) if text.contains("not the state of a copy"))
                );
                assert_eq!(std::fs::read(&file).unwrap(), content);
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_state_that_was_killed_while_it_was_created_is_marked_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("copy.state");
        drop(Checkpoint::create(&file, &Fingerprint::default()).unwrap());
        // The journal of the transaction that creates the file: its rollback leaves an empty file.
        let (records, nonce, pages_before, sector, page) = (0_u32, 0_u32, 0_u32, 512_u32, 4096_u32);
        let mut journal = vec![0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
        journal.extend([records, nonce, pages_before, sector, page].map(u32::to_be_bytes).concat());
        journal.resize(512, 0);
        std::fs::write(folder.path().join("copy.state-journal"), journal).unwrap();
        let find = || Checkpoint::find(&file, &Fingerprint::default(), false).unwrap();
        assert!(find().is_none() && is_state(&file).unwrap());
        drop(Checkpoint::create(&file, &Fingerprint::default()).unwrap());
        assert!(find().is_some());
    }
}
