//! Parses entity group transactions and query batches (protocol §8.1, §8.2).

use super::operation::{self, Context, Operation, may_have_order};
use crate::codec::multipart::{self, InnerRequest, Part};
use crate::codec::split_once;
use crate::error::{Code, Error, Result};
use crate::request::options::Options;
use crate::request::{Format, Head, OperationLabel, Prefer, Resource, Target, Verb, target};

/// Maximum operations of a change set.
pub const MAX_OPERATIONS: usize = 100;

/// A batch: change sets, of which only the first is executed, or one query.
#[derive(Debug, Clone)]
pub enum Batch {
    ChangeSet {
        /// The operations in order, up to the first that could not be parsed.
        parts: Vec<BatchPart>,
        /// The part that could not be parsed, and its error.
        failure: Option<FailedPart>,
        /// The change sets after this one, which are refused.
        others: Vec<FailedPart>,
    },
    Query(Box<Result<BatchPart, FailedPart>>),
}

impl Batch {
    /// Returns the table of the first operation. All operations must have the same table.
    pub fn table(&self) -> Option<&str> {
        let first = match self {
            Batch::ChangeSet { parts, .. } => parts.first(),
            Batch::Query(part) => part.as_ref().as_ref().ok(),
        };
        first.map(|part| part.table.as_str())
    }
}

/// The format and headers of the response to a part.
#[derive(Debug, Clone, PartialEq)]
pub struct Printing {
    pub format: Format,
    pub prefer: Option<Prefer>,
    /// The Content-ID among the HTTP headers of the part, which the response repeats. MIME headers are not repeated.
    pub content_id: Option<String>,
}

impl Printing {
    /// Returns the settings for a response that belongs to no part.
    fn of_batch(head: &Head) -> Self {
        Self { format: format_of(head, false), prefer: None, content_id: None }
    }
}

/// A part of a batch: a write inside a change set, a query outside.
#[derive(Debug, Clone)]
pub struct BatchPart {
    pub operation: Operation,
    /// The name of the table, unchecked.
    pub table: String,
    pub printing: Printing,
}

/// A part that could not be parsed.
#[derive(Debug, Clone, PartialEq)]
pub struct FailedPart {
    /// The error, with the operation's index if the operation was readable.
    pub error: Error,
    /// `None` for an unreadable part.
    pub printing: Option<Printing>,
}

impl FailedPart {
    /// Returns the failure of a part that is empty or has unreadable headers. As recorded, the error has no index.
    fn unreadable() -> Self {
        Self { error: Code::BodyNotUnderstood.into(), printing: None }
    }

    /// Returns the failure of a change set that follows another one.
    fn additional(head: &Head) -> Self {
        Self { error: Code::InvalidInput.into(), printing: Some(Printing::of_batch(head)) }
    }
}

/// Parses a batch.
///
/// # Errors
/// The errors of the batch as a whole: [`Code::MediaTypeNotSupported`] for a body that is not multipart,
/// [`Code::InvalidInput`] for a body other than change sets alone or a single query.
pub fn read(context: &Context<'_>, outer: &Target) -> Result<Batch> {
    let content_type = context.head.header("content-type").unwrap_or_default();
    let boundary = multipart::boundary(content_type).ok_or(Code::MediaTypeNotSupported)?;
    let parts = multipart::parts(context.body, boundary).map_err(|_| Code::InvalidInput)?;
    match parts.as_slice() {
        [only] if change_set_boundary(only).is_none() => read_query(context, outer, only),
        [first, others @ ..] if parts.iter().all(|part| change_set_boundary(part).is_some()) => {
            let others = others.iter().map(|_| FailedPart::additional(context.head)).collect();
            read_change_set(context, outer, first, others)
        }
        _ => Err(Code::InvalidInput.into()),
    }
}

/// Returns the boundary of a part that is a change set.
fn change_set_boundary<'a>(part: &Part<'a>) -> Option<&'a str> {
    part.content_type.and_then(multipart::boundary)
}

fn read_query(context: &Context<'_>, outer: &Target, part: &Part<'_>) -> Result<Batch> {
    let Some(request) = none_if_unreadable(multipart::request(part.content))? else {
        return Ok(Batch::Query(Box::new(Err(FailedPart::unreadable()))));
    };
    if request.method != "GET" {
        return Err(Code::InvalidInput.into());
    }
    let formats = &mut FormatCache::default();
    Ok(Batch::Query(Box::new(read_part(context, outer, request, 0, formats, check_query))))
}

fn read_change_set(
    context: &Context<'_>,
    outer: &Target,
    set: &Part<'_>,
    others: Vec<FailedPart>,
) -> Result<Batch> {
    let boundary = change_set_boundary(set).unwrap_or_default();
    let Some(parts) = none_if_unreadable(multipart::parts(set.content, boundary))? else {
        let failure = Some(FailedPart::unreadable());
        return Ok(Batch::ChangeSet { parts: Vec::new(), failure, others });
    };
    let mut parsed = Vec::with_capacity(parts.len());
    let failure = read_operations(context, outer, &parts, &mut parsed)?;
    Ok(Batch::ChangeSet { parts: parsed, failure, others })
}

/// Parses operations of a change set into `parsed`, and returns the failure of the first that cannot be parsed.
fn read_operations(
    context: &Context<'_>,
    outer: &Target,
    parts: &[Part<'_>],
    parsed: &mut Vec<BatchPart>,
) -> Result<Option<FailedPart>> {
    let mut formats = FormatCache::default();
    for (index, part) in parts.iter().take(MAX_OPERATIONS).enumerate() {
        if part.is_empty {
            return Ok(Some(FailedPart::unreadable()));
        }
        let request =
            none_if_unreadable(multipart::request(part.content)).map_err(|error| error.at(index))?;
        let Some(request) = request else { return Ok(Some(FailedPart::unreadable())) };
        match read_part(context, outer, request, index, &mut formats, check_write) {
            Ok(part) => parsed.push(part),
            Err(failed) => return Ok(Some(failed)),
        }
    }
    if parts.len() <= MAX_OPERATIONS {
        return Ok(None);
    }
    let last = parsed.last().map(|last| last.printing.clone());
    parsed.clear();
    Ok(Some(FailedPart {
        error: Error::from(Code::TooManyBatchOperations).at(MAX_OPERATIONS - 1),
        printing: last.or_else(|| Some(Printing::of_batch(context.head))),
    }))
}

/// Returns the parsed value, or `None` if the headers were unreadable.
fn none_if_unreadable<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Err(error) if error.code == Code::BodyNotUnderstood => Ok(None),
        read => read.map(Some),
    }
}

fn format_of(head: &Head, allows_order: bool) -> Format {
    Format::negotiate_part(head, &Options::parse_with(&head.query, allows_order).unwrap_or_default())
}

/// Caches the format for the Accept header of the previous part, because the parts seldom differ.
#[derive(Default)]
struct FormatCache(Option<(String, Format)>);

impl FormatCache {
    fn get(&mut self, head: &Head, allows_order: bool) -> Format {
        let accept = head.list("accept").filter(|_| head.query.is_empty());
        match (&self.0, accept) {
            (Some((known, format)), Some(accept)) if *known == accept => *format,
            (_, Some(accept)) => self.0.insert((accept.into_owned(), format_of(head, allows_order))).1,
            (_, None) => format_of(head, allows_order),
        }
    }
}

fn read_part(
    context: &Context<'_>,
    outer: &Target,
    request: InnerRequest<'_>,
    index: usize,
    formats: &mut FormatCache,
    check: impl FnOnce(&Operation) -> Result<()>,
) -> Result<BatchPart, FailedPart> {
    let body = request.body;
    let has_accept = request.headers.iter().any(|(name, _)| name == "accept");
    let head = inner_head(context.head, request);
    let printing = Printing {
        format: formats.get(&head, context.grammar.extended),
        prefer: Prefer::of(&head),
        content_id: head.header("content-id").map(str::to_owned),
    };
    let read = || {
        let resource = target::resolve_inner(&head.path, outer)?;
        let operation = read_inner_operation(context, &resource, body, &head)?;
        check(&operation)?;
        Ok((operation, resource.table().unwrap_or_default().to_owned()))
    };
    match read() {
        Ok((operation, table)) => Ok(BatchPart { operation, table, printing }),
        Err(error) => {
            let refusal = atom_refusal(&head, has_accept, &error);
            let (error, format) = refusal.unwrap_or((error, printing.format));
            let printing = Some(Printing { format, ..printing });
            Err(FailedPart { error: error.at(index), printing })
        }
    }
}

/// Returns the error, as reported from Azure, for a delete that has no condition and names no format, in a version
/// without Atom: Atom is not supported. The Accept header of the outer request also names a format, except `*/*`.
fn atom_refusal(head: &Head, has_accept: bool, error: &Error) -> Option<(Error, Format)> {
    let lacks_condition = error.code == Code::InvalidInput && head.header("if-match").is_none();
    let named = head.header("accept").filter(|accept| has_accept || *accept != "*/*");
    let names_format =
        named.is_some_and(|accept| !accept.trim().is_empty()) || head.query.contains("format=");
    if !lacks_condition || names_format || Verb::of(head) != Ok(Verb::Delete) {
        return None;
    }
    Format::atom_refusal(head).map(|format| (Code::AtomFormatNotSupported.into(), format))
}

fn read_inner_operation(
    context: &Context<'_>,
    resource: &Resource,
    body: &[u8],
    head: &Head,
) -> Result<Operation> {
    let allows_order = may_have_order(context.grammar.extended, head, resource);
    let options = Options::parse_with(&head.query, allows_order)?;
    let verb = Verb::of(head)?;
    if (resource, verb) == (&Resource::Service, Verb::Post) {
        return Err(Code::MethodNotAllowed.into());
    }
    let inner = Context { head, options: &options, body, grammar: context.grammar };
    operation::on_resource(&inner, verb, resource)
}

/// Refuses operations of a change set other than writes. Operations on tables are not allowed in a batch.
fn check_write(operation: &Operation) -> Result<()> {
    match operation.label {
        label if label.is_entity_write() => Ok(()),
        OperationLabel::GetEntity | OperationLabel::QueryEntities => Err(Code::InvalidInput.into()),
        _ => Err(not_allowed_error(operation)),
    }
}

/// Refuses operations outside a change set other than queries.
fn check_query(operation: &Operation) -> Result<()> {
    match operation.label {
        OperationLabel::GetEntity | OperationLabel::QueryEntities => Ok(()),
        _ => Err(not_allowed_error(operation)),
    }
}

/// Returns the error of an operation that a batch does not allow. As recorded, an invalid table name takes precedence
/// on a path below a table.
fn not_allowed_error(operation: &Operation) -> Error {
    match (operation.label, &operation.plan) {
        (OperationLabel::Unknown, Err(error)) => error.clone(),
        _ => Code::NotImplemented.into(),
    }
}

/// Returns the head of an inner request. The outer request supplies the version, and an Accept header if the inner
/// request has none. The version of the inner request is ignored, as is an X-HTTP-Method that repeats the verb.
fn inner_head<'a>(outer: &'a Head<'_>, request: InnerRequest<'a>) -> Head<'a> {
    let (path, query) = split_once(request.target, b'?').unwrap_or((request.target, ""));
    let repeats_verb = repeats_verb(&request);
    let InnerRequest { method, mut headers, .. } = request;
    headers.retain(|(name, _)| name != "x-ms-version" && (name != METHOD_HEADER || !repeats_verb));
    for name in ["x-ms-version", "accept"] {
        let given = headers.iter().any(|(own, _)| own == name);
        headers.extend(outer.header(name).filter(|_| !given).map(|value| (name.into(), value.into())));
    }
    let (secure, peer) = (outer.secure, outer.peer);
    Head { method: method.into(), path: path.into(), query: query.into(), headers, secure, peer }
}

const METHOD_HEADER: &str = "x-http-method";

/// Returns whether the only X-HTTP-Method of a part repeats the verb of the part, as in the retired Java SDK.
fn repeats_verb(request: &InnerRequest<'_>) -> bool {
    let mut named = request.headers.iter().filter(|(name, _)| name == METHOD_HEADER);
    matches!((named.next(), named.next()), (Some((_, verb)), None) if Verb::is_repeated(request.method, verb))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_the_format_that_it_asks_for() {
        let mut formats = FormatCache::default();
        let none = "application/json;odata=nometadata";
        let full = "application/json;odata=fullmetadata";
        for (accept, query) in
            [(none, ""), (none, ""), (full, ""), (none, ""), (none, "$format=atom"), (full, "$format=json")]
        {
            let headers = vec![("accept".into(), accept.into())];
            let head = Head { query: query.into(), headers, ..Head::default() };
            assert_eq!(formats.get(&head, false), format_of(&head, false), "{accept} {query}");
        }
        assert_eq!(formats.get(&Head::default(), false), format_of(&Head::default(), false));
    }
}
