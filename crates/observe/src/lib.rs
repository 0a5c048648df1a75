//! The metrics and traces of a running process.

#![warn(unreachable_pub)]
#![allow(rustdoc::private_intra_doc_links, reason = "developers of this repository read the documentation")]

pub mod metrics;
pub mod trace;
