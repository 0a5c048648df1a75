//! Narrows a page to the keys that an index returns.

use rusqlite::types::Value as SqlValue;
use rusqlite::{Connection, OptionalExtension};

use crate::contract::indexes::{
    BestChoice, MAX_ENTRIES, NarrowingMemory, choices_of, filter_number, open_range,
};
use crate::protocol::model::{Key, Ticks};
use crate::protocol::plan::index::{IndexChoice, IndexKind, IndexRange, IndexValue};
use crate::protocol::plan::span::points_within;
use crate::protocol::plan::{Scan, Span};
use crate::sqlite::Sqlite;
use crate::sqlite::catalog::entries;

/// Maximum relative error of a number that SQLite parses from text.
const READ_ERROR: f64 = 1e-14;
/// SQLite parses numbers less exactly if their magnitude is at most this, or at least its reciprocal.
const TINY: f64 = 1e-290;

/// The result of narrowing a page.
#[derive(Default)]
pub(crate) struct Narrowed {
    /// A superset of the matching keys; `None` to read in the order of keys.
    pub points: Option<Vec<Span>>,
    /// The number of the choice that returned the keys.
    pub choice: Option<usize>,
    /// Number of index entries read.
    pub entries: u64,
}

/// Looks up the keys that can match.
pub(crate) fn narrow(
    db: &Connection,
    table_no: i64,
    scan: &Scan,
    memory: &NarrowingMemory,
) -> Sqlite<Narrowed> {
    let mut best = BestChoice::default();
    if scan.indexed.is_empty() {
        return Ok(Narrowed::default());
    }
    let filter = filter_number(table_no, scan);
    if memory.dense.has(filter) {
        return Ok(Narrowed::default());
    }
    for (number, choice) in choices_of(scan, table_no) {
        if memory.bounds.has(choice) {
            continue;
        }
        // The index was dropped, so the next choice is tried.
        let Some(keys) = look_up(db, &choice.ranges, best.limit() + 1)? else { continue };
        memory.uses.count(choice);
        remember(db, choice, &keys, memory)?;
        if best.offer(number, keys) {
            break;
        }
    }
    let entries = best.entries;
    let is_dense = best.is_dense();
    let named = best.into_named();
    if is_dense {
        memory.dense.put(filter);
    }
    let choice = named.as_ref().map(|named| named.choice);
    Ok(Narrowed {
        points: named.map(|named| points_within(named.keys, &scan.spans, scan.order)),
        choice,
        entries,
    })
}

/// Remembers the entry up to which an open range has too many keys.
fn remember(db: &Connection, choice: &IndexChoice, keys: &[Key], memory: &NarrowingMemory) -> Sqlite<()> {
    let (Some(range), Some(last)) = (open_range(choice), keys.get(MAX_ENTRIES)) else { return Ok(()) };
    let mut statement = db.prepare_cached(&entries::value(&range.index))?;
    let reached = statement.query_row((&last.partition, &last.row), |row| row.get(0)).optional()?;
    match reached {
        Some(SqlValue::Text(text)) => memory.bounds.put(range, IndexValue::Text(text)),
        Some(SqlValue::Real(number)) => memory.bounds.put(range, IndexValue::Number(number)),
        Some(SqlValue::Integer(raw)) if range.index.kind == IndexKind::Timestamp => {
            if let Some(at) = Ticks::stored(raw) {
                memory.bounds.put(range, IndexValue::Timestamp(at));
            }
        }
        _ => {}
    }
    Ok(())
}

/// Reads at most `limit` keys in some ranges; `None` if the index does not exist.
fn look_up(db: &Connection, ranges: &[IndexRange], limit: usize) -> Sqlite<Option<Vec<Key>>> {
    let mut keys = Vec::new();
    for range in ranges {
        let text = entries::lookup(&range.index, range.lower.is_some(), range.upper.is_some());
        let mut statement = match db.prepare_cached(&text) {
            Err(error) if is_missing(&error) => return Ok(None),
            statement => statement?,
        };
        statement.raw_bind_parameter(1, (limit - keys.len()) as i64)?;
        for (parameter, bound) in [(2, range.lower.as_ref().map(lower)), (3, range.upper.as_ref().map(upper))]
        {
            if let Some(value) = bound {
                statement.raw_bind_parameter(parameter, value)?;
            }
        }
        let mut rows = statement.raw_query();
        loop {
            // A cached statement may be older than the removal of the index.
            let row = match rows.next() {
                Err(error) if is_missing(&error) => return Ok(None),
                row => row?,
            };
            let Some(row) = row else { break };
            keys.push(Key::new(row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?));
        }
        if keys.len() >= limit {
            break;
        }
    }
    Ok(Some(keys))
}

/// Whether a statement failed because its index was dropped.
pub(crate) fn is_missing(error: &rusqlite::Error) -> bool {
    error.to_string().contains("no such index")
}

/// Returns the lowest value that a bound of this value has to include.
pub(crate) fn lower(value: &IndexValue) -> SqlValue {
    sql(value, |number| about(number).0)
}

/// Returns the highest value that a bound of this value has to include.
pub(crate) fn upper(value: &IndexValue) -> SqlValue {
    sql(value, |number| about(number).1)
}

/// Converts an entry to its SQLite value.
pub(crate) fn exactly(value: &IndexValue) -> SqlValue {
    sql(value, |number| number)
}

fn sql(value: &IndexValue, number: impl Fn(f64) -> f64) -> SqlValue {
    match value {
        IndexValue::Text(text) => SqlValue::Text(text.clone()),
        IndexValue::Number(value) => SqlValue::Real(number(*value)),
        IndexValue::Boolean(value) => SqlValue::Integer(i64::from(*value)),
        IndexValue::Timestamp(at) => SqlValue::Integer(at.raw()),
    }
}

/// The range of numbers that SQLite may parse from the text of a number, because its parser is not exact to the last
/// bit.
fn about(number: f64) -> (f64, f64) {
    let magnitude = number.abs();
    let (least, most) = if magnitude <= TINY {
        (-TINY, TINY)
    } else if magnitude >= TINY.recip() {
        (TINY.recip() / 2.0, f64::INFINITY)
    } else {
        (magnitude * (1.0 - READ_ERROR), magnitude * (1.0 + READ_ERROR))
    };
    if number < 0.0 && magnitude > TINY { (-most, -least) } else { (least, most) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_of_numbers_leave_room_for_errors_of_reading() {
        for number in [0.0, -0.0, 0.1, -0.1, 42.0, -7e15, 1e-300, -1e-300, 1e300, -1e300, f64::MAX] {
            let (least, most) = about(number);
            assert!(least <= number && number <= most, "{number}");
            assert!(least < most);
        }
        let (least, most) = about(42.0);
        assert!(41.999 < least && most < 42.001);
        assert_eq!(about(f64::INFINITY).1, f64::INFINITY);
        assert_eq!(about(f64::NEG_INFINITY).0, f64::NEG_INFINITY);
    }
}
