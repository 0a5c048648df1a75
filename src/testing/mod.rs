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

mod account;
mod builder;
mod faults;
mod image;
mod server;

pub use crate::service::FaultRule;
pub use account::Account;
pub use builder::Builder;
pub use faults::FaultCount;
pub use image::Image;
pub use server::{Server, ServerError, Snapshot};
