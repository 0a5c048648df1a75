//! The rows of a page in the order of an index.

use std::ops::ControlFlow;
use std::sync::Arc;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::postgres::PgStore;
use crate::postgres::fault::StatementError;
use crate::postgres::reads::narrow::is_there;
use crate::postgres::reads::turn::Evaluated;
use crate::postgres::state::table_ids::TableId;
use crate::postgres::statements::indexes::ordered_columns;
use crate::protocol::model::entity::BorrowedEntity;
use crate::protocol::model::{Key, Stored, Ticks};
use crate::protocol::plan::index::{IndexKind, IndexPosition, IndexValue, PropertyIndex, ValueOrder};
use crate::protocol::plan::predicate::Prepared;
use crate::protocol::plan::{Projection, Scan};

/// An order that a table has an index for.
#[derive(Clone, Copy)]
pub(super) struct Ordered<'a> {
    pub scan: &'a Scan,
    pub by: &'a ValueOrder,
    pub index: &'a Arc<PropertyIndex>,
}

/// A row with its entry in the index.
pub(super) struct OrderedRow {
    pub entry: Option<IndexValue>,
    pub entity: Stored,
}

/// The rows of a part of the table: the first of it in order.
#[derive(Default)]
pub(super) struct PartRows {
    pub rows: Vec<OrderedRow>,
    pub bytes: usize,
    pub examined: u64,
    /// The number of the choice of other indexes that has named the rows.
    pub narrowed_by: Option<usize>,
    /// Whether the part has rows, matching or not.
    pub has_seen_rows: bool,
    /// The next position of the part; `None` at its end.
    pub next: Option<IndexPosition>,
}

impl<'a> Ordered<'a> {
    /// The order of a scan; `None` if it is that of keys.
    pub(super) fn of(scan: &'a Scan) -> Option<Self> {
        let by = scan.by.as_deref()?;
        Some(Self { scan, by, index: by.index.as_ref()? })
    }

    /// Whether the database has the index for this table, in the form that has keys too.
    pub(super) async fn is_there(self, store: &PgStore, table_id: TableId) -> Result<bool, StatementError> {
        if self.index.table_no != table_id.table_no {
            return Ok(false);
        }
        let columns = ordered_columns(table_id.spread);
        let mut lease = store.nodes.acquire().await?;
        is_there(&mut lease, self.index.index_no, columns, &store.narrowing).await
    }

    /// Returns the position of an entity.
    pub(super) fn position(self, entry: Option<IndexValue>, key: Key) -> IndexPosition {
        IndexPosition { index_no: self.index.index_no, entry, key }
    }
}

impl PartRows {
    /// Forgets the rows and bytes beyond these numbers of them.
    pub(super) fn truncate(&mut self, (rows, bytes): (usize, usize)) {
        self.rows.truncate(rows);
        self.bytes = bytes;
    }

    /// Takes a row that matches, or ends the page before it.
    pub(super) fn offer(
        &mut self,
        ordered: Ordered<'_>,
        mut entity: BorrowedEntity<'_>,
        entry: Option<IndexValue>,
    ) -> ControlFlow<()> {
        let scan = ordered.scan;
        if scan.projection == Projection::SystemOnly {
            entity.properties = "{}";
        }
        let size = entity.weight();
        let is_full =
            self.rows.len() >= scan.rows.max(1) || (!self.rows.is_empty() && self.bytes + size > scan.bytes);
        let entity = entity.to_stored();
        if is_full {
            self.next = Some(ordered.position(entry, entity.key));
            return ControlFlow::Break(());
        }
        self.bytes += size;
        self.rows.push(OrderedRow { entry, entity });
        ControlFlow::Continue(())
    }
}

impl Evaluated for OrderedRow {
    fn bytes(&self) -> usize {
        self.entity.bytes()
    }

    fn matches(&self, filter: &Prepared<'_>) -> Result<bool, StatementError> {
        Evaluated::matches(&self.entity, filter)
    }
}

/// Reads the number of a row in its window.
pub(super) fn number(row: &PgRow, with_properties: bool) -> Result<usize, sqlx::Error> {
    let number: i64 = row.try_get_unchecked(if with_properties { 5 } else { 4 })?;
    usize::try_from(number).map_err(|error| sqlx::Error::Decode(error.into()))
}

/// Reads the entry of a row.
pub(super) fn entry_of(
    row: &PgRow,
    with_properties: bool,
    kind: IndexKind,
) -> Result<Option<IndexValue>, sqlx::Error> {
    let column = if with_properties { 4 } else { 3 };
    Ok(match kind {
        IndexKind::Number => row.try_get::<Option<f64>, _>(column)?.map(IndexValue::Number),
        IndexKind::Boolean => row.try_get::<Option<bool>, _>(column)?.map(IndexValue::Boolean),
        IndexKind::Timestamp => Ticks::stored(row.try_get(column)?).map(IndexValue::Timestamp),
        IndexKind::Text | IndexKind::Time | IndexKind::Guid => {
            row.try_get::<Option<String>, _>(column)?.map(IndexValue::Text)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::model::entity::StoredProperties;
    use crate::protocol::plan::Span;

    fn row(n: i32, length: usize) -> (Stored, Option<IndexValue>) {
        let text = format!(r#"{{"N":{n},"Text":"{}"}}"#, "x".repeat(length));
        let properties = StoredProperties::from_stored_text(text);
        let entity = Stored { key: Key::new("p", n.to_string()), modified: Ticks::MIN, properties };
        (entity, Some(IndexValue::Number(f64::from(n))))
    }

    /// The pages of rows, each from the position of the last one on: the numbers of their rows.
    fn pages(scan: &Scan, rows: &[(Stored, Option<IndexValue>)]) -> Vec<Vec<String>> {
        let index = Arc::new(PropertyIndex {
            index_no: 1,
            table_no: 1,
            property: "N".into(),
            kind: IndexKind::Number,
        });
        let by = ValueOrder::by("N");
        let ordered = Ordered { scan, by: &by, index: &index };
        let (mut pages, mut start) = (Vec::new(), 0);
        loop {
            let mut page = PartRows::default();
            let is_end = |(entity, entry): &(Stored, Option<IndexValue>)| {
                page.offer(ordered, entity.into(), entry.clone()).is_break()
            };
            let end = rows[start..].iter().position(is_end);
            let weight = |row: &OrderedRow| BorrowedEntity::from(&row.entity).weight();
            assert_eq!(page.bytes, page.rows.iter().map(weight).sum::<usize>());
            pages.push(page.rows.into_iter().map(|row| row.entity.key.row).collect());
            let Some(end) = end else {
                assert_eq!(page.next, None);
                return pages;
            };
            assert!(end > 0, "the page makes no progress");
            start += end;
            let (entity, entry) = &rows[start];
            assert_eq!(page.next, Some(ordered.position(entry.clone(), entity.key.clone())));
        }
    }

    #[test]
    fn a_page_ends_before_the_row_that_exceeds_its_rows_or_its_bytes() {
        let everything = Scan::of_spans(vec![Span::everything()]);
        // The second row is larger than a page.
        let rows = [row(0, 10), row(1, 5000), row(2, 100), row(3, 100), row(4, 100)];
        let by_bytes = Scan { bytes: 300, ..everything.clone() };
        assert_eq!(pages(&by_bytes, &rows), [vec!["0"], vec!["1"], vec!["2", "3"], vec!["4"]]);
        let least = Scan { bytes: 1, ..everything.clone() };
        assert_eq!(pages(&least, &rows).len(), rows.len());
        let by_rows = Scan { rows: 2, ..everything };
        assert_eq!(pages(&by_rows, &rows), [vec!["0", "1"], vec!["2", "3"], vec!["4"]]);
        let of_keys = Scan { projection: Projection::SystemOnly, ..by_bytes };
        assert_eq!(pages(&of_keys, &rows).len(), 1, "properties that are not read have no bytes");
    }
}
