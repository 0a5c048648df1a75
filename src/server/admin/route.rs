//! A route of the admin listener: its path, access, handler and description.

use std::future::Future;
use std::pin::Pin;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;

use super::call::Call;
use super::reply::{CallResult, Outcome, Reply};
use crate::protocol::codec::uri::percent_decode;

/// The future of a response.
pub(crate) type Pending<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// Answers with a JSON document.
pub(super) fn json<'a, T: Serialize>(work: impl Future<Output = CallResult<T>> + 'a) -> Pending<'a> {
    Box::pin(async { Ok(Reply::json(200, &work.await?)) })
}

/// Answers 201 with a JSON document.
pub(super) fn created<'a, T: Serialize>(work: impl Future<Output = CallResult<T>> + 'a) -> Pending<'a> {
    Box::pin(async { Ok(Reply::json(201, &work.await?)) })
}

/// The names and values of the parameters in a path.
pub(crate) type Parameters = Vec<(&'static str, String)>;

/// A path with its method, its handler and its documentation, for readers and for client generators.
pub(crate) struct Route {
    /// `GET` also covers `HEAD`.
    pub method: &'static str,
    /// Segments in braces are parameters: `/accounts/{name}`. A last parameter that ends with dots matches
    /// the rest of the path, undecoded and possibly empty: `/console/{asset...}`.
    pub path: &'static str,
    pub access: Access,
    pub part: ListenerPart,
    /// Whether the route changes something or gives access to a change, so that its use is audited.
    pub is_change: bool,
    pub handler: Handler,
    /// The name of the operation, in camel case.
    pub id: &'static str,
    /// A summary in one line.
    pub summary: &'static str,
    pub details: &'static str,
    pub query: &'static [QueryField],
    /// The schema of the body, and whether the body is required.
    pub body: Option<(SchemaOf, bool)>,
    pub status: u16,
    /// The description of the successful response.
    pub answer: &'static str,
    pub content: Content,
    /// Other statuses, each with its error codes. `openapi::generate` adds the statuses that all routes of a kind share.
    pub others: &'static [OtherAnswer],
}

/// The part of the listener that a route belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerPart {
    /// On every admin listener.
    Always,
    /// In test mode only.
    TestMode,
    /// Unless the console is off.
    Console,
}

/// The handler of a route.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// A function of this module.
    Function(for<'a> fn(&'a Call<'a>) -> Pending<'a>),
    /// The Table service.
    Service,
}

/// The callers that may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anyone.
    Open,
    /// Callers with the token. If an operator chose a loopback address and no token, also every program on
    /// this machine.
    Guarded,
    /// Callers with the token. Programs on this machine may not change accounts or see keys without it.
    AdminToken,
}

/// Adds the schema of a type and of the types that it refers to, and returns the schema of the type.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The content of a successful response.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    Nothing,
    Json(SchemaOf),
    /// Text in one of these media types.
    Text(&'static [&'static str]),
}

/// A parameter of the query string.
#[derive(Clone, Copy)]
pub(crate) struct QueryField {
    pub name: &'static str,
    pub description: &'static str,
    pub is_required: bool,
    pub kind: QueryKind,
}

#[derive(Clone, Copy)]
pub(crate) enum QueryKind {
    Text,
    Number,
    /// A number from 1 to the maximum.
    Limit {
        max: usize,
        default: usize,
    },
}

impl QueryField {
    /// Returns an optional text parameter.
    pub(crate) const fn text(name: &'static str, description: &'static str) -> Self {
        Self { name, description, is_required: false, kind: QueryKind::Text }
    }

    const fn schema_type(&self) -> &'static str {
        if matches!(self.kind, QueryKind::Text) { "string" } else { "integer" }
    }

    pub(super) fn to_json(self) -> Value {
        let mut schema = serde_json::json!({ "type": self.schema_type() });
        if let QueryKind::Limit { max, default } = self.kind {
            (schema["minimum"], schema["maximum"], schema["default"]) =
                (1.into(), max.into(), default.into());
        }
        parameter("query", self.name, self.is_required, self.description, schema)
    }
}

pub(super) fn parameter(
    place: &str,
    name: &str,
    is_required: bool,
    description: &str,
    schema: Value,
) -> Value {
    serde_json::json!({ "name": name, "in": place, "required": is_required, "description": description, "schema": schema })
}

/// A status with its error codes.
pub(crate) type OtherAnswer = (u16, &'static str);

/// Statuses and a parameter that several routes share.
pub(super) const PARAMETER: OtherAnswer = (400, "A parameter is invalid.");
pub(super) const NO_ACCOUNT: OtherAnswer = (404, "AccountNotFound.");
pub(super) const TIMED_OUT: OtherAnswer = (500, "OperationTimedOut.");
pub(super) const UNKNOWN: OtherAnswer = (500, "OperationTimedOut: the change may or may not have been made.");
pub(super) const NO_ANSWER: OtherAnswer = (503, "ServerBusy: the database did not answer.");
pub(super) const OF_ACCOUNT: QueryField = QueryField::text("account", "Only the tables of this account.");

type Function = for<'a> fn(&'a Call<'a>) -> Pending<'a>;

const fn route(method: &'static str, path: &'static str, access: Access, handler: Handler) -> Route {
    let (others, query): (&[OtherAnswer], &[QueryField]) = (&[], &[]);
    let (id, summary, details, answer) = ("", "", "", "");
    let (body, status, content) = (None, 200, Content::Nothing);
    let is_change = !matches!(method.as_bytes(), b"GET");
    Route {
        method,
        path,
        access,
        part: ListenerPart::Always,
        is_change,
        handler,
        id,
        summary,
        details,
        query,
        body,
        status,
        answer,
        content,
        others,
    }
}

pub(super) const fn open(method: &'static str, path: &'static str, function: Function) -> Route {
    route(method, path, Access::Open, Handler::Function(function))
}

pub(super) const fn guarded(method: &'static str, path: &'static str, function: Function) -> Route {
    route(method, path, Access::Guarded, Handler::Function(function))
}

pub(super) const fn token(method: &'static str, path: &'static str, function: Function) -> Route {
    route(method, path, Access::AdminToken, Handler::Function(function))
}

pub(super) const fn for_tests(method: &'static str, path: &'static str, function: Function) -> Route {
    Route { part: ListenerPart::TestMode, ..guarded(method, path, function) }
}

/// Returns a route of the Table service, which itself determines which requests are changes.
pub(super) const fn service(method: &'static str, id: &'static str, summary: &'static str) -> Route {
    let route = route(method, "/service/{account}/{path...}", Access::AdminToken, Handler::Service)
        .of_console()
        .reading();
    let mut route = route.about(id, summary);
    route.answer = "The answer of the Table service, with its status, headers and body.";
    route
}

impl Route {
    pub(super) const fn about(mut self, id: &'static str, summary: &'static str) -> Self {
        (self.id, self.summary) = (id, summary);
        self
    }

    pub(super) const fn details(mut self, details: &'static str) -> Self {
        self.details = details;
        self
    }

    pub(super) const fn query(mut self, query: &'static [QueryField]) -> Self {
        self.query = query;
        self
    }

    pub(super) const fn body<T: JsonSchema>(mut self) -> Self {
        self.body = Some((SchemaGenerator::subschema_for::<T>, true));
        self
    }

    pub(super) const fn optional_body<T: JsonSchema>(mut self) -> Self {
        self.body = Some((SchemaGenerator::subschema_for::<T>, false));
        self
    }

    pub(super) const fn answers<T: JsonSchema>(mut self, answer: &'static str) -> Self {
        self.answer = answer;
        self.content = Content::Json(SchemaGenerator::subschema_for::<T>);
        self
    }

    pub(super) const fn creates<T: JsonSchema>(mut self, answer: &'static str) -> Self {
        self.status = 201;
        self.answers::<T>(answer)
    }

    pub(super) const fn answers_text(
        mut self,
        answer: &'static str,
        media_types: &'static [&'static str],
    ) -> Self {
        (self.answer, self.content) = (answer, Content::Text(media_types));
        self
    }

    pub(super) const fn redirects(mut self, answer: &'static str) -> Self {
        (self.answer, self.status) = (answer, 308);
        self
    }

    pub(super) const fn others(mut self, others: &'static [OtherAnswer]) -> Self {
        self.others = others;
        self
    }
}

impl Route {
    /// Marks a route that changes nothing, although its method is not GET.
    pub(super) const fn reading(self) -> Self {
        Self { is_change: false, ..self }
    }

    pub(super) const fn of_console(self) -> Self {
        Self { part: ListenerPart::Console, ..self }
    }

    /// Returns the percent-decoded parameters of a path. Returns `None` if the path does not match this
    /// route, if its percent-encoding is invalid, or if a parameter contains U+0000.
    pub(crate) fn parameters(&self, path: &str) -> Option<Parameters> {
        let (ours, rest) = match self.path.strip_suffix("...}").and_then(|path| path.rsplit_once("/{")) {
            Some((ours, rest)) => (ours, Some(rest)),
            None => (self.path, None),
        };
        let taken = rest.map_or(usize::MAX, |_| ours.split('/').count() + 1);
        let (mut ours, mut theirs) = (ours.split('/'), path.splitn(taken, '/'));
        let mut found = Vec::new();
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) if rest.is_none() => return Some(found),
                (None, Some(their)) => {
                    found.push((rest?, their.to_owned()));
                    return Some(found);
                }
                (Some(our), Some(their)) => {
                    let name = our.strip_prefix('{').and_then(|our| our.strip_suffix('}'));
                    match name {
                        Some(_) if their.is_empty() => return None,
                        Some(name) => {
                            let text = percent_decode(their).filter(|text| !text.contains('\0'))?;
                            found.push((name, text.into_owned()));
                        }
                        None if our == their => {}
                        None => return None,
                    }
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn none(_: &Call<'_>) -> Outcome {
        Ok(Reply::empty(200))
    }

    #[test]
    fn segments_in_braces_take_any_text_but_none() {
        let route = Route { path: "/accounts/{name}/keys", ..open("GET", "", |call| Box::pin(none(call))) };
        assert_eq!(route.parameters("/accounts/a%20b/keys"), Some(vec![("name", "a b".to_owned())]));
        for other in ["/accounts//keys", "/accounts/a", "/accounts/a/keys/", "/accounts/%/keys", "/"] {
            assert_eq!(route.parameters(other), None, "{other}");
        }
    }

    #[test]
    fn the_rest_of_a_path_may_be_empty_and_have_slashes() {
        let open = |path| open("GET", path, |call| Box::pin(none(call)));
        let route = open("/a/{b}/{rest...}");
        let found =
            |path| route.parameters(path).map(|found| found.into_iter().map(|(_, v)| v).collect::<Vec<_>>());
        assert_eq!(found("/a/x/"), Some(vec!["x".into(), String::new()]));
        assert_eq!(found("/a/x/y%20/z"), Some(vec!["x".into(), "y%20/z".into()]));
        for other in ["/a", "/a/x", "/a//y", "/b/x/y", "/"] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
