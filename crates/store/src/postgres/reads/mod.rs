//! Reading entities: one by its key, or pages of them.

pub(crate) mod binds;
pub(crate) mod filter;
mod narrow;
pub(crate) mod pages;
pub(crate) mod point;
mod sources;
pub(crate) mod turn;
