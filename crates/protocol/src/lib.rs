//! Interprets requests of the Table protocol, as pure functions over plain data: no I/O, no clock.

#![warn(unreachable_pub)]
#![allow(rustdoc::private_intra_doc_links, reason = "developers of this repository read the documentation")]

pub mod auth;
pub mod codec;
pub mod error;
pub mod model;
pub mod odata;
pub mod plan;
pub mod request;
