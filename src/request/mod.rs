//! Head and body to a [`Request`]: what the caller wants, without a promise
//! that it is sensible; `plan` judges that.

pub mod allow;
pub mod batch;
pub mod format;
pub mod head;
pub mod operation;
pub mod options;
pub mod target;
pub mod verb;

pub use format::{Format, Prefer, Representation};
pub use head::{ApiVersion, Head};
pub use operation::{EntityWrite, Operation, Wanted};
pub use options::QueryOptions;
pub use target::{Resource, Target};

use crate::error::Result;

/// A request that was understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub wanted: Wanted,
    pub format: Format,
    pub prefer: Option<Prefer>,
}

/// Reads a request whose head has been authenticated.
///
/// # Errors
/// Whatever makes the request not understood; see the modules.
pub fn read(context: &operation::Context<'_>, target: &Target) -> Result<Request> {
    let operation::Context { head, options, .. } = context;
    let verb = verb::Verb::of(head)?;
    let format = Format::negotiate(head, options);
    let prefer = Prefer::of(head);
    let wanted = operation::read(context, verb, target)?;
    Ok(Request { wanted, format, prefer })
}
