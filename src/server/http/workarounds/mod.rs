//! Workarounds for missing features of actix. Each file describes its purpose, the behaviour of actix on
//! which it relies, and the feature of actix that would make the file unnecessary.
//!
//! | file | purpose | unnecessary once actix |
//! |---|---|---|
//! | `connection_info` | handlers that check whether TLS is in use | has a public constructor of `AppConfig` |
//! | `header_case` | header names in Azure's case, and the length of a 204 | writes both as they were set |
//! | `header_case` | a connection that ends without a response | lets a handler close the connection |
//! | `one_at_a_time` | pipelining, particularly without reading | decodes a request after answering the last |
//! | `peer_timeout` | clients that read nothing, or stop in a later head | has timeouts for writes and for each head |
//! | `unread_body` | a response before the end of a chunked body | closes a connection whose body is not read |

mod connection_info;
mod header_case;
mod one_at_a_time;
mod peer_timeout;
mod unread_body;

pub(super) use connection_info::app_config;
pub(crate) use header_case::announces_body;
pub(super) use header_case::{HeaderCase, LENGTH_OF_NOTHING};
pub(super) use one_at_a_time::OneAtATime;
pub(crate) use one_at_a_time::Turn;
pub(super) use peer_timeout::PeerTimeout;
pub(super) use unread_body::{close_after, closes_after_upgrade, is_endless};
