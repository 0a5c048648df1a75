//! What goes beyond the service, for operators: expiry, totals and SQL views. The wire stays exactly
//! the service's, and tables that use none of this are not affected.
//!
//! The command line and the admin listener call the same functions; [`upkeep::run`] does the work
//! in the background.

pub(crate) mod accounts;
pub(crate) mod durations;
mod error;
pub(crate) mod expiry;
pub(crate) mod indexes;
pub(crate) mod totals;
pub(crate) mod upkeep;
pub(crate) mod views;

pub(crate) use error::BeyondError;
