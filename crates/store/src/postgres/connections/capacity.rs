//! How many connections a server opens, and how many the database allows.

use std::fmt;

use sqlx::{PgConnection, Row};

use crate::postgres::connections::options::PgOptions;
use crate::postgres::statements;

/// Connections besides those of requests: one for readiness probes, one that cancels statements, one that builds or
/// removes indexes, and briefly one that checks whether the database still answers and one that looks what a build
/// waits for.
const BESIDES: u32 = 5;
/// Lanes of each thread: one for point reads, one for single writes.
const LANES: u32 = 2;

impl PgOptions {
    /// Returns the maximum number of connections that a server with this many threads opens.
    pub fn most_connections(&self, threads: u32) -> u32 {
        let lanes = if self.coalesce { LANES.saturating_mul(threads) } else { 0 };
        self.max_connections.saturating_add(lanes).saturating_add(BESIDES)
    }
}

/// The connections that a server may open, compared with those that its database allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionDemand {
    /// Maximum connections of one server.
    pub most: u32,
    /// Maximum connections of all servers together.
    pub allowed: u32,
}

impl ConnectionDemand {
    /// What to do if there are too few for one server.
    pub const ADVICE: &str = "lower --max-connections or --workers, or raise max_connections of PostgreSQL, or \
                              the limit of the role or the database";

    /// Whether there are enough for one server.
    pub const fn fits(self) -> bool {
        self.most <= self.allowed
    }
}

impl fmt::Display for ConnectionDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { most, allowed } = self;
        write!(f, "a server opens up to {most} connections, and the database allows {allowed}, ")?;
        match allowed / (*most).max(1) {
            0 => f.write_str("too few for one server"),
            1 => f.write_str("enough for 1 server"),
            servers => write!(f, "enough for {servers} servers"),
        }
    }
}

/// Returns how many connections the database allows this role, including those in use.
pub(crate) async fn allowed_connections(db: &mut PgConnection) -> Result<u32, sqlx::Error> {
    sqlx::query(statements::ALLOWED_CONNECTIONS).fetch_one(db).await?.try_get("allowed").map(connections_of)
}

pub(crate) fn connections_of(allowed: i32) -> u32 {
    u32::try_from(allowed).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_and_probes_count() {
        let options = PgOptions::new("postgres://h/d");
        assert_eq!(options.most_connections(2), 32 + 4 + 5);
        let text = |allowed| ConnectionDemand { most: 40, allowed }.to_string();
        assert!(text(97).ends_with("enough for 2 servers") && text(40).ends_with("enough for 1 server"));
        assert!(text(39).ends_with("too few for one server"));
        assert_eq!(PgOptions { coalesce: false, ..options }.most_connections(2), 32 + 5);
    }
}
