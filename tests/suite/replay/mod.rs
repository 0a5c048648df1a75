//! Replays of recorded sessions, each into an account of its own: `recorded` what the tests of the SDK for Python were
//! answered by the real service, `service` whole sessions of the service with other SDKs, `clients` what .NET clients
//! sent to this server.

mod clients;
mod prepare;
mod recorded;
mod recording;
mod service;
mod session;

use std::collections::HashMap;

pub use recorded::names;
use recording::{Exchange, recordings_of};

use crate::support::Client;
use crate::support::server::Backend;

/// A recorded session under way.
trait Player {
    /// Nothing has been replayed yet.
    fn new(client: Client) -> Self;

    /// Sends a request as it was recorded, and returns how its answer differs.
    fn step(&mut self, exchange: &Exchange) -> Vec<String>;
}

/// Replays all sessions of a file; returns what differs, by the numbers of lines.
fn replay<P: Player>(backend: Backend, file: &str) -> Vec<(usize, String)> {
    let mut sessions: HashMap<String, P> = HashMap::new();
    let mut found = Vec::new();
    for (line, exchange) in (1..).zip(recordings_of(file)) {
        let session = sessions.entry(exchange.test.clone()).or_insert_with(|| P::new(backend.client()));
        let Exchange { test, n, request, .. } = &exchange;
        let what = format!("{file} {line}: {test} {n}: {} {}", request.method, exchange.path());
        found.extend(session.step(&exchange).into_iter().map(|found| (line, format!("{what}: {found}"))));
    }
    found
}

#[track_caller]
fn assert_alike(found: &[(usize, String)]) {
    let found: Vec<_> = found.iter().map(|(_, difference)| difference.as_str()).collect();
    assert!(found.is_empty(), "{} differences\n{}", found.len(), found.join("\n"));
}
