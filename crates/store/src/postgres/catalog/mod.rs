//! What is stored beside entities: tables, accounts, policies and service properties.

pub(crate) mod accounts;
mod deleted;
pub(crate) mod indexes;
mod size;
pub(crate) mod tables;
mod views;
