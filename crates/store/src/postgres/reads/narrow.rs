//! Narrows a page to the keys that an index returns.

use std::ops::ControlFlow;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};

use crate::Fault;
use crate::contract::indexes::{
    BestChoice, DenseBounds, MAX_ENTRIES, NarrowingMemory, choices_of, open_range,
};
use crate::postgres::connections::lease::Lease;
use crate::postgres::fault::{Effect, StatementError};
use crate::postgres::reads::filter::Binds;
use crate::postgres::rows::{broken_row, key};
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::indexes as texts;
use crate::protocol::model::{Key, Ticks};
use crate::protocol::plan::Scan;
use crate::protocol::plan::index::{IndexChoice, IndexKind, IndexRange, IndexValue};

/// Maximum ranges and buckets of one lookup statement.
const BRANCHES: usize = 32;

/// Looks up a superset of the matching keys, trying each choice of indexes until one returns few keys.
pub(crate) async fn look_up(
    lease: &mut Lease,
    table_id: TableId,
    scan: &Scan,
    memory: &NarrowingMemory,
) -> Result<BestChoice, StatementError> {
    let mut best = BestChoice::default();
    let bounds = &memory.bounds;
    for (number, choice) in choices_of(scan, table_id.table_no).filter(|(_, choice)| !bounds.has(choice)) {
        // The index may be missing, because a user dropped it or restored the database without it. A lookup without
        // its index would read the whole bucket.
        let mut have_indexes = true;
        for range in &choice.ranges {
            have_indexes = have_indexes && has_columns(lease, range.index.index_no, 1, memory).await?;
        }
        if !have_indexes {
            continue;
        }
        let keys = keys_of(lease, table_id, &choice.ranges, best.limit() + 1).await?;
        remember(lease, table_id, choice, &keys, bounds).await?;
        if best.offer(number, keys) {
            break;
        }
    }
    Ok(best)
}

/// Whether the database has an index with at least this many columns.
pub(crate) async fn has_columns(
    lease: &mut Lease,
    index_no: i64,
    columns: i16,
    memory: &NarrowingMemory,
) -> Result<bool, StatementError> {
    if let Some(is_there) = memory.presence.of(index_no, columns) {
        return Ok(is_there);
    }
    let (table, kind) = texts::ENTITIES;
    let look = sqlx::query(texts::IS_COMPLETE).bind(table).bind(kind).bind(texts::prefix(index_no));
    let row = lease.row(look.bind(columns), Effect::Undone).await?.ok_or(Fault::Other)?;
    let is_there = row.try_get("found").map_err(broken_row)?;
    memory.presence.put(index_no, columns, is_there);
    Ok(is_there)
}

/// Remembers the entry up to which an open range has too many keys. With several buckets, whose entries are
/// unordered, it remembers the bound.
async fn remember(
    lease: &mut Lease,
    table_id: TableId,
    choice: &IndexChoice,
    keys: &[Key],
    bounds: &DenseBounds,
) -> Result<(), StatementError> {
    let (Some(range), Some(last)) = (open_range(choice), keys.get(MAX_ENTRIES)) else { return Ok(()) };
    if let (Some(bound), 2..) = (range.only_bound(), table_id.spread) {
        bounds.put(range, bound.clone());
        return Ok(());
    }
    if range.index.kind == IndexKind::Boolean {
        return Ok(());
    }
    let text = texts::value(&range.index);
    // Has the same composition as the lookup.
    let value = sqlx::query(AssertSqlSafe(text)).bind(table_id.bucket(&last.partition));
    let value = value.bind(&last.partition).bind(&last.row);
    let Some(row) = lease.row(value, Effect::Undone).await? else { return Ok(()) };
    if let Some(reached) = entry_of(&row, 0, range.index.kind).map_err(broken_row)? {
        bounds.put(range, reached);
    }
    Ok(())
}

/// Decodes a row's index entry from one of its columns.
pub(crate) fn entry_of(
    row: &PgRow,
    column: usize,
    kind: IndexKind,
) -> Result<Option<IndexValue>, sqlx::Error> {
    Ok(match kind {
        IndexKind::Number => row.try_get::<Option<f64>, _>(column)?.map(IndexValue::Number),
        IndexKind::Boolean => row.try_get::<Option<bool>, _>(column)?.map(IndexValue::Boolean),
        IndexKind::Timestamp => Ticks::stored(row.try_get(column)?).map(IndexValue::Timestamp),
        IndexKind::Text | IndexKind::Time | IndexKind::Guid => {
            row.try_get::<Option<String>, _>(column)?.map(IndexValue::Text)
        }
    })
}

/// Reads at most `limit` keys in some ranges of every bucket.
async fn keys_of(
    lease: &mut Lease,
    table_id: TableId,
    ranges: &[IndexRange],
    limit: usize,
) -> Result<Vec<Key>, StatementError> {
    let branches: Vec<(&IndexRange, i64)> =
        ranges.iter().flat_map(|range| table_id.buckets().map(move |bucket| (range, bucket))).collect();
    let mut keys = Vec::new();
    for some in branches.chunks(BRANCHES) {
        let (text, binds) = statement(some, limit - keys.len())?;
        // The text has only constants, and numbers and names that `statements::indexes` quotes.
        let lookup = sqlx::query_with(AssertSqlSafe(text), binds.into_inner());
        let mut visit = |row: &PgRow| {
            keys.push(key(row)?);
            Ok(ControlFlow::Continue(()))
        };
        lease.stream(lookup.persistent(some.len() == 1), &mut visit).await?;
        if keys.len() >= limit {
            break;
        }
    }
    Ok(keys)
}

fn statement(branches: &[(&IndexRange, i64)], limit: usize) -> Result<(String, Binds), StatementError> {
    let mut binds = Binds::default();
    let limit = binds.add(limit as i64)?;
    let mut texts_of = Vec::with_capacity(branches.len());
    for (range, bucket) in branches {
        let lower = range.lower.as_ref().map(|value| bind(&mut binds, value)).transpose()?;
        let upper = range.upper.as_ref().map(|value| bind(&mut binds, value)).transpose()?;
        texts_of.push(texts::lookup(&range.index, *bucket, lower.as_deref(), upper.as_deref(), &limit));
    }
    let joined = texts_of.join(" UNION ALL ");
    Ok((if branches.len() == 1 { joined } else { format!("{joined} LIMIT {limit}") }, binds))
}

/// Adds an index value and returns its placeholder.
pub(crate) fn bind(binds: &mut Binds, value: &IndexValue) -> Result<String, StatementError> {
    match value {
        IndexValue::Text(text) => binds.add(text.as_str()),
        IndexValue::Number(number) => binds.add(*number),
        IndexValue::Boolean(value) => binds.add(*value),
        IndexValue::Timestamp(at) => binds.add(at.raw()),
    }
}
