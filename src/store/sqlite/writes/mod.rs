//! Writing entities: the thread that writes, and what it does for a request.

pub(crate) mod load;
pub(crate) mod thread;
pub(crate) mod transaction;
