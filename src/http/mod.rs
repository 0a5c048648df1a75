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

pub use file::read_text;
pub use forwarded::Proxies;
pub use listen::{bind, listen, reserve};
pub use pfx::Pfx;
pub use serve::Edge;
pub use stub::{Absent, StandIn};
pub use tls::{Tls, TlsError, TlsFiles};
