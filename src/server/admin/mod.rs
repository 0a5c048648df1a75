//! The admin listener: probes, metrics and account administration, on a separate port.
//!
//! A route is an entry in [`routes`] with a description and a handler function. [`openapi`] generates the
//! OpenAPI document from the routes. Errors are `{"error":{"code":…,"message":…}}`.

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
mod openapi;
mod reply;
mod reset;
mod route;
pub(crate) mod routes;
mod state;
mod tables;

pub(crate) use console::history::record as record_history;
pub(crate) use guard::{AdminToken, Guard};
pub(crate) use listen::listen;
pub(crate) use state::{Admin, AdminSettings, ConsoleMode};
