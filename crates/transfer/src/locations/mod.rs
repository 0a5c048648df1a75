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

/// Maximum pages to read before entities are read singly, because the target may have many other entities between them.
const MAX_PAGES: usize = 3;

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

/// Reads the entities with the keys of `rows` from a target without a filter.
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
    // The target may sort other keys differently.
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
