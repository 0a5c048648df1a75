//! What a Table endpoint answered.

use serde::Deserialize;

use crate::transfer::error::TransferError;

/// JSON with annotations for types that it cannot express.
pub(super) const JSON: &str = "application/json;odata=minimalmetadata";

/// An answer, whatever its status.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientAnswer {
    pub status: u16,
    /// The continuation token: the headers that begin with `x-ms-continuation-`, without this prefix.
    pub continuation: Vec<(String, String)>,
    /// The `x-ms-error-code` header.
    pub error_code: Option<String>,
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
            "" => write!(f, "{status}, which is no answer of a Table service"),
            code => write!(f, "{status} {code}: {message}"),
        }
    }
}

impl From<ServiceError> for TransferError {
    fn from(refused: ServiceError) -> Self {
        TransferError::Failed(refused.to_string())
    }
}

impl ServiceError {
    /// Whether the service says that there is no such thing; a gateway's 404 does not say so.
    pub(crate) fn is_absent(&self) -> bool {
        self.status == 404 && !self.code.is_empty()
    }
}

impl ClientAnswer {
    /// Parses the error in the body: JSON, or the contents of `code` and `message` elements.
    pub(crate) fn refused(&self) -> ServiceError {
        let text = String::from_utf8_lossy(&self.body);
        let (code, message) = match serde_json::from_str::<ErrorBody>(&text) {
            Ok(ErrorBody { error: ErrorMembers { code, message } }) => match message {
                ErrorMessage::Object { value } | ErrorMessage::Text(value) => (code, value),
            },
            Err(_) => (tagged(&text, "code"), tagged(&text, "message")),
        };
        let code = if code.is_empty() { self.error_code.clone().unwrap_or_default() } else { code };
        let line = message.lines().next().unwrap_or_default();
        let (index, message) = match line.split_once(':') {
            Some((index, rest)) if !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit()) => {
                (index.parse().ok(), rest)
            }
            _ => (None, line),
        };
        ServiceError { status: self.status, code, message: message.to_owned(), index }
    }
}

/// Returns the content of the first element with this local name, ignoring case.
fn tagged(text: &str, name: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let beginnings = [format!("{name}>"), format!("{name} ")];
    let Some(at) = beginnings.iter().filter_map(|beginning| lower.find(beginning)).min() else {
        return String::new();
    };
    let content = text[at..].split_once('>').map_or("", |(_, rest)| rest);
    content.split('<').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_from_json_and_xml() {
        let refused =
            |body: &str| ClientAnswer { status: 409, body: body.into(), ..ClientAnswer::default() }.refused();
        let json = r#"{"odata.error":{"code":"EntityAlreadyExists","message":{"lang":"en-US","value":"7:Exists.\nRequestId:1"}}}"#;
        let read = refused(json);
        assert_eq!(
            (read.code.as_str(), read.message.as_str(), read.index),
            ("EntityAlreadyExists", "Exists.", Some(7))
        );
        let xml = r#"<?xml version="1.0"?><m:error xmlns:m="x"><m:code>AuthenticationFailed</m:code><m:message xml:lang="en-US">No.
RequestId:1</m:message></m:error>"#;
        let read = refused(xml);
        assert_eq!(
            (read.code.as_str(), read.message.as_str(), read.index),
            ("AuthenticationFailed", "No.", None)
        );
        assert_eq!(refused("garbage").code, "");
    }
}
