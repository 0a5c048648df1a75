//! Lets handlers find out whether a connection is encrypted.
//!
//! `HttpRequest::app_config` has this information, but only `HttpServer` can set it. This program does not
//! use `HttpServer`, which cannot wrap connections (see [`listen`](super::super::listen)). The only
//! constructor of `AppConfig` that takes it is public, but hidden in the documentation.
//!
//! This file becomes unnecessary once `AppConfig` has a documented constructor, or `HttpServer` accepts a
//! function that wraps connections.

use std::net::SocketAddr;

use actix_web::dev::AppConfig;

/// Returns the configuration of an app that serves a socket at this address.
pub(crate) fn app_config(is_encrypted: bool, address: SocketAddr) -> AppConfig {
    AppConfig::__priv_test_new(is_encrypted, address.to_string(), address)
}
