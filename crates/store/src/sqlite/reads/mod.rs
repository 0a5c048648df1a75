//! Reading pages of entities.

pub(crate) mod narrow;
mod ordered;
pub(crate) mod pages;
mod ranges;
