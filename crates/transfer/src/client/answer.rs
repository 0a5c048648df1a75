//! What a Table endpoint answered.

use serde::Deserialize;

use crate::error::TransferError;
use crate::protocol::codec::xml;

/// JSON with annotations for types that it cannot express.
pub(super) const JSON: &str = "application/json;odata=minimalmetadata";

/// An answer, whatever its status.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientAnswer {
    pub status: u16,
    /// The continuation token: the headers that begin with `x-ms-continuation-`, without this prefix.
    pub continuation: Vec<(String, String)>,
    pub content_type: String,
    pub body: Vec<u8>,
}

/// An error answer of the service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServiceError {
    pub status: u16,
    pub code: String,
    /// Its first line.
    pub message: String,
    /// The operation of a change set that it concerns.
    pub index: Option<usize>,
    /// What was asked for: the method and the address.
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
        let advice = refused.advice().unwrap_or_default();
        TransferError::Failed(format!("{}: {refused}{advice}", refused.request))
    }
}

impl ServiceError {
    /// What to do about a refusal that concerns the whole place.
    fn advice(&self) -> Option<&'static str> {
        let is_of_account = self.code == "ResourceNotFound" && self.request.contains("/Tables");
        match self.code.as_str() {
            "AuthenticationFailed" | "AuthorizationFailure" | "InvalidAuthenticationInfo" => {
                Some("; see that the key or the signature is right, has not expired, and allows this")
            }
            "AuthorizationPermissionMismatch" | "AuthorizationResourceTypeMismatch" => {
                Some("; use a signature with more permissions")
            }
            _ if is_of_account => Some("; see that the name of the account is right"),
            _ => None,
        }
    }

    /// Whether the service says that there is no such thing. Only an error in the service's own form proves it.
    pub(crate) fn is_absent(&self) -> bool {
        (self.status == 404 && !self.code.is_empty()) || self.code == "TableBeingDeleted"
    }
}

impl ClientAnswer {
    /// Reads the error of the service in the body. What a gateway sends in its place has no code.
    ///
    /// # Errors
    /// Why the body is no complete answer.
    pub(crate) fn refused(&self) -> Result<ServiceError, String> {
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

/// A code and a message; both are empty if the body is no error of the service.
type ErrorText = (String, String);

/// Reads an error in JSON; `None` if it is cut.
fn json_error(body: &[u8]) -> Option<ErrorText> {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error: ErrorMembers { code, message } }) => match message {
            ErrorMessage::Object { value } | ErrorMessage::Text(value) => Some((code, value)),
        },
        Err(error) => error.is_data().then(ErrorText::default),
    }
}

/// Reads an error in XML; `None` if it is cut.
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
        ClientAnswer { status: 404, content_type, body, ..ClientAnswer::default() }.refused()
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
