//! Converts rows to values.

use rusqlite::Row;

use crate::protocol::model::Ticks;

/// The result of a statement.
pub(crate) type Sqlite<T> = rusqlite::Result<T>;

/// Reads a stored number of ticks. A value that is out of range was not written by this program.
pub(crate) fn ticks(row: &Row<'_>, column: usize) -> Sqlite<Ticks> {
    let raw: i64 = row.get(column)?;
    Ticks::stored(raw).ok_or(rusqlite::Error::IntegralValueOutOfRange(column, raw))
}
