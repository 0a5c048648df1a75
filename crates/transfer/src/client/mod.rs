//! A client for any server that implements the Azure Table storage REST API.
//!
//! Calls block their thread. Transient failures are retried with back-off, and the number of
//! requests in flight adapts to what the server allows.

pub mod address;
mod change_set;
mod send;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::error::TransferError;
use crate::protocol::codec::uri::escape;
use crate::protocol::codec::xml;
use crate::protocol::model::Ticks;
pub(crate) use address::Address;
use address::EndpointCredentials;
pub(crate) use change_set::{ChangeSetBody, HEAD_BYTES, MAX_BODY_BYTES, MAX_OPERATIONS, SetVerb};
pub(crate) use send::{Client, MAX_ANSWER_BYTES};

/// The newest protocol version that the recordings cover.
const VERSION: &str = "2019-02-02";

/// A request before it is signed.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientCall {
    pub method: &'static str,
    /// The path below the endpoint, escaped: `/Tables`, `/People()`.
    pub path: String,
    /// Names and values, not escaped.
    pub query: Vec<(&'static str, String)>,
    pub accept: Option<&'static str>,
    pub content_type: Option<String>,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// The statuses of success.
    pub success: &'static [u16],
}

impl ClientCall {
    /// Returns a GET whose status of success is 200.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        let accept = Some(JSON);
        Self { method: "GET", path: path.into(), accept, success: &[200], ..Self::default() }
    }

    /// Returns a request with a body whose status of success is 204.
    pub(crate) fn with_body(
        method: &'static str,
        path: impl Into<String>,
        content_type: impl Into<String>,
        body: Vec<u8>,
    ) -> Self {
        let accept = Some(JSON);
        Self {
            method,
            path: path.into(),
            accept,
            content_type: Some(content_type.into()),
            body,
            success: &[204],
            ..Self::default()
        }
    }

    pub(crate) fn succeeds_with(mut self, success: &'static [u16]) -> Self {
        self.success = success;
        self
    }

    pub(crate) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn accept_xml(mut self) -> Self {
        self.accept = Some("application/xml");
        self
    }

    /// Returns the full URL, with the SAS if there is one.
    fn url(&self, address: &Address) -> String {
        let mut url = format!("{}{}", address.tables, self.path);
        let mut separator = '?';
        for (name, value) in &self.query {
            url.push(separator);
            url.push_str(&format!("{name}={}", escape(value)));
            separator = '&';
        }
        if let EndpointCredentials::Sas(sas) = &address.credentials {
            url.push(separator);
            url.push_str(sas);
        }
        url
    }

    /// Returns the headers, signed for this time.
    fn signed(&self, address: &Address, now: Ticks) -> Vec<(&'static str, String)> {
        let date = now.to_http_date();
        let mut headers = vec![
            ("x-ms-version", VERSION.to_owned()),
            ("DataServiceVersion", "3.0;NetFx".to_owned()),
            ("MaxDataServiceVersion", "3.0;NetFx".to_owned()),
        ];
        headers.extend(self.accept.map(|accept| ("Accept", accept.to_owned())));
        headers.extend(self.content_type.clone().map(|value| ("Content-Type", value)));
        headers.extend(self.headers.iter().cloned());
        match &address.credentials {
            EndpointCredentials::Sas(_) => {}
            EndpointCredentials::Token(token) => headers.push(("Authorization", format!("Bearer {token}"))),
            EndpointCredentials::Key(key) => {
                let account = &address.account;
                let component = self.query.iter().find(|(name, _)| *name == "comp");
                let component = component.map_or(String::new(), |(_, value)| format!("?comp={value}"));
                let text = format!("{date}\n/{account}{}{}{component}", address.path(), self.path);
                let signature = STANDARD.encode(key.sign([text.as_str()]));
                headers.push(("Authorization", format!("SharedKeyLite {account}:{signature}")));
            }
        }
        headers.push(("x-ms-date", date));
        headers
    }
}

/// JSON with annotations for types that it cannot express.
const JSON: &str = "application/json;odata=minimalmetadata";

#[derive(Debug, Clone, Default)]
pub(crate) struct ClientAnswer {
    pub status: u16,
    /// The continuation token: the headers that begin with `x-ms-continuation-`, without this prefix.
    pub continuation: Vec<(String, String)>,
    pub content_type: String,
    /// The time that the answer states.
    pub date: Option<Ticks>,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceError {
    pub status: u16,
    pub code: String,
    /// The first line.
    pub message: String,
    /// The index of the refused operation in a change set.
    pub index: Option<usize>,
    /// The method and URL of the request.
    pub request: String,
}

#[derive(Deserialize)]
struct ErrorBody {
    #[serde(rename = "odata.error")]
    error: ErrorMembers,
}

#[derive(Deserialize)]
struct ErrorMembers {
    code: String,
    message: ErrorMessage,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorMessage {
    Object { value: String },
    Text(String),
}

impl std::fmt::Display for ServiceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { status, code, message, .. } = self;
        match code.as_str() {
            "" => write!(f, "{status}, which is not an answer of a Table service"),
            code => write!(f, "{status} {code}: {message}"),
        }
    }
}

impl From<ServiceError> for TransferError {
    fn from(refused: ServiceError) -> Self {
        let text = format!("{}: {refused}{}", refused.request, refused.advice().unwrap_or_default());
        if refused.is_of_account() { TransferError::NoAccess(text) } else { TransferError::Failed(text) }
    }
}

impl ServiceError {
    /// Returns advice on a refusal of credentials or of an account.
    fn advice(&self) -> Option<&'static str> {
        match self.code.as_str() {
            "AuthenticationFailed" | "AuthorizationFailure" | "InvalidAuthenticationInfo" => {
                Some("; see that the key or the signature is right, has not expired, and allows this")
            }
            "AuthorizationPermissionMismatch" | "AuthorizationResourceTypeMismatch" => {
                Some("; use a signature with more permissions")
            }
            "ResourceNotFound" if self.request.contains("/Tables") => {
                Some("; see that the name of the account is right")
            }
            _ => None,
        }
    }

    /// Whether every other request would be refused too.
    pub(crate) fn is_of_account(&self) -> bool {
        let is_account_absent = self.code == "ResourceNotFound" && self.request.contains("/Tables");
        let codes = ["AuthenticationFailed", "InvalidAuthenticationInfo", "AccountIsDisabled"];
        is_account_absent || codes.contains(&self.code.as_str())
    }

    /// Whether the resource does not exist. Only an error in the format of Azure proves that.
    pub(crate) fn is_absent(&self) -> bool {
        (self.status == 404 && !self.code.is_empty()) || self.code == "TableBeingDeleted"
    }
}

impl ClientAnswer {
    /// Parses the error in the body. The code is empty if a gateway has answered. Fails if the body is incomplete.
    pub(crate) fn parse_error(&self) -> Result<ServiceError, String> {
        let media_type = self.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let (code, message) = match media_type.as_str() {
            "application/xhtml+xml" => Some(ErrorText::default()),
            json if json.ends_with("json") => json_error(&self.body),
            xml if xml.ends_with("xml") => xml_error(&self.body),
            _ => Some(ErrorText::default()),
        }
        .ok_or_else(|| format!("{} with an incomplete error", self.status))?;
        let line = message.lines().next().unwrap_or_default();
        let (index, message) = match line.split_once(':') {
            Some((index, rest)) if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => {
                (index.parse().ok(), rest)
            }
            _ => (None, line),
        };
        Ok(ServiceError {
            status: self.status,
            code,
            message: message.to_owned(),
            index,
            request: String::new(),
        })
    }
}

/// The code and the message; both are empty if the body is not an error in the format of Azure.
type ErrorText = (String, String);

/// Parses an error in JSON; `None` if it is truncated.
fn json_error(body: &[u8]) -> Option<ErrorText> {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error: ErrorMembers { code, message } }) => match message {
            ErrorMessage::Object { value } | ErrorMessage::Text(value) => Some((code, value)),
        },
        Err(error) => error.is_data().then(ErrorText::default),
    }
}

/// Parses an error in XML; `None` if it is truncated.
fn xml_error(body: &[u8]) -> Option<ErrorText> {
    let root = xml::parse_strictly(body).ok()?;
    let text = |name: &str| {
        let child = root.children.iter().find(|child| child.name.eq_ignore_ascii_case(name));
        child.map(|child| child.text.clone()).unwrap_or_default()
    };
    let is_error = root.name.eq_ignore_ascii_case("error");
    Some(if is_error { (text("code"), text("message")) } else { ErrorText::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON_ERROR: &str = r#"{"odata.error":{"code":"EntityAlreadyExists","message":{"lang":"en-US","value":"7:Exists.\nRequestId:1"}}}"#;
    const XML_ERROR: &str = r#"<?xml version="1.0"?><m:error xmlns:m="x"><m:code>AuthenticationFailed</m:code><m:message xml:lang="en-US">No.
RequestId:1</m:message></m:error>"#;

    fn refused(content_type: &str, body: &str) -> Result<ServiceError, String> {
        let (content_type, body) = (content_type.to_owned(), body.into());
        ClientAnswer { status: 404, content_type, body, ..ClientAnswer::default() }.parse_error()
    }

    #[test]
    fn errors_are_read_from_json_and_xml() {
        let read = refused(JSON, JSON_ERROR).unwrap();
        assert_eq!(
            (read.code.as_str(), read.message.as_str(), read.index),
            ("EntityAlreadyExists", "Exists.", Some(7))
        );
        let read = refused("application/xml;charset=utf-8", XML_ERROR).unwrap();
        assert_eq!(
            (read.code.as_str(), read.message.as_str(), read.index),
            ("AuthenticationFailed", "No.", None)
        );
    }

    #[test]
    fn only_an_error_in_the_form_of_the_service_proves_absence() {
        let html = "<html><body><error><code>ResourceNotFound</code></error></body></html>";
        for (content_type, body) in [
            ("text/html", html),
            ("application/xhtml+xml", html),
            ("application/xml", html),
            ("text/html", JSON_ERROR),
            ("", JSON_ERROR),
            ("", ""),
            (JSON, r#"{"message":"no route","code":"NotFound"}"#),
        ] {
            assert!(!refused(content_type, body).unwrap().is_absent(), "{content_type} {body}");
        }
        assert!(refused(JSON, JSON_ERROR).unwrap().is_absent());
        let deleted = JSON_ERROR.replace("EntityAlreadyExists", "TableBeingDeleted");
        assert!(ServiceError { status: 409, ..refused(JSON, &deleted).unwrap() }.is_absent());
    }

    #[test]
    fn an_error_that_is_cut_is_no_answer() {
        for (content_type, whole) in [(JSON, JSON_ERROR), ("application/xml", XML_ERROR)] {
            for cut in 0..whole.len() {
                assert!(refused(content_type, &whole[..cut]).is_err(), "{}", &whole[..cut]);
            }
        }
    }
}
