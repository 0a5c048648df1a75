//! The admin listener: probes, metrics and account administration, on a port of their own.
//!
//! A route is a line in [`routes`], a handler function, and its description in `openapi.json`; a
//! test compares routes and description. Errors are `{"error":{"code":…,"message":…}}`.

mod about;
mod accounts;
mod audit;
mod call;
mod cluster;
mod connections;
mod console;
mod deleted;
mod dispatch;
mod expiry;
mod faults;
mod guard;
mod history;
mod indexes;
mod listen;
mod reply;
mod reset;
pub(crate) mod routes;
mod state;
mod tables;

pub(crate) use console::history::record as record_history;
pub(crate) use guard::{AdminToken, Guard};
pub(crate) use listen::listen;
pub(crate) use state::{Admin, AdminSettings, ConsoleMode};
