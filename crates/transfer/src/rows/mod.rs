//! Entities on their way, and which of them: ranges of keys, selections, types that files do not state.

pub(super) mod range;
pub(super) mod row;
pub(super) mod selection;
pub(super) mod type_inference;
