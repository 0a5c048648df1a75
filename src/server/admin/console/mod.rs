//! The console: a page for browsers, and the routes that only the page and similar scripts need.
//!
//! The page contains no data and no secret, so anyone may load it. Everything that it displays comes from
//! routes that need the admin token. The page sends the token in a header; there is no cookie that a page of
//! a different site could exploit.

pub(super) mod assets;
pub(super) mod requests;
pub(super) mod sas;
pub(super) mod service;

use super::reply::Refusal;

pub(super) fn read_only() -> Refusal {
    Refusal::new(403, "ReadOnly", "The console of this server is read-only.")
}
