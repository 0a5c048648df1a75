//! Responses as plain data, and the headers that they share (protocol §2.2).

use std::borrow::Cow;

use crate::error::{Code, Error};
use crate::protocol::codec::atom::write::Style;
use crate::protocol::codec::failure::{self, ErrorContext};
use crate::protocol::codec::multipart::InnerAnswer;
use crate::protocol::request::{Head, Prefer, Representation};

/// The status that represents the absence of a response. The connection is closed instead, and no client sees it.
pub(crate) const STATUS_HANG_UP: u16 = 444;

/// A response without the headers that every response carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub status: u16,
    /// The reason phrase, if it is not the standard one.
    pub reason: Option<&'static str>,
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    pub body: Vec<u8>,
    /// The error of a refused request, or of the operations in a batch. It is counted and logged, but never
    /// sent.
    pub refusal: Option<Code>,
}

pub(crate) const CONTENT_TYPE: &str = "Content-Type";
/// The Content-Type of JSON errors of the front end.
const JSON: &str = "application/json";
/// The Content-Type of the documents of XML operations.
pub(crate) const XML: &str = "application/xml";
/// The Content-Type of XML errors of the table layer.
const TABLE_XML: &str = "application/xml;charset=utf-8";
pub(crate) const ETAG: &str = "ETag";
pub(crate) const LOCATION: &str = "Location";
pub(crate) const DATA_SERVICE_ID: &str = "DataServiceId";
pub(crate) const PREFERENCE_APPLIED: &str = "Preference-Applied";
pub(crate) const DATA_SERVICE_VERSION: &str = "DataServiceVersion";
const NOSNIFF: (&str, &str) = ("X-Content-Type-Options", "nosniff");
const NO_CACHE: (&str, &str) = ("Cache-Control", "no-cache");

impl Answer {
    /// Returns a table-layer response without a body.
    pub(crate) fn table_empty(status: u16) -> Self {
        let mut answer = Self { headers: Vec::with_capacity(8), ..Self::status_only(status) };
        answer.headers.push((NO_CACHE.0, Cow::Borrowed(NO_CACHE.1)));
        answer.headers.push((NOSNIFF.0, Cow::Borrowed(NOSNIFF.1)));
        answer
    }

    /// Returns a table-layer response with a document.
    pub(crate) fn table_document(status: u16, content_type: &'static str, body: String) -> Self {
        Self::table_empty(status).with(CONTENT_TYPE, content_type).with_body(body.into_bytes())
    }

    /// Returns a response without headers and body.
    pub(crate) fn status_only(status: u16) -> Self {
        Self { status, reason: None, headers: Vec::new(), body: Vec::new(), refusal: None }
    }

    /// Returns the response of an XML operation with a document.
    pub(crate) fn xml_document(status: u16, body: String) -> Self {
        Self::status_only(status).with(CONTENT_TYPE, XML).with_body(body.into_bytes())
    }

    /// Returns the error of an XML operation.
    pub(crate) fn xml_refusal(error: &Error, context: &ErrorContext<'_>) -> Self {
        let facts = error.code.facts();
        let answer = Self::xml_document(facts.status, failure::xml(error, context));
        // As recorded, the message is also the reason phrase.
        let refusal = Some(error.code);
        Self { reason: Some(facts.message), refusal, ..answer }
            .with("x-ms-error-code", facts.code)
            .with_retry_after(error)
    }

    /// Returns the status for metrics and the log. For a refused batch, this is the status of the refused part.
    pub(crate) fn outcome_status(&self) -> u16 {
        self.refusal.map_or(self.status, |code| code.facts().status)
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn with_body(mut self, body: Vec<u8>) -> Self {
        self.body = body;
        self
    }

    /// Returns a table-layer error. Errors raised before an operation starts have neither Cache-Control nor
    /// Preference-Applied (protocol §2.2).
    pub(crate) fn refusal(
        error: &Error,
        representation: Representation,
        prefer: Option<Prefer>,
        context: &ErrorContext<'_>,
    ) -> Self {
        let (content_type, body) = match representation {
            Representation::Json(metadata) => (metadata.content_type(), failure::json(error, context)),
            Representation::Atom(Style::Modern) => (TABLE_XML, failure::table_xml(error, context)),
            Representation::Atom(Style::Classic) => ("application/xml", failure::atom(error)),
        };
        let mut answer = Self::table_document(error.code.facts().status, content_type, body);
        answer.refusal = Some(error.code);
        if omits_cache_control(error.code) {
            answer.headers.retain(|(name, _)| *name != NO_CACHE.0);
        } else if let Some(prefer) = prefer {
            answer = answer.with(PREFERENCE_APPLIED, prefer.applied());
        }
        answer.with_retry_after(error)
    }

    /// Returns the response to an unreadable part of a batch. As recorded, it is XML whatever the client
    /// accepts, and has only the headers DataServiceVersion and Content-Type.
    pub(crate) fn unreadable_part(error: &Error, style: Style, context: &ErrorContext<'_>) -> InnerAnswer {
        let answer = Self::refusal(error, Representation::Atom(style), None, context);
        let mut inner = answer.into_inner("1.0;", None);
        inner.headers.retain(|(name, _)| [DATA_SERVICE_VERSION, CONTENT_TYPE].contains(name));
        inner
    }

    /// Adds the time after which to retry to the response of a busy server.
    fn with_retry_after(self, error: &Error) -> Self {
        if error.code == Code::ServerBusy { self.with("Retry-After", "1") } else { self }
    }

    /// Returns an error raised before the table layer is reached: an invalid version, failed authentication, or a body
    /// that is too large. As recorded, the body is JSON if the client accepts it, otherwise XML, and a
    /// header contains the code. Without a version, the body is the XML of the oldest versions, whatever the
    /// client accepts. With an invalid version, the body and the content type are those of this XML too, and the header
    /// is missing. A preflight has no version, but is answered as if it had one.
    pub(crate) fn front_end_refusal(
        error: &Error,
        head: &Head,
        challenge: Option<String>,
        context: &ErrorContext<'_>,
    ) -> Self {
        let facts = error.code.facts();
        let version = head.version();
        let is_preflight = head.method == "OPTIONS";
        let body = match &version {
            Ok(version) if version.is_named() || is_preflight => match accepts_json(head) {
                true => failure::json(error, context),
                false => failure::xml(error, context),
            },
            _ => failure::front_end_xml(error, context),
        };
        // Without a version, the content type follows Accept although the body is XML (recorded).
        let content_type = if version.is_ok() && accepts_json(head) { JSON } else { XML };
        // As recorded, the message is also the reason phrase.
        let (reason, body) = (Some(facts.message), body.into_bytes());
        let answer = Self { reason, body, refusal: Some(error.code), ..Self::status_only(facts.status) }
            .with(CONTENT_TYPE, content_type);
        if version.is_err() {
            return answer;
        }
        let answer = answer.with("x-ms-error-code", facts.code).with_retry_after(error);
        match error.code {
            Code::NoCredentials | Code::TokenRefused => {
                answer.with("WWW-Authenticate", challenge.unwrap_or_else(|| CHALLENGE.to_owned()))
            }
            _ => answer,
        }
    }

    /// Returns this response as a part of a batch. There, the data service version distinguishes inserts,
    /// queries and errors from updates (protocol §8.3), unless the document has its own version.
    pub(crate) fn into_inner(
        self,
        data_service_version: &'static str,
        content_id: Option<&str>,
    ) -> InnerAnswer {
        let mut others = self.headers;
        let mut headers = Vec::with_capacity(others.len() + 2);
        let mut take = |name| Some(others.remove(others.iter().position(|(n, _)| *n == name)?));
        let (sniff, cache, kind) = (take(NOSNIFF.0), take(NO_CACHE.0), take(CONTENT_TYPE));
        let version = take(DATA_SERVICE_VERSION);
        let version = version.or_else(|| Some((DATA_SERVICE_VERSION, data_service_version.into())));
        let content_id = content_id.map(|id| ("Content-ID", id.to_owned().into()));
        let applied = take(PREFERENCE_APPLIED);
        let first = match self.status {
            200 | 201 => [version, kind, content_id, sniff, cache, applied],
            _ => [content_id, sniff, cache, applied, version, kind],
        };
        headers.extend(first.into_iter().flatten());
        headers.extend(others);
        InnerAnswer { status: self.status, headers, body: self.body }
    }
}

/// The challenge for clients without credentials if no issuer is configured.
const CHALLENGE: &str = "Bearer authorization_uri=https://login.microsoftonline.com/common/oauth2/authorize \
                         resource_id=https://storage.azure.com";

fn accepts_json(head: &Head) -> bool {
    head.header("accept").is_some_and(|accept| accept.contains("json"))
}

/// Returns whether a table-layer error is one that Azure sends without Cache-Control: an error found before the
/// operation starts, or a condition that no entity can meet (protocol §2.2).
const fn omits_cache_control(code: Code) -> bool {
    matches!(
        code,
        Code::FilterSyntax
            | Code::TableNotFound
            | Code::OutOfRangeInput
            | Code::QuerySyntax
            | Code::KeyCountMismatch
            | Code::InvalidEtag
            | Code::BodyNotUnderstood
            | Code::ContentTypeMissing
            | Code::MethodNotAllowed
            | Code::ConditionNotMet
    )
}
