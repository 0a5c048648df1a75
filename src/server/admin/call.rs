//! A request of an operator, and its answer.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::Admin;
use crate::error::{Code, Error};
use crate::operator::OperatorError;
use crate::protocol::codec::uri::percent_decode;
use crate::protocol::request::target::Accounts as _;
use crate::store::{Failure, Store};

/// Time limit of a call. The outcome of a later change is not reported.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(20);

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

    /// Returns the database.
    pub(crate) fn store(&self) -> &Store {
        &self.admin.service.primary
    }

    /// Checks that this server serves an account.
    ///
    /// # Errors
    /// 404 otherwise.
    pub(crate) fn check_account(&self, account: &str) -> Result<(), Refusal> {
        match self.admin.service.follower.accounts().exists(account) {
            true => Ok(()),
            false => Err(Refusal::no_account()),
        }
    }

    /// Returns the account that the query names, if it names one.
    ///
    /// # Errors
    /// As [`Call::query`] and [`Call::check_account`].
    pub(crate) fn queried_account(&self) -> Result<Option<String>, Refusal> {
        let account = self.query("account")?;
        account.as_deref().map(|account| self.check_account(account)).transpose()?;
        Ok(account)
    }

    /// Returns the account and the table that the path names.
    ///
    /// # Errors
    /// As [`Call::check_account`].
    pub(crate) fn table(&self) -> Result<(&str, &str), Refusal> {
        let account = self.parameter("name");
        self.check_account(account)?;
        Ok((account, self.parameter("table")))
    }

    /// Reads the body as a JSON document.
    ///
    /// # Errors
    /// 400 for another document.
    pub(crate) fn document<T: Deserialize<'a>>(&self) -> Result<T, Refusal> {
        serde_json::from_slice(self.body).map_err(|error| Refusal::bad_request(format!("The body: {error}")))
    }
}

/// Waits for work, up to a time limit.
///
/// # Errors
/// 500 `OperationTimedOut` after that; errors of the work.
pub(crate) async fn within<T, E: Into<Refusal>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Refusal> {
    match timeout(limit, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(Error::from(Code::OperationTimedOut).into()),
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

    /// 404.
    pub(crate) fn no_account() -> Self {
        Self::new(404, "AccountNotFound", "There is no such account.")
    }
}

/// An error of the table service keeps its status and code.
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
            OperatorError::IndexExists => (409, "IndexAlreadyExists"),
            OperatorError::TooManyIndexes => (409, "TooManyIndexes"),
            OperatorError::Definition(_) => (409, "DefinitionRefused"),
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

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        let error = serde_json::json!({ "code": refusal.code, "message": refusal.message });
        Self::json(refusal.status, &serde_json::json!({ "error": error }))
    }
}
