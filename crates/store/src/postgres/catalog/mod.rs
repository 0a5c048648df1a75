//! Data besides entities: tables, accounts, policies and service properties.

pub(crate) mod tables;
mod views;
