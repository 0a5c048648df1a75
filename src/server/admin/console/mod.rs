//! The console: a page for browsers, and the routes that only it and scripts like it need.
//!
//! The page holds no data and no secret, so anyone may load it. Everything that it shows comes from
//! routes that need the admin token, which the page sends in a header: there is no cookie that a
//! page of another site could use.

pub(super) mod assets;
pub(super) mod explain;
pub(super) mod history;
pub(super) mod requests;
pub(super) mod sas;
pub(super) mod service;
pub(super) mod session;

use super::reply::Refusal;

/// The refusal of a change while the console is read-only.
pub(super) fn read_only() -> Refusal {
    Refusal::new(403, "ReadOnly", "The console of this server is read-only.")
}
