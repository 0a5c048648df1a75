//! Change sets: writes of one partition that succeed or fail together (protocol §8).

use crate::client::ClientCall;
use crate::client::{ClientAnswer, ServiceError};

pub(crate) const MAX_OPERATIONS: usize = 100;
/// Maximum bytes of the bodies of a change set, below Azure's 4 MiB for the whole batch.
pub(crate) const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;
/// Bytes of an operation without its body, approximately.
pub(crate) const HEAD_BYTES: usize = 512;
const BOUNDARY: &str = "batch_rowhouse";
const INNER: &str = "changeset_rowhouse";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetVerb<'a> {
    Insert,
    InsertOrMerge,
    InsertOrReplace,
    /// Deletes the version with this ETag, or any version if it is `*`.
    Delete(&'a str),
}

pub(crate) struct ChangeSetBody {
    tables: String,
    text: String,
}

impl ChangeSetBody {
    /// Begins a change set. `bytes` is the expected number of bytes of its operations.
    pub(crate) fn new(tables: &str, bytes: usize) -> Self {
        let mut text = String::with_capacity(bytes + HEAD_BYTES);
        text.push_str(&format!("--{BOUNDARY}\r\nContent-Type: multipart/mixed; boundary={INNER}\r\n\r\n"));
        Self { tables: tables.to_owned(), text }
    }

    /// Adds an operation. `resource` is the path of the table or entity without a leading slash.
    pub(crate) fn add(&mut self, verb: SetVerb<'_>, resource: &str, body: &str) {
        let (method, condition) = match verb {
            SetVerb::Insert => ("POST", "Prefer: return-no-content\r\n".to_owned()),
            SetVerb::InsertOrMerge => ("MERGE", String::new()),
            SetVerb::InsertOrReplace => ("PUT", String::new()),
            SetVerb::Delete(tag) => ("DELETE", format!("If-Match: {tag}\r\n")),
        };
        let head = format!(
            "--{INNER}\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
             {method} {}/{resource} HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n{condition}",
            self.tables,
        );
        self.text.push_str(&head);
        if !matches!(verb, SetVerb::Delete(_)) {
            self.text.push_str("Content-Type: application/json\r\n");
        }
        self.text.push_str("\r\n");
        self.text.push_str(body);
        self.text.push_str("\r\n");
    }

    pub(crate) fn call(mut self) -> ClientCall {
        self.text.push_str(&format!("--{INNER}--\r\n--{BOUNDARY}--\r\n"));
        let content_type = format!("multipart/mixed; boundary={BOUNDARY}");
        ClientCall::with_body("POST", "/$batch", content_type, self.text.into_bytes()).succeeds_with(&[202])
    }

    /// Reads the answer to a change set: success, or the refusal of an operation. A refused change set has changed
    /// nothing.
    pub(crate) fn read(answer: &ClientAnswer) -> Result<Result<(), ServiceError>, String> {
        let text = String::from_utf8_lossy(&answer.body);
        let mut parts = text.split("\nHTTP/1.1 ").skip(1).peekable();
        // Both boundaries must be closed.
        if parts.peek().is_none() || !text.trim_end().ends_with("--") {
            return Err("the answer to a change set is incomplete".into());
        }
        for part in parts {
            let status = part.get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
            match status {
                201 | 204 => {}
                400.. => {
                    let (head, body) = part.split_once("\r\n\r\n").unwrap_or((part, ""));
                    let body = body.split("\r\n--").next().unwrap_or_default().trim().into();
                    let content_type = content_type(head);
                    return ClientAnswer { status, content_type, body, ..ClientAnswer::default() }
                        .parse_error()
                        .map(Err);
                }
                other => return Err(format!("an operation of a change set is answered {other}")),
            }
        }
        Ok(Ok(()))
    }
}

fn content_type(head: &str) -> String {
    let mut headers = head.lines().filter_map(|line| line.split_once(':'));
    let found = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::codec::multipart;

    #[test]
    fn a_change_set_reads_back_as_the_server_reads_it() {
        let mut set = ChangeSetBody::new("http://h/abc", 0);
        set.add(SetVerb::Insert, "People", "{}");
        set.add(SetVerb::Delete("*"), "People(PartitionKey='a',RowKey='b')", "");
        let call = set.call();
        let boundary = multipart::boundary(call.content_type.as_deref().unwrap()).unwrap();
        let outer = multipart::parts(&call.body, boundary).unwrap();
        assert_eq!(outer.len(), 1);
        let inner = multipart::parts(outer[0].content, INNER).unwrap();
        let methods = inner.iter().map(|part| multipart::request(part.content).unwrap().method);
        assert_eq!(methods.collect::<Vec<_>>(), ["POST", "DELETE"]);
    }

    #[test]
    fn a_refused_part_is_found() {
        let part = |status: &str, body: &str| {
            let text = format!(
                "--b\r\nContent-Type: multipart/mixed\r\n\r\n--c\r\n\r\nHTTP/1.1 {status}\r\nContent-Type: application/json;charset=utf-8\r\n\r\n{body}\r\n--c--\r\n--b--"
            );
            ChangeSetBody::read(&ClientAnswer { status: 202, body: text.into(), ..ClientAnswer::default() })
        };
        assert_eq!(part("204 No Content", ""), Ok(Ok(())));
        let body = r#"{"odata.error":{"code":"EntityAlreadyExists","message":{"lang":"en-US","value":"3:Exists."}}}"#;
        let refused = part("409 Conflict", body).unwrap().unwrap_err();
        assert_eq!(
            (refused.status, refused.code.as_str(), refused.index),
            (409, "EntityAlreadyExists", Some(3))
        );
        assert!(part("200 OK", "").is_err());
    }

    #[test]
    fn an_answer_that_is_cut_short_tells_nothing() {
        let whole = "--b\r\nContent-Type: multipart/mixed\r\n\r\n--c\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\r\n--c--\r\n--b--\r\n";
        let read = |text: &str| {
            ChangeSetBody::read(&ClientAnswer { status: 202, body: text.into(), ..ClientAnswer::default() })
        };
        assert_eq!(read(whole), Ok(Ok(())));
        assert!(["", "<html></html>", &whole[..whole.len() / 2]].iter().all(|text| read(text).is_err()));
    }
}
