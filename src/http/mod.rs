//! The service over HTTP: connections, encryption, and actix requests in, responses out.

mod busy_poll;
mod connection;
mod file;
mod forwarded;
mod http2;
mod listen;
mod pfx;
mod placeholder;
mod receive;
mod respond;
mod serve;
mod timeouts;
mod tls;
mod workarounds;

pub(crate) use file::read_text;
pub(crate) use forwarded::Proxies;
pub(crate) use listen::{bind, listen, reserve};
pub(crate) use pfx::Pfx;
pub(crate) use placeholder::{Placeholder, PlaceholderService};
pub(crate) use serve::Edge;
pub(crate) use tls::{Tls, TlsError, TlsFiles};
