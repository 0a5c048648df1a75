//! Reads the head of a request: its target, verb, options and formats. `plan` determines its operation.

pub mod format;
pub mod head;
pub(crate) mod labels;
pub mod options;
pub mod target;

pub use format::{Format, Prefer, Representation};
pub(crate) use head::Verb;
pub use head::{ApiVersion, Head};
pub use labels::{OperationLabel, Scheme};
pub use options::{OrderBy, OrderTerms, QueryOptions};
pub use target::{Resource, Target};
