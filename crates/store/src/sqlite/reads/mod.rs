//! Reading entities: one by its key, or pages of them.

pub(crate) mod narrow;
mod ordered;
pub(crate) mod pages;
pub(crate) mod point;
mod ranges;
