//! What is stored beside entities: tables, accounts, policies and service properties.

mod size;
pub(crate) mod tables;
mod views;
