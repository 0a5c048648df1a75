//! The protocol over HTTP: the pipeline, from bytes to bytes.

mod answer;
mod batch;
pub mod clock;
mod execute;
mod print;
mod serve;

pub use answer::Answer;
pub use serve::{Service, serve};
