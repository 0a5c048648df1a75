//! Entity group transactions: building them and taking answers apart.

use serde_json::Value;

use super::answer::{Answer, Asked, is_guid};
use super::client::{Client, Request};
use super::http::Raw;
use super::refusals::Refusal;
use super::table::Table;

/// A change set under construction.
#[derive(Clone)]
pub struct Batch {
    operations: Vec<String>,
    /// Between all lines.
    pub newline: &'static str,
}

impl Batch {
    /// An empty change set with CRLF line ends.
    pub fn new() -> Self {
        Self { operations: Vec::new(), newline: "\r\n" }
    }

    /// With bare LF, as older clients send it.
    pub fn with_bare_line_feeds() -> Self {
        Self { operations: Vec::new(), newline: "\n" }
    }

    /// One nested request; headers as complete lines.
    pub fn operation(mut self, verb: &str, target: &str, headers: &[&str], body: &str) -> Self {
        let mut lines = vec![format!("{verb} {target} HTTP/1.1")];
        lines.extend(headers.iter().map(|h| (*h).to_owned()));
        lines.push(String::new());
        lines.push(body.to_owned());
        self.operations.push(lines.join("\n"));
        self
    }

    /// Insert, answered without content.
    pub fn insert(self, table: &Table, entity: &Value) -> Self {
        let headers = [JSON, ACCEPT, "DataServiceVersion: 3.0", "Prefer: return-no-content"];
        self.operation("POST", &table.client.url(&table.set()), &headers, &entity.to_string())
    }

    /// Insert, answered with the entity.
    pub fn insert_echo(self, table: &Table, entity: &Value) -> Self {
        let headers = [JSON, ACCEPT, "DataServiceVersion: 3.0"];
        self.operation("POST", &table.client.url(&table.set()), &headers, &entity.to_string())
    }

    /// PUT, MERGE or PATCH.
    pub fn write(
        self,
        verb: &str,
        table: &Table,
        keys: (&str, &str),
        entity: &Value,
        etag: Option<&str>,
    ) -> Self {
        let url = table.client.url(&table.path(keys.0, keys.1));
        let condition = etag.map(|etag| format!("If-Match: {etag}"));
        let mut headers = vec![JSON, ACCEPT, "DataServiceVersion: 3.0"];
        headers.extend(condition.as_deref());
        self.operation(verb, &url, &headers, &entity.to_string())
    }

    /// DELETE.
    pub fn delete(self, table: &Table, partition: &str, row: &str, etag: &str) -> Self {
        let url = table.client.url(&table.path(partition, row));
        self.operation("DELETE", &url, &[ACCEPT, &format!("If-Match: {etag}")], "")
    }

    /// The body between the boundaries `batch_b` and `changeset_c`.
    pub fn body(&self) -> String {
        let mut lines = vec![
            "--batch_b".to_owned(),
            "Content-Type: multipart/mixed; boundary=changeset_c".into(),
            String::new(),
        ];
        for operation in &self.operations {
            lines.push("--changeset_c".into());
            lines.push("Content-Type: application/http".into());
            lines.push("Content-Transfer-Encoding: binary".into());
            lines.push(String::new());
            lines.push(operation.clone());
        }
        lines.push("--changeset_c--".into());
        lines.push("--batch_b--".into());
        lines.push(String::new());
        lines.join("\n").replace('\n', self.newline)
    }

    /// Sends it and demands 202.
    #[track_caller]
    pub fn send(&self, client: &Client) -> BatchAnswer {
        BatchAnswer::of(post(client, self.body()).send())
    }

    /// Sends it and demands that each operation succeeds.
    #[track_caller]
    pub fn commit(&self, client: &Client) -> BatchAnswer {
        let answer = self.send(client);
        assert_eq!(answer.parts.len(), self.operations.len(), "{}", answer.outer);
        for part in &answer.parts {
            assert!(matches!(part.status, 201 | 204), "{}", answer.outer);
        }
        answer
    }
}

const JSON: &str = "Content-Type: application/json";
const ACCEPT: &str = "Accept: application/json;odata=minimalmetadata";

/// A `$batch` request with this body between `batch_b` boundaries.
pub fn post(client: &Client, body: impl Into<Vec<u8>>) -> Request<'_> {
    client.request("POST", "/$batch").header("Content-Type", "multipart/mixed; boundary=batch_b").body(body)
}

/// A batch that holds one GET.
pub fn query_batch(url: &str) -> String {
    format!(
        "--batch_b\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
         GET {url} HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\n\
         DataServiceVersion: 3.0\r\n\r\n\r\n--batch_b--\r\n"
    )
}

/// One nested answer.
#[derive(Debug, Clone)]
pub struct Part {
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// Everything between the MIME headers and the next boundary.
    pub raw: String,
}

impl Part {
    /// The header's value, which must be there.
    #[track_caller]
    pub fn need(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(n, _)| n == name);
        &found.unwrap_or_else(|| panic!("no {name} in {}", self.raw)).1
    }

    /// Names of the headers in their order, joined by commas.
    pub fn header_names(&self) -> String {
        self.headers.iter().map(|(n, _)| n.as_str()).collect::<Vec<_>>().join(",")
    }
}

/// The outer answer and its parts.
#[derive(Debug)]
pub struct BatchAnswer {
    pub outer: Answer,
    pub parts: Vec<Part>,
    /// Whether the parts stand in a change set, as they do but for a GET.
    pub in_change_set: bool,
}

impl BatchAnswer {
    /// Takes a 202 apart; every byte of its framing must be as recorded.
    #[track_caller]
    pub fn of(outer: Answer) -> Self {
        let outer = outer.expect(202);
        let kind = outer.need("Content-Type").to_owned();
        let boundary = kind.strip_prefix("multipart/mixed; boundary=").unwrap_or_default();
        let Some((in_change_set, parts)) = split(outer.text(), boundary) else {
            panic!("the framing is not the service's: {outer}")
        };
        Self { outer, parts, in_change_set }
    }

    /// Demands that the change set failed with this one answer; `message` is
    /// the first line with its index.
    #[track_caller]
    pub fn expect_failure(&self, status: u16, code: &str, message: &str) -> &Part {
        assert_eq!(self.parts.len(), 1, "a failure has one part: {}", self.outer);
        self.parts[0].as_answer(&self.outer).expect_error(status, code, message);
        &self.parts[0]
    }

    /// Demands that the operation at `index` failed for this reason.
    #[track_caller]
    pub fn refused(&self, index: usize, (status, code, message): Refusal) -> &Part {
        self.expect_failure(status, code, &format!("{index}:{message}"))
    }

    /// Demands that the only operation failed for this reason of the storage,
    /// which comes without an index (protocol §8.4).
    #[track_caller]
    pub fn refused_alone(&self, (status, code, message): Refusal) -> &Part {
        self.expect_failure(status, code, message)
    }

    /// As [`BatchAnswer::expect_failure`] where the text is not known, but for
    /// its index.
    #[track_caller]
    pub fn expect_failure_code(&self, status: u16, code: &str, index: usize) {
        assert_eq!(self.parts.len(), 1, "a failure has one part: {}", self.outer);
        let answer = self.parts[0].as_answer(&self.outer).expect_error_code(status, code);
        let value = answer.json()["odata.error"]["message"]["value"].to_string();
        assert!(value.starts_with(&format!("\"{index}:")), "index {index} in {}", self.outer);
    }
}

impl Part {
    /// The part as if it had been sent by itself.
    pub fn as_answer(&self, outer: &Answer) -> Answer {
        let id = outer.need("x-ms-request-id").to_owned();
        let mut headers = self.headers.clone();
        headers.push(("x-ms-request-id".into(), id));
        let raw = Raw {
            status: self.status,
            reason: self.reason.clone(),
            headers,
            body: self.body.clone().into_bytes(),
        };
        Answer::new(
            raw,
            Asked { line: "a part of a batch".into(), level: "minimalmetadata", ..Asked::default() },
        )
    }
}

/// Splits the body of a 202 by the exact framing of protocol §8.3; `None` if a
/// byte is out of place.
pub fn split(text: &str, boundary: &str) -> Option<(bool, Vec<Part>)> {
    is_guid(boundary.strip_prefix("batchresponse_")?).then_some(())?;
    let rest = text.strip_prefix(&format!("--{boundary}\r\n"))?;
    let rest = rest.strip_suffix(&format!("--{boundary}--\r\n"))?;
    if let Some(single) = rest.strip_prefix(MIME) {
        return Some((false, vec![part(single)?]));
    }
    let rest = rest.strip_prefix("Content-Type: multipart/mixed; boundary=")?;
    let (inner, rest) = rest.split_once("\r\n\r\n")?;
    is_guid(inner.strip_prefix("changesetresponse_")?).then_some(())?;
    let rest = rest.strip_suffix(&format!("--{inner}--\r\n"))?;
    let mut parts = Vec::new();
    let open = format!("--{inner}\r\n{MIME}");
    let mut pieces = rest.split(&open);
    pieces.next().filter(|before| before.is_empty())?;
    for piece in pieces {
        parts.push(part(piece)?);
    }
    Some((true, parts))
}

const MIME: &str = "Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n";

fn part(raw: &str) -> Option<Part> {
    let (head, body) = raw.split_once("\r\n\r\n")?;
    let mut lines = head.split("\r\n");
    let (status, reason) = lines.next()?.strip_prefix("HTTP/1.1 ")?.split_once(' ')?;
    let headers = lines
        .map(|line| line.split_once(": ").map(|(n, v)| (n.to_owned(), v.to_owned())))
        .collect::<Option<Vec<_>>>()?;
    Some(Part {
        status: status.parse().ok()?,
        reason: reason.to_owned(),
        headers,
        body: body.strip_suffix("\r\n")?.to_owned(),
        raw: raw.to_owned(),
    })
}
