//! What is stored beside entities: tables, accounts, policies and service properties.

pub(crate) mod tables;
mod views;
