//! The admin listener: probes, metrics and account administration, on a port of their own.
//!
//! A route is a line in [`routes`], a handler function, and its description in `openapi.json`; a
//! test compares routes and description. Errors are `{"error":{"code":…,"message":…}}`.

mod about;
mod accounts;
mod call;
mod connections;
mod figures;
mod guard;
mod indexes;
mod listen;
mod probes;
mod rewind;
pub(crate) mod routes;
mod tables;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use call::{Call, Refusal, Reply};
pub(crate) use guard::AdminToken;
pub(crate) use listen::listen;

use crate::service::Service;

/// The state of the admin listener.
pub(crate) struct Admin {
    pub service: Arc<Service>,
    /// The token that operators must send, if one is configured.
    pub token: Option<AdminToken>,
    /// Whether the routes for test suites exist, which reset and restore all data.
    pub test_mode: bool,
    stopping: AtomicBool,
}

impl Admin {
    /// The state for a running server.
    pub(crate) fn new(service: Arc<Service>, token: Option<AdminToken>, test_mode: bool) -> Self {
        Self { service, token, test_mode, stopping: AtomicBool::new(false) }
    }

    /// Makes the readiness probe fail from now on: the server is shutting down.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the server is shutting down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
