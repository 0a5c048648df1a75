//! Workarounds for what actix does not offer. Each file says what it is for, which behaviour of actix
//! it relies on, and what actix would have to offer for the file to be deleted.
//!
//! | file | for | unnecessary once actix |
//! |---|---|---|
//! | `connection_info` | handlers that know whether a connection is encrypted | has a public constructor of `AppConfig` |
//! | `header_case` | header names in the service's case, and the length of a 204 | writes both as they were set |
//! | `header_case` | a connection that ends without an answer | lets a handler close the connection |
//! | `one_at_a_time` | clients that pipeline, in particular those that take no answers | decodes no request before the one before is answered |
//! | `peer_timeout` | clients that read nothing, or stop in the middle of a later head | has a write timeout, and one for each head |
//! | `unread_body` | an answer before the end of a chunked body | closes a connection whose body is not read |

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
