//! What SQLite alone takes for a request's statement, as a floor to compare growth
//! with.
//!
//! One thread looks at a file that Rowhouse has written, with the statements and
//! the settings of `store/sqlite`: without HTTP, signature and JSON, and without
//! copying what it reads. It walks the table once before, so that all of it is
//! mapped. `scripts/bench` runs it for the rows "growth".
//!
//! ```text
//! cargo run --profile dist --example bare -- FILE TABLE PARTITIONS EACH read|page SECONDS
//! ```
//!
//! It prints how many microseconds one took.

use std::error::Error;
use std::time::{Duration, Instant};

use rusqlite::{CachedStatement, Connection, OpenFlags, Rows, params};

type Outcome<T> = Result<T, Box<dyn Error>>;

const READ: &str = "SELECT e.modified, e.properties FROM tables AS t
     LEFT JOIN entities AS e ON e.bucket = t.table_no << 16 AND e.pk = ?3 AND e.rk = ?4
     WHERE t.account = ?1 AND t.name_lower = ?2";
const PAGE: &str = "SELECT pk, rk, modified, properties FROM entities
     WHERE bucket = ?1 AND pk = ?2 AND rk >= ?3 ORDER BY pk, rk";
const BUCKET: &str = "SELECT table_no << 16 FROM tables WHERE account = ?1 AND name_lower = ?2";
const ACCOUNT: &str = "devstoreaccount1";
const ROWS_OF_A_PAGE: usize = 1000;
/// MiB of the file that are mapped at most.
const MAP_MIB: i64 = 1024 * 1024;
/// Between two looks at the clock.
const ROUND: u32 = 16;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, table, partitions, each, operation, seconds] = arguments.as_slice() else {
        return Err("FILE TABLE PARTITIONS EACH read|page SECONDS".into());
    };
    let db = Connection::open_with_flags(
        file,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    db.pragma_update_and_check(None, "mmap_size", MAP_MIB << 20, |_| Ok(()))?;
    let mut table =
        Table { db: &db, name: table, partitions: partitions.parse()?, each: each.parse()?, last: 1 };
    for partition in 0..table.partitions {
        table.page(partition)?;
    }
    let length = Duration::from_secs_f64(seconds.parse()?);
    let took = match operation.as_str() {
        "read" => each_of(length, || table.read())?,
        "page" => each_of(length, || {
            let partition = table.some(table.partitions);
            table.page(partition)
        })?,
        other => return Err(format!("{other}: neither read nor page").into()),
    };
    println!("{:.3}", took.as_secs_f64() * 1e6);
    Ok(())
}

/// What one of many takes.
fn each_of(length: Duration, mut work: impl FnMut() -> Outcome<()>) -> Outcome<Duration> {
    let (began, mut done) = (Instant::now(), 0);
    while began.elapsed() < length {
        for _ in 0..ROUND {
            work()?;
        }
        done += ROUND;
    }
    Ok(began.elapsed() / done.max(1))
}

/// A table that the load generator has filled.
struct Table<'a> {
    db: &'a Connection,
    name: &'a str,
    partitions: u64,
    each: u64,
    last: u64,
}

impl Table<'_> {
    /// A number below `bound`, hardly ever the one before (xorshift).
    fn some(&mut self, bound: u64) -> u64 {
        self.last ^= self.last << 13;
        self.last ^= self.last >> 7;
        self.last ^= self.last << 17;
        self.last % bound.max(1)
    }

    fn read(&mut self) -> Outcome<()> {
        let (partition, row) = (100_000 + self.some(self.partitions), 1_000_000 + self.some(self.each));
        let mut statement = self.db.prepare_cached(READ)?;
        let rows = statement.query(params![ACCOUNT, self.name, partition.to_string(), row.to_string()])?;
        look_at(rows, 1, 1)
    }

    fn page(&mut self, partition: u64) -> Outcome<()> {
        let bucket: i64 =
            self.db.prepare_cached(BUCKET)?.query_row(params![ACCOUNT, self.name], |row| row.get(0))?;
        let partition = (100_000 + partition).to_string();
        let mut statement: CachedStatement<'_> = self.db.prepare_cached(PAGE)?;
        look_at(statement.query(params![bucket, partition, ""])?, 3, ROWS_OF_A_PAGE)
    }
}

/// Takes the text of the given column of so many rows.
fn look_at(mut rows: Rows<'_>, column: usize, many: usize) -> Outcome<()> {
    let mut length = 0;
    for _ in 0..many {
        let Some(row) = rows.next()? else { break };
        length += row.get_ref(column)?.as_bytes()?.len();
    }
    if std::hint::black_box(length) == 0 { Err("nothing was found".into()) } else { Ok(()) }
}
