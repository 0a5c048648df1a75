//! Operations of several requests in one statement.

pub(crate) mod lane;
pub(crate) mod reads;
pub(crate) mod writes;
