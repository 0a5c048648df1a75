//! Snapshots, in temporary tables of the writing connection: they are in a separate file, and end with
//! the connection.

use rusqlite::{Connection, OptionalExtension, params};

use crate::bucket::{bucket, new_table_no};
use crate::contract::reset::{MAX_SNAPSHOTS, StoreSnapshot};
use crate::protocol::model::Ticks;
use crate::sqlite::SqliteStore;
use crate::sqlite::catalog::tables::SPREAD;
use crate::sqlite::rows::{Sqlite, ticks};
use crate::{Reset, StoreResult};

const CREATE: &str = "
CREATE TEMP TABLE IF NOT EXISTS snapshots (name TEXT PRIMARY KEY, account TEXT, taken INTEGER NOT NULL) STRICT;
CREATE TEMP TABLE IF NOT EXISTS snapshot_tables (
    snapshot TEXT NOT NULL, table_no INTEGER NOT NULL, account TEXT NOT NULL, name_lower TEXT NOT NULL,
    name TEXT NOT NULL, policies TEXT, created INTEGER NOT NULL, PRIMARY KEY (snapshot, table_no)) STRICT;
CREATE TEMP TABLE IF NOT EXISTS snapshot_entities (
    snapshot TEXT NOT NULL, bucket INTEGER NOT NULL, pk TEXT NOT NULL, rk TEXT NOT NULL,
    modified INTEGER NOT NULL, properties TEXT NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS temp.snapshot_entities_by_bucket ON snapshot_entities (snapshot, bucket);
CREATE TEMP TABLE IF NOT EXISTS snapshot_expiry (
    snapshot TEXT NOT NULL, table_no INTEGER NOT NULL, property TEXT, delay INTEGER NOT NULL,
    pause INTEGER NOT NULL, made INTEGER NOT NULL, PRIMARY KEY (snapshot, table_no)) STRICT;
CREATE TEMP TABLE IF NOT EXISTS snapshot_properties (
    snapshot TEXT NOT NULL, account TEXT NOT NULL, properties TEXT NOT NULL,
    PRIMARY KEY (snapshot, account)) STRICT;
";

/// ?1 the snapshot, ?2 its account or null.
const TAKE: [&str; 4] = [
    "INSERT INTO temp.snapshot_tables (snapshot, table_no, account, name_lower, name, policies, created)
     SELECT ?1, table_no, account, name_lower, name, policies, created FROM main.tables
     WHERE account = coalesce(?2, account)",
    "INSERT INTO temp.snapshot_entities (snapshot, bucket, pk, rk, modified, properties)
     SELECT ?1, e.bucket, e.pk, e.rk, e.modified, e.properties
     FROM main.tables AS t JOIN main.entities AS e ON e.bucket = t.table_no << 16
     WHERE t.account = coalesce(?2, t.account)",
    "INSERT INTO temp.snapshot_expiry (snapshot, table_no, property, delay, pause, made)
     SELECT ?1, x.table_no, x.property, x.delay, x.pause, x.made
     FROM main.tables AS t JOIN main.expiry AS x ON x.table_no = t.table_no
     WHERE t.account = coalesce(?2, t.account)",
    "INSERT INTO temp.snapshot_properties (snapshot, account, properties)
     SELECT ?1, account, properties FROM main.service_properties WHERE account = coalesce(?2, account)",
];

/// ?1 the snapshot.
const DROP: [&str; 4] = [
    "DELETE FROM temp.snapshot_tables WHERE snapshot = ?1",
    "DELETE FROM temp.snapshot_entities WHERE snapshot = ?1",
    "DELETE FROM temp.snapshot_expiry WHERE snapshot = ?1",
    "DELETE FROM temp.snapshot_properties WHERE snapshot = ?1",
];

impl Reset for SqliteStore {
    async fn reset(&self, account: Option<&str>, now: Ticks) -> StoreResult<()> {
        let account = account.map(str::to_owned);
        self.writer.submit(move |db| reset(db, account.as_deref(), now).map(Ok)).await
    }

    async fn take_snapshot(&self, name: &str, account: Option<&str>, now: Ticks) -> StoreResult<bool> {
        let (name, account) = (name.to_owned(), account.map(str::to_owned));
        self.writer.submit(move |db| take(db, &name, account.as_deref(), now).map(Ok)).await
    }

    async fn restore_snapshot(&self, name: &str, now: Ticks) -> StoreResult<bool> {
        let name = name.to_owned();
        self.writer.submit(move |db| restore(db, &name, now).map(Ok)).await
    }

    async fn drop_snapshot(&self, name: &str) -> StoreResult<bool> {
        let name = name.to_owned();
        self.writer.submit(move |db| discard(db, &name).map(Ok)).await
    }

    async fn snapshots(&self) -> StoreResult<Vec<StoreSnapshot>> {
        self.writer.submit(|db| list(db).map(Ok)).await
    }
}

pub(crate) fn reset(db: &Connection, account: Option<&str>, now: Ticks) -> Sqlite<()> {
    db.prepare_cached(
        "INSERT INTO doomed (table_no, spread, deleted_at, due)
         SELECT table_no, spread, ?2, ?2 FROM main.tables WHERE account = coalesce(?1, account)
         UNION ALL SELECT table_no, spread, ?2, ?2 FROM main.deleted_tables WHERE account = coalesce(?1, account)",
    )?
    .execute(params![account, now.raw()])?;
    for text in [
        "DELETE FROM main.tables WHERE account = coalesce(?1, account)",
        "DELETE FROM main.deleted_tables WHERE account = coalesce(?1, account)",
        "DELETE FROM main.service_properties WHERE account = coalesce(?1, account)",
    ] {
        db.prepare_cached(text)?.execute([account])?;
    }
    db.prepare_cached(
        "INSERT INTO account_option_changes (id, changes) VALUES (1, 1)
         ON CONFLICT (id) DO UPDATE SET changes = changes + 1",
    )?
    .execute([])
    .map(drop)
}

pub(crate) fn take(db: &Connection, name: &str, account: Option<&str>, now: Ticks) -> Sqlite<bool> {
    db.execute_batch(CREATE)?;
    let taken = db
        .prepare_cached(
            "INSERT INTO temp.snapshots (name, account, taken)
             SELECT ?1, ?2, ?3 WHERE (SELECT count(*) FROM temp.snapshots) < ?4",
        )?
        .execute(params![name, account, now.raw(), MAX_SNAPSHOTS as i64])?;
    if taken == 0 {
        return Ok(false);
    }
    for text in TAKE {
        db.prepare_cached(text)?.execute(params![name, account])?;
    }
    Ok(true)
}

pub(crate) fn restore(db: &Connection, name: &str, now: Ticks) -> Sqlite<bool> {
    db.execute_batch(CREATE)?;
    let account: Option<Option<String>> = db
        .prepare_cached("SELECT account FROM temp.snapshots WHERE name = ?1")?
        .query_row([name], |row| row.get(0))
        .optional()?;
    let Some(account) = account else { return Ok(false) };
    reset(db, account.as_deref(), now)?;
    let numbers: Vec<i64> = db
        .prepare_cached("SELECT table_no FROM temp.snapshot_tables WHERE snapshot = ?1")?
        .query_map([name], |row| row.get(0))?
        .collect::<Sqlite<_>>()?;
    for old in numbers {
        restore_table(db, name, old)?;
    }
    db.prepare_cached(
        "INSERT INTO main.service_properties (account, properties)
         SELECT account, properties FROM temp.snapshot_properties WHERE snapshot = ?1",
    )?
    .execute([name])?;
    Ok(true)
}

fn restore_table(db: &Connection, snapshot: &str, old: i64) -> Sqlite<()> {
    let new = new_table_no();
    db.prepare_cached(
        "INSERT INTO main.tables (table_no, account, name_lower, name, spread, policies, created)
         SELECT ?3, account, name_lower, name, ?4, policies, created
         FROM temp.snapshot_tables WHERE snapshot = ?1 AND table_no = ?2",
    )?
    .execute(params![snapshot, old, new, SPREAD])?;
    db.prepare_cached(
        "INSERT INTO main.entities (bucket, pk, rk, modified, properties)
         SELECT ?3, pk, rk, modified, properties
         FROM temp.snapshot_entities WHERE snapshot = ?1 AND bucket = ?2",
    )?
    .execute(params![snapshot, bucket(old, SPREAD, ""), bucket(new, SPREAD, "")])?;
    // Passes over the tables begin anew.
    db.prepare_cached(
        "INSERT INTO main.expiry (table_no, property, delay, pause, made, due, expired)
         SELECT ?3, property, delay, pause, made, made, 0
         FROM temp.snapshot_expiry WHERE snapshot = ?1 AND table_no = ?2",
    )?
    .execute(params![snapshot, old, new])?;
    Ok(())
}

pub(crate) fn discard(db: &Connection, name: &str) -> Sqlite<bool> {
    db.execute_batch(CREATE)?;
    for text in DROP {
        db.prepare_cached(text)?.execute([name])?;
    }
    Ok(db.prepare_cached("DELETE FROM temp.snapshots WHERE name = ?1")?.execute([name])? > 0)
}

pub(crate) fn list(db: &Connection) -> Sqlite<Vec<StoreSnapshot>> {
    db.execute_batch(CREATE)?;
    let mut snapshots =
        db.prepare_cached("SELECT name, account, taken FROM temp.snapshots ORDER BY taken, name")?;
    let read = |row: &rusqlite::Row<'_>| {
        Ok(StoreSnapshot { name: row.get(0)?, account: row.get(1)?, taken: ticks(row, 2)? })
    };
    snapshots.query_map([], read)?.collect()
}
