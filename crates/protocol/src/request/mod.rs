//! Parses a head and body into a [`Request`], which is syntactically valid. `plan` checks its meaning.

pub mod allowed_methods;
pub mod batch;
pub mod format;
pub mod head;
pub(crate) mod labels;
pub mod operation;
pub mod options;
pub mod target;
pub(crate) mod verb;

pub use format::{Format, Prefer, Representation};
pub use head::{ApiVersion, Head};
pub use labels::{OperationLabel, Scheme};
pub use operation::{EntityWrite, Operation};
pub use options::{OrderBy, OrderTerms, QueryOptions};
pub use target::{Resource, Target};

use crate::error::{Code, Result};
use batch::Batch;
use verb::Verb;

/// The purpose of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum RequestKind {
    One(Operation),
    Batch(Batch),
}

impl RequestKind {
    /// Returns the name that metrics, logs and traces use.
    pub const fn label(&self) -> OperationLabel {
        match self {
            RequestKind::One(operation) => operation.label(),
            RequestKind::Batch(Batch::ChangeSet { .. }) => OperationLabel::EntityGroupTransaction,
            RequestKind::Batch(Batch::Query(_)) => OperationLabel::QueryBatch,
        }
    }
}

/// A parsed request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub wanted: RequestKind,
    pub format: Format,
    pub prefer: Option<Prefer>,
}

/// Parses a request whose head has been authenticated.
///
/// # Errors
/// Those of the parsers in the modules below.
pub fn read(context: &operation::Context<'_>, target: &Target) -> Result<Request> {
    let operation::Context { head, options, .. } = context;
    let verb = Verb::of(head)?;
    let format = Format::negotiate(head, options);
    let prefer = Prefer::of(head);
    let wanted = wanted(context, verb, target)?;
    Ok(Request { wanted, format, prefer })
}

/// Parses the operation.
fn wanted(context: &operation::Context<'_>, verb: Verb, target: &Target) -> Result<RequestKind> {
    if verb == Verb::Options {
        return Err(Code::NotImplemented.into());
    }
    if verb == Verb::Post && takes_document(context, &target.resource) {
        require_content_type(context.head)?;
    }
    match (&target.resource, verb) {
        (Resource::Batch, Verb::Post) => batch::read(context, target).map(RequestKind::Batch),
        (resource, verb) => operation::on_resource(context, verb, resource).map(RequestKind::One),
    }
}

/// Returns whether a POST to a resource has a body of the table layer.
fn takes_document(context: &operation::Context<'_>, resource: &Resource) -> bool {
    match resource {
        Resource::Batch | Resource::Tables => true,
        Resource::EntitySet(_) => context.options.any_case("comp").is_none(),
        _ => false,
    }
}

/// Requires a POST to state the type of its body, as seen in Azure. Parts of a batch, and other verbs, need not.
fn require_content_type(head: &Head) -> Result<()> {
    let is_named = head.header("content-type").is_some_and(|name| !name.trim().is_empty());
    if is_named { Ok(()) } else { Err(Code::ContentTypeMissing.into()) }
}
