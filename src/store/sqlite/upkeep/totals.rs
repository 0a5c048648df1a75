//! Counting entities: a part of a table exactly, whole tables from what is stored.

use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::Code;
use crate::protocol::model::{Key, TableRef, Ticks};
use crate::protocol::plan::span::first_whole_partition;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::catalog::tables::bucket_of;
use crate::store::sqlite::rows::{Sqlite, ticks};
use crate::store::{CountPosition, CountedPart, StoreResult, StoredTotal, TotalPass, Totals};

impl Totals for SqliteStore {
    async fn count_part(
        &self,
        table: TableRef<'_>,
        from: &CountPosition,
        rows: u32,
    ) -> StoreResult<Option<CountedPart>> {
        let (table, from) = (table.into_owned(), from.key.clone());
        self.read_apart(move |db| {
            let Some(bucket) = bucket_of(db, table.as_ref())? else {
                return Ok(Err(Code::TableNotFound.into()));
            };
            part(db, bucket, &from, u64::from(rows)).map(|part| Ok(Some(part)))
        })
        .await
    }

    async fn estimate(&self, _table: TableRef<'_>) -> StoreResult<Option<u64>> {
        // SQLite keeps no statistics by the value of a bucket.
        Ok(None)
    }

    async fn stored_total(&self, table: TableRef<'_>) -> StoreResult<Option<StoredTotal>> {
        self.readers.with(|db| {
            db.prepare_cached(
                "SELECT c.entities, c.started, c.ended FROM table_totals AS c
                 JOIN tables AS t ON t.table_no = c.table_no
                 WHERE t.account = ?1 AND t.name_lower = ?2 AND c.ended IS NOT NULL",
            )?
            .query_row(params![table.account, table.name.lower()], |row| {
                let entities = row.get::<_, i64>(0)?.cast_unsigned();
                Ok(StoredTotal { entities, started: ticks(row, 1)?, ended: ticks(row, 2)? })
            })
            .optional()
            .map(Ok)
        })
    }

    async fn want_total(&self, table: TableRef<'_>, now: Ticks) -> StoreResult<()> {
        let table = table.into_owned();
        let want = move |db: &Connection| {
            db.prepare_cached(
                "INSERT INTO table_totals AS c (table_no, began, share, pk, rk, so_far)
                 SELECT table_no, ?3, 0, '', '', 0 FROM tables WHERE account = ?1 AND name_lower = ?2
                 ON CONFLICT (table_no) DO UPDATE SET began = excluded.began, share = 0, pk = '', rk = '', so_far = 0
                 WHERE c.began IS NULL",
            )?
            .execute(params![table.account, table.name.lower(), now.raw()])
            .map(|_| Ok(()))
        };
        self.writer.submit(want).await
    }

    async fn due_total(&self, left_out: &[i64]) -> StoreResult<Option<TotalPass>> {
        self.readers.with(|db| {
            let mut due = db.prepare_cached(
                "SELECT c.table_no, t.account, t.name, c.began, c.share, c.pk, c.rk, c.so_far
                 FROM table_totals AS c JOIN tables AS t ON t.table_no = c.table_no
                 WHERE c.began IS NOT NULL ORDER BY c.began, c.table_no",
            )?;
            let is_wanted = |pass: &rusqlite::Result<TotalPass>| {
                pass.as_ref().map_or(true, |pass| !left_out.contains(&pass.table_no))
            };
            due.query_map([], pass)?.find(is_wanted).transpose().map(Ok)
        })
    }

    async fn record_total(&self, pass: &TotalPass, part: &CountedPart, now: Ticks) -> StoreResult<()> {
        let sum = pass.so_far.saturating_add(part.entities).cast_signed();
        let (table_no, began, next) = (pass.table_no, pass.began.raw(), part.next.clone());
        let record = move |db: &Connection| {
            let recorded = match &next {
                Some(CountPosition { share, key, .. }) => db
                    .prepare_cached(
                        "UPDATE table_totals SET share = ?3, pk = ?4, rk = ?5, so_far = ?6
                         WHERE table_no = ?1 AND began = ?2",
                    )?
                    .execute(params![table_no, began, share, key.partition, key.row, sum]),
                None => db
                    .prepare_cached(
                        "UPDATE table_totals SET entities = ?3, started = began, ended = ?4, began = NULL,
                                share = NULL, pk = NULL, rk = NULL, so_far = NULL
                         WHERE table_no = ?1 AND began = ?2",
                    )?
                    .execute(params![table_no, began, sum, now.raw()]),
            };
            recorded.map(|_| Ok(()))
        };
        self.writer.submit(record).await
    }
}

/// Counts the rows of a bucket from a key on. SQLite would compare a pair of columns with every row,
/// so the partition of the key comes first, and then the others.
fn part(db: &Connection, bucket: i64, from: &Key, rows: u64) -> Sqlite<CountedPart> {
    let mut counted = CountedPart { entities: 0, next: None };
    let mut partition = db.prepare_cached(
        "SELECT pk, rk FROM entities WHERE bucket = ?1 AND pk = ?2 AND rk >= ?3 ORDER BY pk, rk",
    )?;
    if step(partition.query(params![bucket, from.partition, from.row])?, rows, &mut counted)? {
        return Ok(counted);
    }
    let others = first_whole_partition(&Key::new(from.partition.clone(), "\u{1}"));
    let mut rest =
        db.prepare_cached("SELECT pk, rk FROM entities WHERE bucket = ?1 AND pk >= ?2 ORDER BY pk, rk")?;
    step(rest.query(params![bucket, others])?, rows, &mut counted)?;
    Ok(counted)
}

/// Counts rows up to a limit; returns whether it is reached.
fn step(mut rows: rusqlite::Rows<'_>, limit: u64, counted: &mut CountedPart) -> Sqlite<bool> {
    while let Some(row) = rows.next()? {
        if counted.entities == limit {
            let key = Key { partition: row.get(0)?, row: row.get(1)? };
            counted.next = Some(CountPosition { key, ..CountPosition::start() });
            return Ok(true);
        }
        counted.entities += 1;
    }
    Ok(false)
}

fn pass(row: &Row<'_>) -> Sqlite<TotalPass> {
    let key = Key { partition: row.get(5)?, row: row.get(6)? };
    Ok(TotalPass {
        table_no: row.get(0)?,
        account: row.get(1)?,
        table: row.get(2)?,
        began: ticks(row, 3)?,
        position: CountPosition { layout: None, share: row.get(4)?, key },
        so_far: row.get::<_, i64>(7)?.cast_unsigned(),
    })
}
