//! Expiry: rules, and the deletion of entities that have expired.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::bucket::bucket;
use crate::contract::load::{COPY_VERSION_AT, stale_copies};
use crate::error::Code;
use crate::protocol::model::{Key, TableRef, Ticks};
use crate::sqlite::SqliteStore;
use crate::sqlite::catalog::tables::SPREAD;
use crate::sqlite::rows::{Sqlite, ticks};
use crate::{Expiry, ExpiryRule, ExpirySummary, SWEEP_RETRY_PAUSE, StoreResult, SweepState, TableExpiry};

macro_rules! expiries {
    ($rest:literal) => {
        concat!(
            "SELECT e.table_no, t.account, t.name, e.property, e.delay, e.pause, e.made, e.due, e.began, e.pk, e.rk,
                    e.clean, e.expired
             FROM expiry AS e JOIN tables AS t ON t.table_no = e.table_no ",
            $rest
        )
    };
}

impl Expiry for SqliteStore {
    async fn set_expiry(&self, table: TableRef<'_>, rule: &ExpiryRule, now: Ticks) -> StoreResult<()> {
        let (table, rule) = (table.into_owned(), rule.clone());
        let set = move |db: &Connection| set(db, table.as_ref(), &rule, now);
        self.writer
            .submit(move |db| set(db).map(|found| found.ok_or_else(|| Code::TableNotFound.into())))
            .await
    }

    async fn clear_expiry(&self, table: TableRef<'_>) -> StoreResult<bool> {
        let table = table.into_owned();
        self.writer.submit(move |db| clear(db, table.as_ref()).map(Ok)).await
    }

    async fn expiries(&self, account: Option<&str>) -> StoreResult<Vec<TableExpiry>> {
        self.readers.with(|db| {
            let mut list = db.prepare_cached(expiries!(
                "WHERE t.account = coalesce(?1, t.account) ORDER BY t.account, t.name_lower"
            ))?;
            list.query_map([account], expiry)?.collect::<Sqlite<_>>().map(Ok)
        })
    }

    async fn expiry_summary(&self, now: Ticks) -> StoreResult<ExpirySummary> {
        self.readers.with(|db| {
            let mut summarize = db.prepare_cached(
                "SELECT count(*), min(CASE WHEN e.clean <= ?1 THEN e.clean ELSE e.made END + e.pause)
                 FROM expiry AS e JOIN tables AS t ON t.table_no = e.table_no",
            )?;
            let read = |row: &Row<'_>| {
                let tables = row.get::<_, i64>(0)?.cast_unsigned();
                Ok(ExpirySummary { tables, behind_since: time(row, 1)? })
            };
            summarize.query_row([now.raw()], read).map(Ok)
        })
    }

    async fn due_expiry(&self, now: Ticks) -> StoreResult<Option<TableExpiry>> {
        self.readers.with(|db| {
            // What a clock ahead has recorded comes first.
            let mut due = db.prepare_cached(expiries!(
                "WHERE e.due <= ?1 OR e.due > ?1 + max(e.pause, ?2)
                 ORDER BY e.due <= ?1, e.due, e.table_no LIMIT 1"
            ))?;
            due.query_row([now.raw(), SWEEP_RETRY_PAUSE], expiry).optional().map(Ok)
        })
    }

    async fn delete_expired(&self, of: &TableExpiry, entities: &[(Key, Ticks)]) -> StoreResult<u64> {
        let (table_no, made, entities) = (of.table_no, of.made, entities.to_vec());
        self.writer.submit(move |db| delete(db, table_no, made, &entities).map(Ok)).await
    }

    async fn record_sweep(&self, of: &TableExpiry, sweep: &SweepState) -> StoreResult<()> {
        let (table_no, made, sweep) = (of.table_no, of.made, sweep.clone());
        self.writer.submit(move |db| record(db, table_no, made, &sweep).map(Ok)).await
    }

    async fn forget_stale(&self, now: Ticks) -> StoreResult<()> {
        let orphans =
            "SELECT (SELECT count(*) FROM expiry WHERE table_no NOT IN (SELECT table_no FROM tables))
                            + (SELECT count(*) FROM copy_marks WHERE copy < ?1 AND substr(copy, ?2, 1) = ?3)";
        let (before, version) = stale_copies(now);
        // A commit costs a sync, so nothing is written where there is nothing to forget.
        let found: i64 = self.readers.with_statement(|db| {
            let copies = params![before, COPY_VERSION_AT, version];
            db.prepare_cached(orphans)?.query_row(copies, |row| row.get(0)).map(Ok)
        })?;
        if found == 0 {
            return Ok(());
        }
        let forget = move |db: &Connection| {
            db.prepare_cached("DELETE FROM expiry WHERE table_no NOT IN (SELECT table_no FROM tables)")?
                .execute([])?;
            db.prepare_cached("DELETE FROM copy_marks WHERE copy < ?1 AND substr(copy, ?2, 1) = ?3")?
                .execute(params![before, COPY_VERSION_AT, version])?;
            Ok(Ok(()))
        };
        self.writer.submit(forget).await
    }

    async fn leads_upkeep(&self, _holder: i64, _now: Ticks, _until: Ticks) -> StoreResult<bool> {
        // Only one server may open the file.
        Ok(true)
    }
}

fn set(db: &Connection, table: TableRef<'_>, rule: &ExpiryRule, now: Ticks) -> Sqlite<Option<()>> {
    let ExpiryRule { property, delay, pause } = rule;
    let set = db
        .prepare_cached(
            "INSERT OR REPLACE INTO expiry (table_no, property, delay, pause, made, due, expired)
             SELECT table_no, ?3, ?4, ?5, ?6, ?6, 0 FROM tables WHERE account = ?1 AND name_lower = ?2",
        )?
        .execute(params![table.account, table.name.lower(), property, delay, pause, now.raw()])?;
    Ok((set > 0).then_some(()))
}

fn clear(db: &Connection, table: TableRef<'_>) -> Sqlite<bool> {
    let cleared = db
        .prepare_cached(
            "DELETE FROM expiry WHERE table_no =
             (SELECT table_no FROM tables WHERE account = ?1 AND name_lower = ?2)",
        )?
        .execute(params![table.account, table.name.lower()])?;
    Ok(cleared > 0)
}

fn delete(db: &Connection, table_no: i64, made: Ticks, entities: &[(Key, Ticks)]) -> Sqlite<u64> {
    let is_ruled: bool = db
        .prepare_cached(
            "SELECT EXISTS (SELECT 1 FROM expiry AS e JOIN tables AS t ON t.table_no = e.table_no
             WHERE e.table_no = ?1 AND e.made = ?2)",
        )?
        .query_row(params![table_no, made.raw()], |row| row.get(0))?;
    if !is_ruled {
        return Ok(0);
    }
    let mut delete = db
        .prepare_cached("DELETE FROM entities WHERE bucket = ?1 AND pk = ?2 AND rk = ?3 AND modified = ?4")?;
    let mut deleted = 0;
    for (key, version) in entities {
        let bucket = bucket(table_no, SPREAD, &key.partition);
        deleted += delete.execute(params![bucket, key.partition, key.row, version.raw()])?;
    }
    Ok(deleted as u64)
}

fn record(db: &Connection, table_no: i64, made: Ticks, sweep: &SweepState) -> Sqlite<()> {
    let SweepState { due, began, position, clean, expired } = sweep;
    db.prepare_cached(
        "UPDATE expiry SET due = ?3, began = ?4, pk = ?5, rk = ?6, clean = ?7, expired = ?8
         WHERE table_no = ?1 AND made = ?2",
    )?
    .execute(params![
        table_no,
        made.raw(),
        due.raw(),
        began.map(Ticks::raw),
        position.as_ref().map(|key| key.partition.as_str()),
        position.as_ref().map(|key| key.row.as_str()),
        clean.map(Ticks::raw),
        expired.cast_signed(),
    ])
    .map(drop)
}

fn expiry(row: &Row<'_>) -> Sqlite<TableExpiry> {
    let position = row.get::<_, Option<String>>(9)?.zip(row.get::<_, Option<String>>(10)?);
    Ok(TableExpiry {
        table_no: row.get(0)?,
        spread: SPREAD,
        account: row.get(1)?,
        table: row.get(2)?,
        rule: ExpiryRule { property: row.get(3)?, delay: row.get(4)?, pause: row.get(5)? },
        made: ticks(row, 6)?,
        sweep: SweepState {
            due: ticks(row, 7)?,
            began: time(row, 8)?,
            position: position.map(|(partition, row)| Key { partition, row }),
            clean: time(row, 11)?,
            expired: row.get::<_, i64>(12)?.cast_unsigned(),
        },
    })
}

/// A stored time that may be missing.
fn time(row: &Row<'_>, column: usize) -> Sqlite<Option<Ticks>> {
    if row.get_ref(column)? == rusqlite::types::ValueRef::Null {
        Ok(None)
    } else {
        ticks(row, column).map(Some)
    }
}
