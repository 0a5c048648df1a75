//! Writing entities: one, one for each of several requests, or a transaction.

pub(crate) mod load;
mod recorded;
pub(crate) mod row_queues;
pub(crate) mod shared;
pub(crate) mod single;
mod texts;
pub(crate) mod transaction;
