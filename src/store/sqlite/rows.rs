//! Rows to values.

use rusqlite::Row;

use crate::model::Ticks;

/// What a statement yields, or why it failed.
pub(crate) type Sqlite<T> = rusqlite::Result<T>;

/// A tick count as stored. What is out of range was not written by us.
pub(crate) fn ticks(row: &Row<'_>, column: usize) -> Sqlite<Ticks> {
    let raw: i64 = row.get(column)?;
    Ticks::from_raw(raw).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, raw))
}
