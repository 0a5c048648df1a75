//! The protocol over HTTP: the pipeline, from bytes to bytes.

mod answer;
#[cfg(target_os = "linux")]
mod apart;
mod batch;
pub mod clock;
mod connection;
mod cors;
mod execute;
mod explain;
mod file;
mod forwarded;
mod issuer;
mod limits;
mod linger;
mod listen;
mod observe;
mod patience;
mod permit;
mod pfx;
mod print;
mod receive;
mod respond;
mod rewind;
mod serve;
mod stub;
mod throttle;
mod tls;
mod wire;

pub use answer::Answer;
pub use explain::EXPLANATIONS;
pub use file::read_text;
pub use forwarded::Proxies;
pub use issuer::Issuer;
pub use limits::{BodyMemory, Limits};
pub use listen::{bind, listen, reserve};
pub use pfx::Pfx;
pub use serve::{Place, Service};
pub use stub::Absent;
pub use throttle::Throttle;
pub use tls::{Tls, TlsError, TlsFiles};
