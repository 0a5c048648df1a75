//! Rows whose keys places may sort in other ways: by code point, or by UTF-16 unit as Azure does.

use std::collections::HashMap;

use crate::model::Key;
use crate::transfer::row::Row;

/// Rows of a place that may wait; more are looked up in the other.
const MAX_WAITING: usize = 1000;

/// Rows that wait until the reader of the other place comes to their keys.
#[derive(Debug, Default)]
pub(super) struct OddRows {
    source: HashMap<Key, Row>,
    target: HashMap<Key, Row>,
}

impl OddRows {
    /// Adds a row of the source; returns it with that of the target if that is there.
    pub(super) fn of_source(&mut self, row: Row) -> Option<(Row, Row)> {
        match self.target.remove(&row.key) {
            Some(there) => Some((row, there)),
            None => {
                self.source.insert(row.key.clone(), row);
                None
            }
        }
    }

    /// Adds a row of the target; returns that of the source with it if that is there.
    pub(super) fn of_target(&mut self, there: Row) -> Option<(Row, Row)> {
        match self.source.remove(&there.key) {
            Some(row) => Some((row, there)),
            None => {
                self.target.insert(there.key.clone(), there);
                None
            }
        }
    }

    /// Whether no more rows may wait.
    pub(super) fn is_full(&self) -> bool {
        self.source.len() >= MAX_WAITING || self.target.len() >= MAX_WAITING
    }

    /// Takes the rows that wait: those of the source and those of the target, in the order of keys.
    pub(super) fn take(&mut self) -> (Vec<Row>, Vec<Row>) {
        let sorted = |rows: &mut HashMap<Key, Row>| {
            let mut rows: Vec<Row> = std::mem::take(rows).into_values().collect();
            rows.sort_by(|a, b| a.key.cmp(&b.key));
            rows
        };
        (sorted(&mut self.source), sorted(&mut self.target))
    }
}
