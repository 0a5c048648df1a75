//! Rowhouse: the Azure Table storage API on PostgreSQL or SQLite.
//!
//! ```text
//! HttpRequest --http--> Head + body --auth--> Identity --request--> Request --plan--> Plan --store--> Outcome --service (codec)--> Answer --http--> response
//!                                    errors from any stage leave through service::Answer::refusal
//! ```
//!
//! All decisions are pure functions over plain data. Only `http`, `admin` and `app` use actix, only
//! `store` accesses databases; the time and the request id are arguments. Dependencies between the
//! modules (each may use those to its left): model, error, metrics, trace <- odata, codec <-
//! request <- auth, plan, client <- store <- indexes <- accounts <- service <- http <- admin <- config <- app
//! <- transfer, testing <- cli.

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
