//! Sources and targets of copies: endpoints, databases, dumps and files.

pub(super) mod database;
pub(super) mod dump;
pub(super) mod endpoint;
pub(super) mod lines;
pub(super) mod location;

use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::contract::{Counts, Mode, Page, Rejected, TransferSource, WritePage};
use crate::error::{TransferResult, failed};
use crate::protocol::model::Key;
use crate::rows::Row;
use crate::rows::range::{Lower, RowRange, sorts_alike};
use crate::work::in_parallel;

/// Maximum pages to read before entities are read singly, because the target may have many other entities between them.
const MAX_PAGES: usize = 3;
/// Maximum keys to read singly without reading pages first.
pub(super) const FEW_KEYS: usize = 4;
/// Maximum entities of a page to read singly at once. An endpoint limits its requests in flight too.
pub(super) const MAX_LOOKUPS: usize = 16;

/// A page that is being written, and the outcome for its entities so far.
struct PageOutcome<'a, 'p> {
    page: &'a WritePage<'p>,
    counts: Counts,
}

impl<'a, 'p> PageOutcome<'a, 'p> {
    fn new(page: &'a WritePage<'p>) -> Self {
        Self { page, counts: Counts::default() }
    }

    fn reject(&mut self, row: &Row, reason: impl Into<String>) -> TransferResult<()> {
        self.counts.rejected += 1;
        (self.page.reject)(Rejected { entity: row.to_json(), reason: reason.into() })
    }

    /// Appends each row as a line of JSON with annotations, and passes it to `pushed`. Rejects rows that JSON cannot
    /// express.
    fn push_lines(&mut self, text: &mut String, mut pushed: impl FnMut(&'a Row)) -> TransferResult<()> {
        let page = self.page;
        for row in &page.rows {
            let end = text.len();
            match row.push_json(text, true) {
                Ok(()) => {
                    text.push('\n');
                    pushed(row);
                }
                Err(reason) => {
                    text.truncate(end);
                    self.reject(row, reason)?;
                }
            }
        }
        Ok(())
    }

    /// Removes the writes of entities whose keys exist in the target, because an earlier attempt or another writer may
    /// have written them.
    fn without_existing<T>(
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

/// Reads the entities with the keys of `rows`. The place must have no filter.
pub(super) fn find_existing<'a>(
    place: &dyn TransferSource,
    table: &str,
    rows: impl Iterator<Item = &'a Row>,
) -> TransferResult<HashMap<Key, Row>> {
    let keys: Vec<&Key> = rows.map(|row| &row.key).collect();
    let range = match keys.len() {
        ..=FEW_KEYS => RangeOfKeys::default(),
        _ => read_range_of(place, table, &keys)?,
    };
    let mut found = range.rows;
    if !range.is_complete {
        let unread: Vec<&Key> = keys.into_iter().filter(|key| !found.contains_key(*key)).collect();
        let read = in_parallel(MAX_LOOKUPS, unread, |key| place.get(table, key))?;
        found.extend(read.into_iter().flatten().map(|row| (row.key.clone(), row)));
    }
    Ok(found)
}

/// The entities from the first to the last of some keys, including entities with other keys.
#[derive(Default)]
pub(super) struct RangeOfKeys {
    pub rows: HashMap<Key, Row>,
    pub rejected: Vec<Rejected>,
    /// Whether the place has no further entity with one of the keys.
    pub is_complete: bool,
}

/// Reads the first pages of the range of some keys.
pub(super) fn read_range_of(
    place: &dyn TransferSource,
    table: &str,
    keys: &[&Key],
) -> TransferResult<RangeOfKeys> {
    let mut found = RangeOfKeys::default();
    let (Some(first), Some(last)) = (keys.iter().min(), keys.iter().max()) else { return Ok(found) };
    let upper = Key::new(last.partition.as_str(), format!("{}!", last.row));
    let range = RowRange { lower: Lower::From((*first).clone()), upper: Some(upper) };
    let mut reader = place.open(table, &range, false)?;
    for _ in 0..MAX_PAGES {
        let Some(page) = reader.next()? else {
            // The place may sort other keys differently.
            found.is_complete = place.is_ordered() && keys.iter().all(|key| sorts_alike(key));
            break;
        };
        found.rows.extend(page.rows.into_iter().map(|row| (row.key.clone(), row)));
        found.rejected.extend(page.rejected);
    }
    Ok(found)
}

/// Maximum documents that are not entities, each of which is kept as text.
const MAX_NON_ENTITIES: usize = 1000;

/// The number of documents that are not entities, such as those without keys.
#[derive(Debug, Default)]
pub(crate) struct NonEntities(usize);

impl NonEntities {
    fn check(&mut self, table: &str, page: &Page) -> TransferResult<()> {
        let more = page.rejected.iter().filter(|rejected| !has_keys(&rejected.entity)).count();
        self.add(more, table, "documents")
    }

    /// Refuses a table with too many such documents.
    pub(crate) fn add(&mut self, more: usize, table: &str, documents: &str) -> TransferResult<()> {
        self.0 += more;
        match self.0 {
            ..=MAX_NON_ENTITIES => Ok(()),
            _ => Err(failed!("{table}: more than {MAX_NON_ENTITIES} {documents} are no entities")),
        }
    }
}

fn has_keys(json: &str) -> bool {
    #[derive(Deserialize)]
    struct Keys {
        #[serde(rename = "PartitionKey")]
        _partition: IgnoredAny,
        #[serde(rename = "RowKey")]
        _row: IgnoredAny,
    }
    serde_json::from_str::<Keys>(json).is_ok()
}
