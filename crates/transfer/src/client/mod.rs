//! A client for any server that speaks the protocol of the Table service.
//!
//! Calls block their thread. Transient failures are retried with back-off, and the number of
//! requests in flight adapts to what the server allows.

mod address;
mod answer;
mod call;
mod change_set;
pub mod connection;
mod gate;
mod send;

pub(crate) use address::Address;
pub(crate) use answer::{ClientAnswer, ServiceError};
pub(crate) use call::ClientCall;
pub(crate) use change_set::{ChangeSetBody, MAX_BODY, MAX_OPERATIONS, SetVerb};
pub(crate) use send::{Client, MAX_ANSWER};
