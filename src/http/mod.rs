//! The service over HTTP: connections, encryption, and actix requests in, responses out.

mod busy_poll;
mod connection;
mod file;
mod forwarded;
mod http2;
mod listen;
mod patience;
mod pfx;
mod receive;
mod respond;
mod serve;
mod stub;
mod timeouts;
mod tls;
mod wire;

pub(crate) use file::read_text;
pub(crate) use forwarded::Proxies;
pub(crate) use listen::{bind, listen, reserve};
pub(crate) use pfx::Pfx;
pub(crate) use serve::Edge;
pub(crate) use stub::{Absent, StandIn};
pub(crate) use tls::{Tls, TlsError, TlsFiles};
