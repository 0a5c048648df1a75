//! Rows whose keys the two places may sort differently: by code point, or by UTF-16 unit as Azure does.

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::error::{TransferError, TransferResult, failed};
use crate::protocol::model::entity::StoredProperties;
use crate::protocol::model::{Key, Ticks};
use crate::rows::Row;

const SCHEMA: &str = "
    PRAGMA journal_mode = OFF;
    CREATE TABLE rows (
        side INTEGER, pk TEXT, rk TEXT, modified INTEGER, tag TEXT, properties TEXT,
        PRIMARY KEY (side, pk, rk)) WITHOUT ROWID;";

#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    Source = 0,
    Target = 1,
}

/// Rows that are held until the reader of the other place reaches their keys.
#[derive(Default)]
pub(super) struct ReorderedRows {
    /// A temporary database, which keeps little in memory; `None` until a row is held.
    rows: Option<Connection>,
}

impl ReorderedRows {
    pub(super) fn hold(&mut self, side: Side, row: &Row) -> TransferResult<()> {
        self.insert(side, &row.key, (row.modified, row.tag.as_deref(), row.properties.as_str()))
    }

    pub(super) fn hold_key(&mut self, side: Side, key: &Key) -> TransferResult<()> {
        self.insert(side, key, (None, None, StoredProperties::default().as_str()))
    }

    fn insert(
        &mut self,
        side: Side,
        key: &Key,
        (modified, tag, properties): (Option<Ticks>, Option<&str>, &str),
    ) -> TransferResult<()> {
        let insert = "INSERT OR REPLACE INTO rows VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let connection = match self.rows.take() {
            Some(connection) => connection,
            None => open().map_err(failed)?,
        };
        let values = params![side as i64, key.partition, key.row, modified.map(Ticks::raw), tag, properties];
        connection.prepare_cached(insert).and_then(|mut insert| insert.execute(values)).map_err(failed)?;
        self.rows = Some(connection);
        Ok(())
    }

    /// Whether a row or only its key is held.
    pub(super) fn has(&self, side: Side, key: &Key) -> TransferResult<bool> {
        let Some(connection) = &self.rows else { return Ok(false) };
        let select = "SELECT 1 FROM rows WHERE side = ?1 AND pk = ?2 AND rk = ?3";
        let found = connection
            .prepare_cached(select)
            .and_then(|mut select| select.exists(params![side as i64, key.partition, key.row]));
        found.map_err(failed)
    }

    /// Removes and returns the held row with a key.
    pub(super) fn take(&self, side: Side, key: &Key) -> TransferResult<Option<Row>> {
        let Some(connection) = &self.rows else { return Ok(None) };
        let delete = "DELETE FROM rows WHERE side = ?1 AND pk = ?2 AND rk = ?3
                      RETURNING pk, rk, modified, tag, properties";
        let taken = connection.prepare_cached(delete).and_then(|mut delete| {
            delete.query_row(params![side as i64, key.partition, key.row], read).optional()
        });
        taken.map_err(failed)
    }

    /// Passes the held rows of a place to `take`, in key order.
    pub(super) fn each(
        &self,
        side: Side,
        take: &mut dyn FnMut(Row) -> TransferResult<()>,
    ) -> TransferResult<()> {
        let Some(connection) = &self.rows else { return Ok(()) };
        let select = "SELECT pk, rk, modified, tag, properties FROM rows WHERE side = ?1 ORDER BY pk, rk";
        let mut select = connection.prepare(select).map_err(failed)?;
        for row in select.query_map([side as i64], read).map_err(failed)? {
            take(row.map_err(failed)?)?;
        }
        Ok(())
    }
}

/// Opens a database in an unnamed file, which is deleted with the connection.
fn open() -> rusqlite::Result<Connection> {
    let connection = Connection::open("")?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

fn failed(error: rusqlite::Error) -> TransferError {
    failed!("the temporary file of entities that wait to be compared: {error}")
}

fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    Ok(Row {
        key: Key { partition: row.get(0)?, row: row.get(1)? },
        modified: row.get::<_, Option<i64>>(2)?.and_then(Ticks::from_raw),
        tag: row.get(3)?,
        // Rows are compared whatever the order of their properties.
        properties: StoredProperties::from_stored_text(row.get(4)?),
    })
}
