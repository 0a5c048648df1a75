//! What people see of a running process: metrics and traces.

#![warn(unreachable_pub)]

pub mod metrics;
pub mod trace;
