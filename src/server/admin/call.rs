//! A request of an operator, and its answer.

use std::borrow::Cow;
use std::cell::OnceCell;

use serde::{Deserialize, Serialize};

use super::Admin;
use crate::error::Error;
use crate::protocol::codec::uri::percent_decode;

/// A request of an operator.
pub(crate) struct Call<'a> {
    pub admin: &'a Admin,
    pub query: &'a str,
    /// The values of the route's path parameters.
    pub parameters: Vec<(&'static str, String)>,
    /// At most [`super::MAX_BODY`] bytes.
    pub body: &'a [u8],
    /// The ETags that the sender has.
    pub if_none_match: Option<&'a str>,
    /// The encodings of bodies that the sender understands.
    pub accept_encoding: Option<&'a str>,
    /// What the call is about, for the audit, if its path does not name it.
    pub subject: OnceCell<String>,
    /// The account of the subject, if the path names neither.
    pub account: OnceCell<String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    pub body: Vec<u8>,
}

/// An error answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: u16,
    /// The error code, for programs.
    pub code: &'static str,
    pub message: String,
}

/// Result of a call.
pub(crate) type Outcome = Result<Reply, Refusal>;

const JSON: &str = "application/json";

impl<'a> Call<'a> {
    /// Returns the first parameter of this name in the query string, decoded.
    ///
    /// # Errors
    /// 400 for invalid percent-encoding, and for U+0000, which no name contains.
    pub(crate) fn query(&self, name: &str) -> Result<Option<String>, Refusal> {
        for pair in self.query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if key == name {
                let spaced = value.replace('+', " ");
                let text = percent_decode(&spaced).filter(|text| !text.contains('\0'));
                let broken = || Refusal::bad_request(format!("{name}: broken escapes"));
                return text.map(|text| Some(text.into_owned())).ok_or_else(broken);
            }
        }
        Ok(None)
    }

    /// Returns the value of a path parameter.
    pub(crate) fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, text)| text.as_str())
    }

    /// Reads the body as a JSON document.
    ///
    /// # Errors
    /// 400 for another document.
    pub(crate) fn document<T: Deserialize<'a>>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(self.body).map_err(|error| Refusal::bad_request(format!("The body: {error}")))
    }
}

impl Reply {
    /// A JSON document.
    pub(crate) fn json(status: u16, document: &impl Serialize) -> Self {
        // Serializing our own types cannot fail.
        let body = serde_json::to_vec(document).unwrap_or_default();
        Self { status, content_type: JSON, headers: Vec::new(), body }
    }

    /// An answer without a body.
    pub(crate) const fn empty(status: u16) -> Self {
        Self { status, content_type: JSON, headers: Vec::new(), body: Vec::new() }
    }

    /// A text with another content type.
    pub(crate) fn text(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, content_type, headers: Vec::new(), body: body.into() }
    }

    /// Adds a header.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Refusal {
    /// An error with a status, a code and a message.
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }
}

/// An error of the table service keeps its status and code.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let facts = error.code.facts();
        Self::new(facts.status, facts.code, error.text())
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        let error = serde_json::json!({ "code": refusal.code, "message": refusal.message });
        Self::json(refusal.status, &serde_json::json!({ "error": error }))
    }
}
