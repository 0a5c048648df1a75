//! A client of the Table service: any server that speaks its protocol, not only ours.
//!
//! Calls block their thread. Failures that pass are retried with back-off, and the number of
//! requests in flight adapts to what the server allows.

mod address;
mod answer;
mod call;
mod change_set;
pub(crate) mod connection;
mod gate;
mod send;

pub(crate) use address::{Address, AddressError};
pub(crate) use answer::{ClientAnswer, ServiceError};
pub(crate) use call::ClientCall;
pub(crate) use change_set::{ChangeSetBody, MAX_BODY, MAX_OPERATIONS, SetVerb};
pub(crate) use send::{Client, ClientError};
