//! The keys of entities that the target does not accept, as they are now.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::contract::Rejected;
use crate::protocol::model::Key;

/// Maximum keys that are remembered. After more, no last round proves that the places are equal.
const MAX_KEYS: usize = 10_000;

/// A table, a PartitionKey and a RowKey.
type TableKey = (String, String, String);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct RefusedState {
    keys: BTreeSet<TableKey>,
    /// Whether there were more keys, or entities without keys.
    has_others: bool,
}

#[derive(Debug, Default)]
pub(super) struct RefusedKeys(Mutex<RefusedState>);

#[derive(Deserialize)]
struct EntityKeys {
    #[serde(rename = "PartitionKey")]
    partition: String,
    #[serde(rename = "RowKey")]
    row: String,
}

impl RefusedKeys {
    pub(super) const fn new(state: RefusedState) -> Self {
        Self(Mutex::new(state))
    }

    pub(super) fn state(&self) -> RefusedState {
        self.0.lock().clone()
    }

    pub(super) fn add(&self, table: &str, rejected: &Rejected) {
        let mut state = self.0.lock();
        match serde_json::from_str::<EntityKeys>(&rejected.entity) {
            Ok(EntityKeys { partition, row }) if state.keys.len() < MAX_KEYS => {
                state.keys.insert((table.to_owned(), partition, row));
            }
            _ => state.has_others = true,
        }
    }

    /// Removes an entity that the target has accepted or that the source has lost.
    pub(super) fn remove(&self, table: &str, key: &Key) {
        let mut state = self.0.lock();
        if !state.keys.is_empty() {
            state.keys.remove(&(table.to_owned(), key.partition.clone(), key.row.clone()));
        }
    }

    /// Removes all keys of tables that are not followed any more.
    pub(super) fn retain_tables(&self, is_followed: impl Fn(&str) -> bool) {
        self.0.lock().keys.retain(|(table, ..)| is_followed(table));
    }
}

impl RefusedState {
    /// Returns the number of refused entities, as far as they are known.
    pub(super) fn count(&self) -> u64 {
        self.keys.len() as u64 + u64::from(self.has_others)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = (&str, Key)> {
        self.keys
            .iter()
            .map(|(table, partition, row)| (table.as_str(), Key::new(partition.as_str(), row.as_str())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_entity_counts_until_it_is_accepted() {
        let rejected = |entity: &str| Rejected { entity: entity.into(), reason: "too large".into() };
        let refused = RefusedKeys::default();
        refused.add("People", &rejected(r#"{"PartitionKey":"p","RowKey":"r","A":1}"#));
        refused.add("People", &rejected(r#"{"PartitionKey":"p","RowKey":"r","A":2}"#));
        refused.add("Places", &rejected(r#"{"PartitionKey":"p","RowKey":"r"}"#));
        assert_eq!(refused.state().count(), 2);
        refused.remove("People", &Key::new("p", "r"));
        refused.retain_tables(|table| table != "Places");
        assert_eq!(refused.state().count(), 0);
        refused.add("People", &rejected("not JSON"));
        refused.remove("People", &Key::new("", ""));
        assert_eq!(refused.state().count(), 1);
    }
}
