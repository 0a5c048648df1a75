//! The number of entities of a table: an exact count or a quick estimate.

use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;

use crate::protocol::model::{Key, TableRef};
use crate::protocol::plan::{Predicate, Projection, Scan, query};
use crate::store::{CountPosition, CountedPart, Store, StoreResult, TableSize};

/// Maximum number of matching entities in one page of a count.
const PAGE_ROWS: usize = 100_000;
/// Maximum bytes of keys in one page of a count.
const PAGE_BYTES: usize = 64 << 20;
/// The desired range of the duration of a step, to which the number of rows is adjusted within its own range.
const STEP_TIMES: (Duration, Duration) = (Duration::from_millis(40), Duration::from_millis(160));
const STEP_ROWS: (u32, u32) = (1000, 200_000);

/// The origin of the number of entities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub enum TotalBasis {
    /// Counted now, up to 10000.
    Exact,
    /// From statistics of PostgreSQL.
    Estimated,
    /// There are more.
    AtLeast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Total")]
pub struct TableTotal {
    pub entities: u64,
    pub basis: TotalBasis,
    /// Bytes of keys and properties. Estimated from the first entities, unless the basis is exact.
    pub bytes: u64,
}

/// Returns the total of a table. `size` is the size of the first entities, which are all entities of a small table; the
/// database estimates the total of a larger table.
pub async fn total(store: &Store, table: TableRef<'_>, size: TableSize) -> StoreResult<TableTotal> {
    let (entities, basis) = if size.complete {
        (size.entities, TotalBasis::Exact)
    } else {
        match store.estimate(table).await? {
            Some(estimate) if estimate > size.entities => (estimate, TotalBasis::Estimated),
            _ => (size.entities, TotalBasis::AtLeast),
        }
    };
    let bytes_per_entity = size.bytes as f64 / size.entities.max(1) as f64;
    Ok(TableTotal { entities, basis, bytes: (bytes_per_entity * entities as f64).round() as u64 })
}

/// Counts matching entities from a key on, until the time has passed.
pub async fn count_matching(
    store: &Store,
    table: TableRef<'_>,
    from: &Key,
    predicate: &Predicate,
    time: Duration,
) -> StoreResult<CountedPart> {
    let begun = Instant::now();
    let (mut entities, mut from) = (0, from.clone());
    loop {
        let (spans, residual) = query::narrow(Some(predicate.clone()), Some(&from));
        let scan = Scan {
            residual,
            rows: PAGE_ROWS,
            bytes: PAGE_BYTES,
            time: time.saturating_sub(begun.elapsed()).max(STEP_TIMES.0),
            projection: Projection::SystemOnly,
            ..Scan::of_spans(spans)
        };
        let ((), end) = store.page(table, &scan, ()).await?;
        entities += end.entities as u64;
        let Some(next) = end.next else { return Ok(CountedPart { entities, next: None }) };
        if begun.elapsed() >= time {
            return Ok(CountedPart {
                entities,
                next: Some(CountPosition { key: next, ..CountPosition::start() }),
            });
        }
        from = next;
    }
}

/// The number of rows that a step counts. It is adjusted to the duration of the previous step.
#[derive(Debug, Clone, Copy)]
pub struct CountPace(u32);

impl Default for CountPace {
    fn default() -> Self {
        Self(20_000)
    }
}

impl CountPace {
    /// Counts all entities of a table for a step; `None` if the number of buckets has changed since `from`.
    pub async fn step(
        &mut self,
        store: &Store,
        table: TableRef<'_>,
        from: &CountPosition,
    ) -> StoreResult<Option<CountedPart>> {
        let begun = Instant::now();
        let part = store.count_part(table, from, self.0).await;
        let (min, max) = STEP_ROWS;
        let rows = match &part {
            Err(_) => self.0 / 4,
            Ok(_) if begun.elapsed() > STEP_TIMES.1 => self.0 / 2,
            Ok(_) if begun.elapsed() < STEP_TIMES.0 => self.0 * 2,
            Ok(_) => self.0,
        };
        self.0 = rows.clamp(min, max);
        part
    }

    /// Counts all entities of a table from a position on, until the time has passed; `None` as for [`Self::step`].
    pub async fn count_for(
        &mut self,
        store: &Store,
        table: TableRef<'_>,
        from: CountPosition,
        time: Duration,
    ) -> StoreResult<Option<CountedPart>> {
        let begun = Instant::now();
        let mut counted = CountedPart { entities: 0, next: Some(from) };
        while let Some(from) = counted.next.take() {
            let Some(part) = self.step(store, table, &from).await? else { return Ok(None) };
            counted = CountedPart { entities: counted.entities + part.entities, next: part.next };
            if begun.elapsed() >= time {
                break;
            }
        }
        Ok(Some(counted))
    }
}
