//! Sockets, settings and startup.

pub(crate) mod admin;
pub(crate) mod config;
pub(crate) mod file;
pub(crate) mod http;
pub(crate) mod start;
