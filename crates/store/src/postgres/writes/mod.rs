//! Writing entities: one, one for each of several requests, or a transaction.

pub(crate) mod load;
pub(crate) mod single;
pub(crate) mod transaction;
