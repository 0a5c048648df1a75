//! Where data can be copied from or to: endpoints, databases, dumps and files.

pub(super) mod cosmos;
pub(super) mod database;
pub(super) mod dump;
pub(super) mod endpoint;
pub(super) mod location;
mod no_entities;
mod page_outcome;
