//! Parses a request and plans its operation, or the parts of its batch.

use super::batch::{self, Batch};
use super::operation::{Context, Operation, on_resource};
use crate::error::{Code, Result};
use crate::request::{Format, Head, OperationLabel, Prefer, Resource, Target, Verb};

/// The operation of a request, or its batch of operations.
#[derive(Debug, Clone)]
pub enum RequestKind {
    One(Operation),
    Batch(Batch),
}

impl RequestKind {
    /// Returns the name that metrics, logs and traces use.
    pub const fn label(&self) -> OperationLabel {
        match self {
            RequestKind::One(operation) => operation.label,
            RequestKind::Batch(Batch::ChangeSet { .. }) => OperationLabel::EntityGroupTransaction,
            RequestKind::Batch(Batch::Query(_)) => OperationLabel::QueryBatch,
        }
    }
}

/// A parsed request.
#[derive(Debug, Clone)]
pub struct Request {
    pub kind: RequestKind,
    pub format: Format,
    pub prefer: Option<Prefer>,
}

/// Parses a request whose head has been authenticated.
///
/// # Errors
/// The error of a malformed request. An error in the plan of an operation is in [`Operation::plan`].
pub fn read(context: &Context<'_>, target: &Target) -> Result<Request> {
    let Context { head, options, .. } = context;
    let verb = Verb::of(head)?;
    let format = Format::negotiate(head, options);
    let prefer = Prefer::of(head);
    Ok(Request { kind: read_kind(context, verb, target)?, format, prefer })
}

pub(super) fn read_kind(context: &Context<'_>, verb: Verb, target: &Target) -> Result<RequestKind> {
    if verb == Verb::Options {
        return Err(Code::NotImplemented.into());
    }
    if verb == Verb::Post && takes_document(context, &target.resource) {
        require_content_type(context.head)?;
    }
    match (&target.resource, verb) {
        (Resource::Batch, Verb::Post) => batch::read(context, target).map(RequestKind::Batch),
        (resource, verb) => on_resource(context, verb, resource).map(RequestKind::One),
    }
}

/// Returns whether a POST to a resource has a JSON, Atom or multipart body.
fn takes_document(context: &Context<'_>, resource: &Resource) -> bool {
    match resource {
        Resource::Batch | Resource::Tables => true,
        Resource::EntitySet(_) => context.options.any_case("comp").is_none(),
        _ => false,
    }
}

/// Requires a POST to have a Content-Type, as seen in Azure. Other verbs and the parts of a batch need none.
fn require_content_type(head: &Head) -> Result<()> {
    let has_type = head.header("content-type").is_some_and(|name| !name.trim().is_empty());
    if has_type { Ok(()) } else { Err(Code::ContentTypeMissing.into()) }
}
