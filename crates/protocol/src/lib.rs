//! Interprets requests of the Table protocol, as pure functions over plain data: no I/O, no clock.

#![warn(unreachable_pub)]

pub mod auth;
pub mod codec;
pub mod error;
pub mod model;
pub mod odata;
pub mod plan;
pub mod request;
