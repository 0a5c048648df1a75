//! What operators ask of a running server: a listener of its own, away from the
//! port that tables are served on.
//!
//! A route is a line in [`routes`] and a function in a file of its own, and has
//! its description in `openapi.json`; a test compares the two. Failures are
//! `{"error":{"code":…,"message":…}}`.

mod about;
mod accounts;
mod call;
mod connections;
mod figures;
mod guard;
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

/// What answering operators takes.
pub(crate) struct Admin {
    pub service: Arc<Service>,
    /// What an operator has to know, if anything.
    pub token: Option<AdminToken>,
    /// Whether test suites may reset and restore what is stored.
    pub test_mode: bool,
    stopping: AtomicBool,
}

impl Admin {
    /// For a server that serves.
    pub(crate) fn new(service: Arc<Service>, token: Option<AdminToken>, test_mode: bool) -> Self {
        Self { service, token, test_mode, stopping: AtomicBool::new(false) }
    }

    /// From now on the server is not ready: it finishes what it has begun.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether the server only finishes what it has begun.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
