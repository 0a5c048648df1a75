//! Black-box tests of the real binary over real HTTP on every backend, and
//! tests of what needs a database.
//!
//! `conformance` holds the rules of the protocol, `compatibility` makes the page that says what of it is proved, `replay` the recordings of
//! the real service and of clients, `failures` what clients are told when the database does
//! not do its part, `forwarded` what proxies say of their clients, `operators` what is asked and logged of a running server,
//! `process` and `commands` what an operator sees, `tls` encrypted connections, `traces` what a collector receives, `secondary` a read
//! replica, `reset` and `faults` what test suites ask of one, `testing` the server inside a test, `store` the contract of
//! the databases, `promises` what must hold whatever dies, `architecture` the direction of the imports. To judge another
//! server, name it in `ROWHOUSE_TEST_ENDPOINT`, `ROWHOUSE_TEST_ACCOUNT` and
//! `ROWHOUSE_TEST_KEY` and run
//! `cargo test --test suite --features external-tests external::`.

#[macro_use]
mod support;

mod architecture;
mod azurite;
mod commands;
mod compatibility;
mod conformance;
mod explain;
mod failures;
mod faults;
mod forwarded;
mod newest_first;
mod operators;
mod process;
mod promises;
mod replay;
mod reset;
mod secondary;
mod store;
mod testing;
mod tls;
mod tokens;
mod traces;
