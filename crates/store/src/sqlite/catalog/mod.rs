//! What is stored beside entities: tables, accounts, policies and service properties.

pub(crate) mod entries;
pub(crate) mod tables;
pub(crate) mod views;
