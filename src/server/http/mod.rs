//! Serves requests over HTTP: connections, encryption, and the conversion of actix requests and responses.

mod busy_poll;
mod certificate;
mod connection;
mod forwarded;
mod listen;
mod receive;
mod respond;
mod serve;
mod timeouts;
mod tls;
mod workarounds;

pub(crate) use certificate::ValidityProblem;
pub(crate) use forwarded::Proxies;
pub(crate) use listen::{Listening, accept, bind, listen, reachable, reserve};
pub(crate) use receive::{Incoming, head_of};
pub(crate) use respond::respond;
pub(crate) use serve::{Edge, configure};
pub(crate) use tls::{Tls, TlsError, TlsFiles};
pub(crate) use workarounds::{Turn, announces_body};
