//! Rowhouse: the Azure Table storage API on PostgreSQL or SQLite.
//!
//! ```text
//! HttpRequest --http--> Head + body --auth--> Identity --request--> Request --plan--> Plan --store--> Outcome --service (codec)--> Answer --http--> response
//!                                    errors from any stage leave through service::Answer::refusal
//! ```
//!
//! Everything that decides is a pure function over plain data. Only `http`, `admin`
//! and `app` know actix, only `store` knows databases; the time and the request id
//! are arguments. Who may import whom:
//! model, error, metrics, trace <- odata, codec <- request <- auth, plan <- store <- accounts <- service <- http
//! <- admin <- app, testing, cli.

pub mod accounts;
pub mod admin;
pub mod app;
pub mod auth;
pub mod cli;
pub mod codec;
pub mod config;
pub mod error;
pub mod http;
pub mod metrics;
pub mod model;
pub mod odata;
pub mod plan;
pub mod request;
pub mod service;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trace;
