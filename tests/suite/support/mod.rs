//! What tests share.

pub mod postgres;
