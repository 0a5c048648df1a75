//! Black-box tests of the real binary over real HTTP on every backend, and
//! tests of what needs a database.
//!
//! `conformance` holds the rules of the protocol, `replay` the recordings of
//! the real service, `failures` what clients are told when the database does
//! not do its part, `process` and `commands` what an operator sees, `secondary` a read
//! replica, `store` the contract of
//! the databases, `architecture` the direction of the imports. To judge another
//! server, name it in `ROWHOUSE_TEST_ENDPOINT`, `ROWHOUSE_TEST_ACCOUNT` and
//! `ROWHOUSE_TEST_KEY` and run
//! `cargo test --test suite --features external-tests external::`.

#[macro_use]
mod support;

mod architecture;
mod commands;
mod conformance;
mod failures;
mod process;
mod replay;
mod secondary;
mod store;
mod tokens;
