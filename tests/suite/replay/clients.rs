//! Replays what .NET clients sent to this server, session by session, each into an
//! account of its own. It guards the form in which those clients frame requests, as
//! they cannot run where the tests do.
//!
//! The recorded answers are of this server, corrected where a recording of the service differs: what is compared is
//! what they are evidence for, statuses, error codes, the presence of ETags, `Preference-Applied`, and the names, types
//! and values of properties.

use super::recording::{Exchange, OF_CLIENTS, recordings_of};
use super::session::Session;
use super::{Player, assert_alike, replay};
use crate::support::Client;
use crate::support::server::Backend;

const FILE: &str = "clients-net.jsonl";

/// A client of one program.
struct Replay(Session);

impl Player for Replay {
    fn new(client: Client) -> Self {
        Self(Session::new(client))
    }

    fn step(&mut self, exchange: &Exchange) -> Vec<String> {
        let answer = self.0.send(exchange, None);
        let differences = self.0.differences(&OF_CLIENTS, exchange, &answer);
        self.0.learn_from(exchange, &answer);
        differences
    }
}

fn dotnet_clients_are_answered_as_before(backend: Backend) {
    assert_eq!(recordings_of(FILE).len(), 1316, "an exchange is missing");
    assert_alike(&replay::<Replay>(backend, FILE));
}

replays!(dotnet_clients_are_answered_as_before);
