//! Rowhouse: the Azure Table storage API on PostgreSQL or SQLite.

pub mod codec;
pub mod error;
pub mod model;
pub mod plan;
pub mod store;
