//! Rows to values.

use rusqlite::Row;

use crate::model::Ticks;

/// A tick count as stored. What is out of range was not written by us.
pub fn ticks(row: &Row<'_>, column: usize) -> rusqlite::Result<Ticks> {
    let raw: i64 = row.get(column)?;
    Ticks::from_raw(raw).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, raw))
}
