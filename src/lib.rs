//! Rowhouse: the Azure Table storage API on PostgreSQL or SQLite.
//!
//! - `http`: connections in, answers out; `service`: the pipeline between, a file for each operation
//! - `request`, `auth`, `plan`: what is asked, by whom, and what it means: pure functions
//! - `model`, `odata`, `codec`: types and names, `$filter`, JSON, Atom and multipart
//! - `store`: where entities are, in PostgreSQL and SQLite
//! - `accounts`, `indexes`, `beyond`: what operators ask for, through `admin` and `cli`
//! - `client`, `transfer`: copies between endpoints, databases and dumps
//! - `app`, `config`, `metrics`, `trace`, `testing`: startup, settings, what is seen from outside, tests
//!
//! `docs/architecture.md` has the way of a request, what may import what, and where a change goes.

#![warn(missing_docs, unreachable_pub)]

mod accounts;
mod admin;
mod app;
mod beyond;
pub mod cli;
mod client;
mod config;
mod http;
mod indexes;
mod metrics;
mod service;
#[cfg(feature = "testing")]
pub mod testing;
mod trace;
mod transfer;

// Public only for the tests, benches and fuzz targets of this repository: not a stable interface.
#[doc(hidden)]
pub mod auth;
#[doc(hidden)]
pub mod codec;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod model;
#[doc(hidden)]
pub mod odata;
#[doc(hidden)]
pub mod plan;
#[doc(hidden)]
pub mod request;
#[doc(hidden)]
pub mod store;
