//! Writing entities: one, several of many requests at once, or a group in a transaction.

pub(crate) mod load;
pub(crate) mod row_queues;
pub(crate) mod shared;
pub(crate) mod single;
pub(crate) mod transaction;
