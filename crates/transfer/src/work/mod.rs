//! Work that several threads share, and its progress.

pub(super) mod at_once;
pub(super) mod progress;
#[cfg(test)]
pub(super) mod sorted_source;
pub(super) mod split;
pub(super) mod work_queue;
