//! Finds which of the entities to be written already exist in the target.

use std::collections::HashMap;

use crate::protocol::model::Key;
use crate::transfer::contract::{TransferResult, TransferSource};
use crate::transfer::rows::range::{Lower, RowRange, sorts_alike};
use crate::transfer::rows::row::Row;

/// Maximum pages to read before entities are read one by one: the target may have many others between
/// them.
const MAX_PAGES: usize = 3;

/// Reads the entities with the keys of `rows` from a target that has no filter.
///
/// # Errors
/// Those of the target.
pub(super) fn find_existing<'a>(
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
