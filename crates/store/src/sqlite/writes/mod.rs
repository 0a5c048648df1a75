//! Writing entities: the writer thread, and the writes of a request.

pub(crate) mod load;
pub(crate) mod transaction;
