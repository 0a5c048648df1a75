//! Reading pages of entities.

pub(crate) mod narrow;
pub(crate) mod pages;
mod ranges;
