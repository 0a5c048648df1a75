//! Documents in place of entities.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::contract::Page;
use crate::error::{TransferError, TransferResult};

/// Documents of a range that may be no entities: each is kept as a text.
const MAX_NO_ENTITIES: usize = 1000;

/// How many documents of a range were no entities: such as have no keys.
#[derive(Debug, Default)]
pub(super) struct NoEntities(usize);

impl NoEntities {
    /// Counts those of a page.
    pub(super) fn check(&mut self, table: &str, page: &Page) -> TransferResult<()> {
        self.0 += page.rejected.iter().filter(|rejected| !has_keys(&rejected.entity)).count();
        if self.0 <= MAX_NO_ENTITIES {
            return Ok(());
        }
        let text = format!("{table}: more than {MAX_NO_ENTITIES} documents are no entities");
        Err(TransferError::Failed(text))
    }
}

/// Whether a text is an object with both keys.
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
