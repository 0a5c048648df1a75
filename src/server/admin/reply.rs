//! Responses to operators.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::Error;
use crate::operator::OperatorError;
use crate::store::Failure;
use crate::store::postgres::StartError;

/// A response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    /// Further headers.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    pub body: Vec<u8>,
}

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub status: u16,
    /// The error code that programs read.
    pub code: &'static str,
    pub message: String,
}

/// The status of the server or of the requested work.
#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
pub(crate) struct Status {
    pub status: &'static str,
}

/// An error.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Error")]
pub(crate) struct ErrorDocument {
    error: ErrorContent,
}

#[derive(Serialize, JsonSchema)]
#[schemars(inline)]
struct ErrorContent {
    /// The error code, for programs.
    code: &'static str,
    message: String,
}

/// The result of a call, for a handler that makes its own response.
pub(crate) type Outcome = CallResult<Reply>;

/// The result of a call before it is serialized, or of a part of a call.
pub(crate) type CallResult<T> = Result<T, Refusal>;

const JSON: &str = "application/json";

impl Reply {
    pub(crate) fn json(status: u16, document: &impl Serialize) -> Self {
        // Serializing our own types cannot fail.
        let body = serde_json::to_vec(document).unwrap_or_default();
        Self { status, content_type: JSON, headers: Vec::new(), body }
    }

    pub(crate) const fn empty(status: u16) -> Self {
        Self { status, content_type: JSON, headers: Vec::new(), body: Vec::new() }
    }

    /// Makes a response with a text of another content type.
    pub(crate) fn text(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, content_type, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<Cow<'static, str>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

impl Refusal {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into() }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn no_account() -> Self {
        Self::new(404, "AccountNotFound", "There is no such account.")
    }
}

/// Keeps the status and code of an error of the Table service.
impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let facts = error.code.facts();
        Self::new(facts.status, facts.code, error.text())
    }
}

impl From<OperatorError> for Refusal {
    fn from(error: OperatorError) -> Self {
        let (status, code) = match error {
            OperatorError::Argument(_) => (400, "BadRequest"),
            OperatorError::AccountName(_) => (400, "InvalidAccountName"),
            OperatorError::KeyLength(_) => (400, "InvalidKey"),
            OperatorError::Limit(_) => (400, "InvalidLimit"),
            OperatorError::AccountNotFound(_) => (404, "AccountNotFound"),
            OperatorError::TableNotFound | OperatorError::TableNotInAccount(..) => (404, "TableNotFound"),
            OperatorError::IndexNotFound => (404, "IndexNotFound"),
            OperatorError::DeletedTableNotFound => (404, "DeletedTableNotFound"),
            OperatorError::SeveralDeletedTables(_) => (409, "SeveralDeletedTables"),
            OperatorError::TableNameTaken(_) => (409, "TableAlreadyExists"),
            OperatorError::RenamedTooSoon(_) => (409, "RenamedTooSoon"),
            OperatorError::NotSet(_) => (404, "NotSet"),
            OperatorError::AccountExists(_) => (409, "AccountExists"),
            OperatorError::MasterKey
            | OperatorError::MasterKeyOfServer(_)
            | OperatorError::BothMasterKeys(_) => (409, "OtherMasterKey"),
            OperatorError::Contended => (409, "Contended"),
            OperatorError::OtherRule => (409, "OtherRule"),
            OperatorError::IndexExists => (409, "IndexAlreadyExists"),
            OperatorError::TooManyIndexes => (409, "TooManyIndexes"),
            OperatorError::Random => (500, "InternalError"),
            OperatorError::Store(fault) | OperatorError::Unread(fault) => {
                return Error::from(Failure::Fault(fault)).into();
            }
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        OperatorError::from(failure).into()
    }
}

impl From<StartError> for Refusal {
    fn from(error: StartError) -> Self {
        tracing::warn!(%error, "cannot read the nodes of the cluster");
        Refusal::new(503, "DatabaseUnavailable", "The database does not answer.")
    }
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        let error = ErrorContent { code: refusal.code, message: refusal.message };
        Self::json(refusal.status, &ErrorDocument { error })
    }
}
