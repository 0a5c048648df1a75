//! Operations of several requests in one statement.

pub(crate) mod reads;
pub(crate) mod texts;
pub(crate) mod writes;
