//! The protocol over HTTP: the pipeline, from bytes to bytes.

mod answer;
mod batch;
pub mod clock;
mod connection;
mod cors;
mod execute;
mod issuer;
mod listen;
mod observe;
mod permit;
mod print;
mod receive;
mod respond;
mod serve;
mod tls;
mod wire;

pub use answer::Answer;
pub use issuer::Issuer;
pub use listen::{bind, listen};
pub use serve::{Place, Service};
pub use tls::{Tls, TlsError, TlsFiles};
