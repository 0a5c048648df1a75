//! Entity group transactions and query batches as sent (protocol §8.1, §8.2).

use std::borrow::Cow;

use super::format::{Format, Prefer};
use super::head::Head;
use super::operation::{self, Context, EntityWrite, Operation, may_have_order};
use super::options::Options;
use super::target::{self, Resource, Target};
use super::verb::Verb;
use crate::error::{Code, Error, Result};
use crate::protocol::codec::multipart::{self, InnerRequest, Part, PartHeaders};
use crate::protocol::model::TableName;

/// Maximum operations of a change set.
pub const MAX_OPERATIONS: usize = 100;

/// A batch: one change set, or one query.
#[derive(Debug, Clone, PartialEq)]
pub enum Batch {
    ChangeSet {
        /// The operations in order, up to the first that was not understood.
        parts: Vec<BatchPart<EntityWrite>>,
        /// Why the part after those was not understood.
        failure: Option<FailedPart>,
    },
    Query(Box<Result<BatchPart<Operation>, FailedPart>>),
}

impl Batch {
    /// The table: that of the first operation, as all must have the same.
    pub(crate) fn table(&self) -> Option<&str> {
        match self {
            Batch::ChangeSet { parts, .. } => parts.first().map(|part| part.wanted.table.as_str()),
            Batch::Query(part) => match &**part {
                Ok(BatchPart { wanted: Operation::QueryEntities { table, .. }, .. })
                | Ok(BatchPart { wanted: Operation::GetEntity { table, .. }, .. }) => Some(table),
                _ => None,
            },
        }
    }
}

/// How the answer to a part is printed.
#[derive(Debug, Clone, PartialEq)]
pub struct Printing {
    pub format: Format,
    pub prefer: Option<Prefer>,
    /// From the nested HTTP headers, which are echoed; not from the MIME headers, which are not.
    pub content_id: Option<String>,
}

/// A part of a batch: a write in a change set, a query outside.
#[derive(Debug, Clone, PartialEq)]
pub struct BatchPart<T> {
    pub wanted: T,
    pub printing: Printing,
}

/// A part that was not understood.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedPart {
    /// Carries the index of the part.
    pub error: Error,
    pub printing: Printing,
}

/// Reads a batch.
///
/// # Errors
/// Those that concern the batch as a whole: [`Code::MediaTypeNotSupported`] for
/// what is no multipart body, [`Code::InvalidInput`] for one that is neither a
/// single change set nor a single query.
pub fn read(context: &Context<'_>, outer: &Target) -> Result<Batch> {
    let content_type = context.head.header("content-type").unwrap_or_default();
    let boundary = multipart::boundary(content_type).ok_or(Code::MediaTypeNotSupported)?;
    let parts = multipart::parts(context.body, boundary)?;
    let [only] = parts.as_slice() else { return Err(Code::InvalidInput.into()) };
    match header(&only.headers, "content-type").and_then(multipart::boundary) {
        Some(boundary) => change_set(context, outer, &multipart::parts(only.content, boundary)?),
        None => query(context, outer, only),
    }
}

fn query(context: &Context<'_>, outer: &Target, part: &Part<'_>) -> Result<Batch> {
    let request = multipart::request(part.content)?;
    if request.method != "GET" {
        return Err(Code::InvalidInput.into());
    }
    let formats = &mut Formats::default();
    Ok(Batch::Query(Box::new(read_part(context, outer, &request, 0, formats, only_query))))
}

fn change_set(context: &Context<'_>, outer: &Target, parts: &[Part<'_>]) -> Result<Batch> {
    let mut understood = Vec::with_capacity(parts.len());
    let mut formats = Formats::default();
    for (index, part) in parts.iter().take(MAX_OPERATIONS).enumerate() {
        if part.is_empty() {
            let failure = Some(empty_part(context.head));
            return Ok(Batch::ChangeSet { parts: understood, failure });
        }
        let request = multipart::request(part.content).map_err(|e| e.at(index))?;
        match read_part(context, outer, &request, index, &mut formats, only_write) {
            Ok(part) => understood.push(part),
            Err(failed) => return Ok(Batch::ChangeSet { parts: understood, failure: Some(failed) }),
        }
    }
    let failure = (parts.len() > MAX_OPERATIONS).then(|| FailedPart {
        error: Error::from(Code::TooManyBatchOperations).at(MAX_OPERATIONS - 1),
        printing: understood.last().map_or_else(
            || Printing { format: format_of(context.head, false), prefer: None, content_id: None },
            |last| last.printing.clone(),
        ),
    });
    if failure.is_some() {
        understood.clear();
    }
    Ok(Batch::ChangeSet { parts: understood, failure })
}

/// As recorded: an empty part fails without an index.
fn empty_part(head: &Head) -> FailedPart {
    let printing = Printing { format: format_of(head, false), prefer: None, content_id: None };
    FailedPart { error: Code::BodyNotUnderstood.into(), printing }
}

fn format_of(head: &Head, has_order: bool) -> Format {
    Format::of_part(head, &Options::parse_with(&head.query, has_order).unwrap_or_default())
}

/// The format of the previous part: parts of a batch can differ in their Accept header only, and
/// mostly do not.
#[derive(Default)]
struct Formats(Option<(String, Format)>);

impl Formats {
    fn of(&mut self, head: &Head, has_order: bool) -> Format {
        let accept = head.list("accept").filter(|_| head.query.is_empty());
        match (&self.0, accept) {
            (Some((known, format)), Some(accept)) if *known == accept => *format,
            (_, Some(accept)) => self.0.insert((accept.into_owned(), format_of(head, has_order))).1,
            (_, None) => format_of(head, has_order),
        }
    }
}

fn read_part<T>(
    context: &Context<'_>,
    outer: &Target,
    request: &InnerRequest<'_>,
    index: usize,
    formats: &mut Formats,
    only: impl FnOnce(Operation) -> Result<T>,
) -> Result<BatchPart<T>, FailedPart> {
    let head = inner_head(context.head, request);
    let printing = Printing {
        format: formats.of(&head, context.grammar.extended),
        prefer: Prefer::of(&head),
        content_id: header(&request.headers, "content-id").map(str::to_owned),
    };
    match inner_operation(context, outer, request.body, &head).and_then(only) {
        Ok(wanted) => Ok(BatchPart { wanted, printing }),
        Err(error) => Err(FailedPart { error: error.at(index), printing }),
    }
}

fn inner_operation(context: &Context<'_>, outer: &Target, body: &[u8], head: &Head) -> Result<Operation> {
    let resource = target::resolve_inner(&head.path, outer)?;
    let has_order = may_have_order(context.grammar.extended, head, &resource);
    let options = Options::parse_with(&head.query, has_order)?;
    let verb = Verb::of(head)?;
    if (&resource, verb) == (&Resource::Service, Verb::Post) {
        return Err(Code::MethodNotAllowed.into());
    }
    let inner = Context { head, options: &options, body, grammar: context.grammar };
    operation::on_resource(&inner, verb, &resource)
}

/// Reads an operation of a change set. Operations on tables are not allowed in a batch.
fn only_write(operation: Operation) -> Result<EntityWrite> {
    match operation {
        Operation::Write(write) => Ok(write),
        Operation::GetEntity { .. } | Operation::QueryEntities { .. } => Err(Code::InvalidInput.into()),
        other => Err(not_in_a_batch(&other)),
    }
}

/// As recorded: an invalid table name is found first.
fn not_in_a_batch(operation: &Operation) -> Error {
    match operation {
        Operation::BelowTable { table, .. } => TableName::parse(table).err(),
        _ => None,
    }
    .unwrap_or_else(|| Code::NotImplemented.into())
}

/// Reads an operation outside of a change set.
fn only_query(operation: Operation) -> Result<Operation> {
    match operation {
        Operation::GetEntity { .. } | Operation::QueryEntities { .. } => Ok(operation),
        other => Err(not_in_a_batch(&other)),
    }
}

/// Returns the head of an inner request: its own headers, with the version and, unless it has its
/// own, the Accept header of the outer request. Inner versions, dates and request ids are ignored.
fn inner_head<'a>(outer: &'a Head<'_>, request: &'a InnerRequest<'_>) -> Head<'a> {
    let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
    let mut head = Head {
        method: request.method.into(),
        path: path.into(),
        query: query.into(),
        headers: Vec::with_capacity(request.headers.len() + 2),
        secure: outer.secure,
        peer: outer.peer,
    };
    let own = request.headers.iter().filter(|(name, _)| name != "x-ms-version");
    head.headers.extend(own.map(|(name, value)| (Cow::Borrowed(name.as_ref()), Cow::Borrowed(*value))));
    for name in ["x-ms-version", "accept"] {
        if let (None, Some(value)) = (head.header(name), outer.header(name)) {
            head.headers.push((name.into(), value.into()));
        }
    }
    head
}

fn header<'a>(headers: &PartHeaders<'a>, name: &str) -> Option<&'a str> {
    headers.iter().find(|(n, _)| n == name).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_the_format_that_it_asks_for() {
        let mut formats = Formats::default();
        let none = "application/json;odata=nometadata";
        let full = "application/json;odata=fullmetadata";
        for (accept, query) in
            [(none, ""), (none, ""), (full, ""), (none, ""), (none, "$format=atom"), (full, "$format=json")]
        {
            let headers = vec![("accept".into(), accept.into())];
            let head = Head { query: query.into(), headers, ..Head::default() };
            assert_eq!(formats.of(&head, false), format_of(&head, false), "{accept} {query}");
        }
        assert_eq!(formats.of(&Head::default(), false), format_of(&Head::default(), false));
    }
}
