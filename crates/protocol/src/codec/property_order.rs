//! The order in which the properties of a stored entity are printed.

use super::stored::{self, StoredField};
use crate::error::Result;
use crate::model::entity::PropertyOrder;
use crate::model::names::ordinal;

/// Returns the properties of a stored object in the order in which they are printed.
pub fn fields(stored: &str, order: PropertyOrder) -> Result<Vec<StoredField<'_>>> {
    let mut fields = stored::fields(stored)?;
    if order == PropertyOrder::Ordinal {
        fields.sort_unstable_by(|a, b| ordinal(&a.name, &b.name));
    }
    Ok(fields)
}
