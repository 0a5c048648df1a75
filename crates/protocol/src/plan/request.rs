//! Parses a request and plans its operation, or the parts of its batch.

use super::batch::{self, Batch};
use super::operation::{Context, Operation, on_resource};
use crate::error::{Code, Result};
use crate::request::{Format, Head, OperationLabel, Prefer, Resource, Target, Verb};

/// The purpose of a request.
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
    pub wanted: RequestKind,
    pub format: Format,
    pub prefer: Option<Prefer>,
}

/// Parses a request whose head has been authenticated.
///
/// # Errors
/// The error of a request that is malformed. Those of a plan are in its operation.
pub fn read(context: &Context<'_>, target: &Target) -> Result<Request> {
    let Context { head, options, .. } = context;
    let verb = Verb::of(head)?;
    let format = Format::negotiate(head, options);
    let prefer = Prefer::of(head);
    let wanted = wanted(context, verb, target)?;
    Ok(Request { wanted, format, prefer })
}

/// Parses the operation.
pub(super) fn wanted(context: &Context<'_>, verb: Verb, target: &Target) -> Result<RequestKind> {
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

/// Returns whether a POST to a resource has a body of the table layer.
fn takes_document(context: &Context<'_>, resource: &Resource) -> bool {
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
