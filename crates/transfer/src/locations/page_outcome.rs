//! What becomes of the entities of a page in its target.

use std::collections::HashMap;

use crate::contract::{Counts, Mode, Rejected, TransferSource, WritePage};
use crate::error::TransferResult;
use crate::protocol::model::Key;
use crate::rows::range::{Lower, RowRange, sorts_alike};
use crate::rows::row::Row;

/// Maximum pages to read before entities are read one by one: the target may have many others between
/// them.
const MAX_PAGES: usize = 3;

/// A page that is being written, and what has become of its entities so far.
pub(super) struct PageOutcome<'a, 'p> {
    pub page: &'a WritePage<'p>,
    pub counts: Counts,
}

impl<'a, 'p> PageOutcome<'a, 'p> {
    /// Begins a page.
    pub(super) fn new(page: &'a WritePage<'p>) -> Self {
        Self { page, counts: Counts::default() }
    }

    /// Rejects an entity.
    pub(super) fn reject(&mut self, row: &Row, reason: impl Into<String>) -> TransferResult<()> {
        self.counts.rejected += 1;
        (self.page.reject)(Rejected { entity: row.to_json(), reason: reason.into() })
    }

    /// Leaves out the writes of entities whose keys the target has: a retry finds what the attempt before it
    /// has written, and other writers may have added some.
    pub(super) fn without_existing<T>(
        &mut self,
        target: &dyn TransferSource,
        writes: Vec<T>,
        row_of: impl Fn(&T) -> &Row,
    ) -> TransferResult<Vec<T>> {
        let found = find_existing(target, self.page.table, writes.iter().map(&row_of))?;
        let mut left = Vec::new();
        for write in writes {
            let row = row_of(&write);
            match found.get(&row.key) {
                None => left.push(write),
                Some(there) if self.page.mode == Mode::Skip || there.has_properties_of(row) => {
                    self.counts.unchanged += 1;
                }
                Some(_) => self.reject(row, "the target has another entity with this key")?,
            }
        }
        Ok(left)
    }
}

/// Reads the entities with the keys of `rows` from a target that has no filter.
fn find_existing<'a>(
    target: &dyn TransferSource,
    table: &str,
    rows: impl Iterator<Item = &'a Row> + Clone,
) -> TransferResult<HashMap<Key, Row>> {
    let mut found = HashMap::new();
    let keys = || rows.clone().map(|row| &row.key);
    let (Some(first), Some(last)) = (keys().min(), keys().max()) else { return Ok(found) };
    let upper = Key::new(last.partition.as_str(), format!("{}!", last.row));
    let range = RowRange { lower: Lower::From(first.clone()), upper: Some(upper) };
    let mut reader = target.open(table, &range, false)?;
    let mut is_complete = false;
    // Between other keys the target may have some in another order.
    let alike = keys().all(sorts_alike);
    for _ in 0..MAX_PAGES {
        let Some(page) = reader.next()? else {
            is_complete = target.is_ordered() && alike;
            break;
        };
        found.extend(page.rows.into_iter().map(|row| (row.key.clone(), row)));
    }
    for key in keys().filter(|_| !is_complete) {
        if !found.contains_key(key)
            && let Some(row) = target.get(table, key)?
        {
            found.insert(key.clone(), row);
        }
    }
    Ok(found)
}
