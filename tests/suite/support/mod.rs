//! What tests stand on: servers, databases, a raw HTTP client, a signing client.

pub mod answer;
pub mod atom;
pub mod batch;
pub mod citus;
pub mod client;
pub mod clock;
pub mod encode;
pub mod http;
pub mod nodes;
pub mod ports;
pub mod postgres;
pub mod proxy;
pub mod refusals;
pub mod sas;
pub mod scripted;
pub mod server;
pub mod shell;
pub mod sign;
pub mod store;
pub mod table;
pub mod wait;

pub use answer::{Answer, timestamp_of};
pub use batch::{Batch, BatchAnswer};
pub use client::{Auth, Client, fresh_name};
pub use encode::{escape, printed_entity_path};
pub use refusals::*;
pub use sas::Sas;
pub use table::{Table, custom, keys_of, keys_shown, next_page, row_keys, rows, with_keys};
pub use wait::{pace, pace_async, until, until_after, until_async, until_some, work_for};

/// Stamps cases, functions that take a client, into a test for each backend.
macro_rules! cases {
    ($($case:ident),* $(,)?) => {
        stamp!(sqlite, Sqlite, [$($case)*]);
        stamp!(postgres, Postgres, [$($case)*]);
        stamp!(partitioned, Partitioned, [$($case)*]);
        #[cfg(feature = "external-tests")]
        stamp!(external, External, [$($case)*]);
    };
}

/// The tests of one backend.
macro_rules! stamp {
    ($module:ident, $backend:ident, [$($case:ident)*]) => {
        mod $module {
            $(stamp!(@ $backend, $case);)*
        }
    };
    (@ $backend:ident, $case:ident) => {
        #[test]
        fn $case() {
            super::$case(&$crate::support::server::Backend::$backend.client());
        }
    };
}

/// Stamps a replay, a function that takes a backend, into a test for each of ours.
macro_rules! replays {
    ($case:ident) => {
        replays!(@ sqlite, Sqlite, $case);
        replays!(@ postgres, Postgres, $case);
        replays!(@ partitioned, Partitioned, $case);
    };
    (@ $module:ident, $backend:ident, $case:ident) => {
        mod $module {
            #[test]
            fn $case() {
                super::$case($crate::support::server::Backend::$backend);
            }
        }
    };
}
