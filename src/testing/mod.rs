//! Rowhouse inside a test's process (feature `testing`).
//!
//! A [`Server`] listens on a free port of the loopback address, keeps its tables in memory, and
//! stops when it is dropped. Starting one takes a few milliseconds, so each test can have its own:
//!
//! ```
//! use rowhouse::testing::Server;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::start()?;
//! // For any client of Azure Tables, in this process or another:
//! let text = server.connection_string();
//! assert!(text.starts_with("DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey="));
//! assert!(text.ends_with(&format!(";TableEndpoint={};", server.endpoint())));
//!
//! let seeded = server.snapshot()?;
//! // … a test that changes what is stored …
//! server.restore(&seeded)?;
//! server.reset()?;
//! # Ok(())
//! # }
//! ```
//!
//! Servers have threads of their own and need no runtime: they can be started in `#[test]`,
//! `#[tokio::test]` and `#[actix_web::test]`, many at a time. They handle no signals and install no
//! logger; their messages go to the `tracing` subscriber of the process, if it has one. Metrics are
//! the sum over all servers.
//!
//! A test orders errors, delays, lost answers and short pages with [`Server::set_faults`].
//!
//! Several tests can share one server if each has an account to itself:
//!
//! ```
//! use rowhouse::testing::{Account, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let [orders, people] = ["orders", "people"].map(Account::new);
//! let server = Server::builder().account(orders.clone()).account(people).start()?;
//! assert!(server.connection_string_of(&orders).contains("AccountName=orders;"));
//! let before = server.snapshot_account(&orders.name)?;
//! server.restore(&before)?;
//! # Ok(())
//! # }
//! ```

mod builder;
mod image;
mod server;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha512};

pub use crate::service::FaultRule;
pub use builder::Builder;
pub use image::Image;
pub use server::{FaultCount, Server, ServerError, Snapshot};

use crate::protocol::auth::accounts::{DEVELOPMENT_ACCOUNT, DEVELOPMENT_KEY};

/// An account of a test server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// 3 to 24 lower-case letters and digits.
    pub name: String,
    /// In base64.
    pub key: String,
}

impl Account {
    /// Makes an account with a key that is derived from the name. The key is always the same, and
    /// not secret.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        let key = STANDARD.encode(Sha512::digest(format!("test key of {name}")));
        Self { name, key }
    }

    /// Returns the development account, which client libraries use for
    /// `UseDevelopmentStorage=true`, with port 10002.
    pub fn development() -> Self {
        Self { name: DEVELOPMENT_ACCOUNT.into(), key: DEVELOPMENT_KEY.into() }
    }

    /// Formats the accounts for the `--accounts` setting.
    fn setting(accounts: &[Account]) -> String {
        let each = accounts.iter().map(|account| format!("{}:{}", account.name, account.key));
        each.collect::<Vec<_>>().join(";")
    }
}
