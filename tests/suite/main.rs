//! One binary for every test that needs a database.

mod store;
mod support;
