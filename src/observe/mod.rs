//! What people see of a running process: metrics and traces.

pub(crate) mod metrics;
pub(crate) mod trace;
