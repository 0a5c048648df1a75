//! Answers and what must hold for every one of them.

use serde_json::Value;

use super::http::Raw;
use super::refusals::Refusal;

/// Names of headers in the letters of the service. HTTP ignores their case.
const LETTERS: [&str; 30] = [
    "Access-Control-Allow-Credentials",
    "Access-Control-Allow-Headers",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Origin",
    "Access-Control-Expose-Headers",
    "Access-Control-Max-Age",
    "Allow",
    "Cache-Control",
    "Connection",
    "Content-Length",
    "Content-Type",
    "DataServiceId",
    "DataServiceVersion",
    "Date",
    "ETag",
    "Location",
    "Preference-Applied",
    "Retry-After",
    "Server",
    "Transfer-Encoding",
    "Vary",
    "WWW-Authenticate",
    "X-Content-Type-Options",
    "x-ms-client-request-id",
    "x-ms-continuation-NextPartitionKey",
    "x-ms-continuation-NextRowKey",
    "x-ms-continuation-NextTableName",
    "x-ms-error-code",
    "x-ms-request-id",
    "x-ms-version",
];

/// Errors of operations that speak XML, and of the front end where no JSON was asked for.
const XML: [&str; 3] = [
    "<?xml version=\"1.0\" encoding=\"utf-8\"?><m:error \
     xmlns:m=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"><m:code>",
    "</m:code><m:message xml:lang=\"en-US\">",
    "</m:message></m:error>",
];
/// Errors of the table layer.
const TABLE_XML: [&str; 3] = [
    "<?xml version=\"1.0\" encoding=\"utf-8\"?><error \
     xmlns=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\"><code>",
    "</code><message xml:lang=\"en-US\">",
    "</message></error>",
];
/// The oldest form, which the front end has where a version is missing or is none.
const FRONT_END: [&str; 3] = [
    "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>\r\n\
     <error xmlns=\"http://schemas.microsoft.com/ado/2007/08/dataservices/metadata\">\r\n  <code>",
    "</code>\r\n  <message xml:lang=\"en-US\">",
    "</message>\r\n</error>",
];

/// What the request asked for, as far as the answer has to repeat it.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// Request line, for messages.
    pub line: String,
    pub version: Option<String>,
    pub client_request_id: Option<String>,
    pub accept: Option<String>,
    /// The metadata level that the answer should have.
    pub level: &'static str,
}

/// An answer together with its question.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub reason: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub asked: Asked,
}

impl Answer {
    /// Pairs what came with what was asked.
    pub fn new(raw: Raw, asked: Asked) -> Self {
        Self { status: raw.status, reason: raw.reason, headers: raw.headers, body: raw.body, asked }
    }

    /// The header's value; it must not occur twice.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let first = found.next().map(|(_, v)| v.as_str());
        assert!(found.next().is_none(), "{name} occurs twice in {self}");
        first
    }

    /// The header's value, which must be there.
    #[track_caller]
    pub fn need(&self, name: &str) -> &str {
        self.header(name).unwrap_or_else(|| panic!("no {name} in {self}"))
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap_or_else(|e| panic!("the body is not UTF-8 ({e}): {self}"))
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_else(|e| panic!("the body is not JSON ({e}): {self}"))
    }

    /// Demands a status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self}");
        self
    }

    /// Demands 200 and JSON in the level that was asked for.
    #[track_caller]
    pub fn expect_json(self) -> Value {
        let answer = self.expect(200);
        assert_eq!(answer.need("Content-Type"), answer.odata_type(), "{answer}");
        answer.json()
    }

    /// Demands 204 with nothing in it.
    #[track_caller]
    pub fn expect_no_content(self) -> Self {
        let answer = self.expect(204);
        assert_eq!(answer.header("Content-Type"), None, "{answer}");
        answer
    }

    /// The content type of JSON at the level that was asked for.
    pub fn odata_type(&self) -> String {
        format!("application/json;odata={};streaming=true;charset=utf-8", self.asked.level)
    }

    /// Demands an error of the table layer with everything that protocol §4.7
    /// says about it; `message` is the first line.
    #[track_caller]
    pub fn expect_error(self, status: u16, code: &str, message: &str) -> Self {
        let (found_code, found_message) = self.odata_error();
        assert_eq!(
            (self.status, found_code.as_str(), found_message.as_str()),
            (status, code, message),
            "{self}"
        );
        assert_eq!(self.need("Content-Type"), self.odata_type(), "{self}");
        assert_eq!(self.header("x-ms-error-code"), None, "only front-end errors carry it: {self}");
        assert_eq!(self.header("ETag"), None, "{self}");
        assert_eq!(self.header("Location"), None, "{self}");
        self
    }

    /// Demands this error of the table layer.
    #[track_caller]
    pub fn refused(self, (status, code, message): Refusal) -> Self {
        self.expect_error(status, code, message)
    }

    /// As [`Answer::expect_error`] where the service's text is not known.
    #[track_caller]
    pub fn expect_error_code(self, status: u16, code: &str) -> Self {
        let message = self.odata_error().1;
        self.expect_error(status, code, &message)
    }

    /// Demands an error raised before the table layer (protocol §10.4, §16).
    #[track_caller]
    pub fn turned_away(self, (status, code, message): Refusal) -> Self {
        assert_eq!(self.status, status, "{self}");
        assert_eq!(self.need("x-ms-error-code"), code, "{self}");
        let json = self.asked.accept.as_deref().unwrap_or("").contains("json");
        let kind = if json { "application/json" } else { "application/xml" };
        assert_eq!(self.need("Content-Type"), kind, "{self}");
        let is_old = self.asked.version.is_none() && !self.asked.line.starts_with("OPTIONS ");
        let (found_code, found_message) = match json {
            _ if is_old => self.error_in(FRONT_END),
            true => self.odata_error(),
            false => self.error_in(XML),
        };
        assert_eq!((found_code.as_str(), found_message.as_str()), (code, message), "{self}");
        self
    }

    /// Demands an error of an operation that speaks XML (protocol §4.7).
    #[track_caller]
    pub fn refused_in_xml(self, (status, code, message): Refusal) -> Self {
        assert_eq!(self.status, status, "{self}");
        assert_eq!(self.need("x-ms-error-code"), code, "{self}");
        assert_eq!(self.need("Content-Type"), "application/xml", "{self}");
        let (found_code, found_message) = self.error_in(XML);
        assert_eq!((found_code.as_str(), found_message.as_str()), (code, message), "{self}");
        self
    }

    /// Demands a document of an operation that speaks XML, which begins with a
    /// byte order mark and a declaration; returns the rest.
    #[track_caller]
    pub fn expect_xml(self) -> String {
        let answer = self.expect(200);
        assert_eq!(answer.need("Content-Type"), "application/xml", "{answer}");
        assert_eq!(answer.header("Cache-Control"), None, "{answer}");
        let rest = answer.text().strip_prefix("\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?>");
        rest.unwrap_or_else(|| panic!("no byte order mark and declaration: {answer}")).to_owned()
    }

    /// Demands the refusal of a version that is none (protocol §2.1): the form is another
    /// than that of all other errors, whatever Accept says.
    #[track_caller]
    pub fn is_no_version(&self) {
        let (status, code, message) = super::HEADER_VALUE;
        assert_eq!((self.status, self.reason.as_str()), (status, message), "{self}");
        assert_eq!(self.need("Content-Type"), "application/xml", "{self}");
        for name in ["Cache-Control", "X-Content-Type-Options", "x-ms-error-code"] {
            assert_eq!(self.header(name), None, "{name} {self}");
        }
        assert_eq!(self.error_in(FRONT_END), (code.to_owned(), message.to_owned()), "{self}");
    }

    /// Demands an error of the table layer in the XML that it has since 2013-08-15.
    #[track_caller]
    pub fn refused_in_table_xml(self, (status, code, message): Refusal) -> Self {
        assert_eq!(self.status, status, "{self}");
        assert_eq!(self.need("Content-Type"), "application/xml;charset=utf-8", "{self}");
        assert_eq!(self.error_in(TABLE_XML), (code.to_owned(), message.to_owned()), "{self}");
        self
    }

    /// Code and first line of the message of an error in a form: what stands before the code, between the two, and
    /// after the message.
    #[track_caller]
    fn error_in(&self, [before, between, after]: [&str; 3]) -> (String, String) {
        let parts = self.text().strip_prefix(before).and_then(|rest| {
            let (code, rest) = rest.split_once(between)?;
            Some((code, rest.strip_suffix(after)?))
        });
        let (code, whole) = parts.unwrap_or_else(|| panic!("not the form of this error: {self}"));
        (code.to_owned(), self.first_line(whole))
    }

    /// Code and first line of the message of a JSON error, whose form is
    /// checked to the byte.
    #[track_caller]
    fn odata_error(&self) -> (String, String) {
        let json = self.json();
        let error = &json["odata.error"];
        let text = |value: &Value| {
            value.as_str().unwrap_or_else(|| panic!("not the form of an error: {self}")).to_owned()
        };
        let (code, whole) = (text(&error["code"]), text(&error["message"]["value"]));
        let quoted = serde_json::to_string(&whole).expect("text is JSON");
        let form = format!(
            "{{\"odata.error\":{{\"code\":\"{code}\",\"message\":{{\"lang\":\"en-US\",\"value\":{quoted}}}}}}}"
        );
        assert_eq!(json, serde_json::from_str::<Value>(&form).expect("valid JSON"), "{self}");
        let head = &form[..form.find("\"value\"").expect("the form has a value")];
        assert!(self.text().starts_with(head), "members out of order: {self}");
        (code, self.first_line(&whole))
    }

    /// Splits `Text\nRequestId:…\nTime:…` and checks the last two lines.
    #[track_caller]
    fn first_line(&self, message: &str) -> String {
        let parts = message
            .rsplit_once("\nTime:")
            .and_then(|(rest, time)| Some((rest.rsplit_once("\nRequestId:")?, time)));
        let ((first, id), time) = parts.unwrap_or_else(|| panic!("no RequestId or Time line: {self}"));
        assert_eq!(id, self.need("x-ms-request-id"), "{self}");
        assert!(is_padded_time(time), "Time has seven digits: {self}");
        first.to_owned()
    }

    /// Demands what holds for every answer of the service (protocol §2.2).
    #[track_caller]
    pub fn check_invariants(&self) {
        assert!(is_guid(self.need("x-ms-request-id")), "{self}");
        let date = self.need("Date");
        let parsed = chrono::DateTime::parse_from_rfc2822(date);
        assert!(date.ends_with(" GMT") && parsed.is_ok(), "Date is RFC 1123: {self}");
        if let Some(id) = &self.asked.client_request_id {
            assert_eq!(self.need("x-ms-client-request-id"), id, "{self}");
        }
        if let Some(version) = &self.asked.version
            && is_version(version)
            && !matches!(self.status, 401 | 403)
        {
            assert_eq!(self.need("x-ms-version"), version, "{self}");
        }
        let kind = self.header("Content-Type").unwrap_or_default();
        // Operations that speak XML have none of the headers of the table layer.
        let bare = self.asked.line.contains("comp=") || self.asked.line.starts_with("OPTIONS ");
        if self.status == 204 && !bare || kind.contains("odata=") || kind.starts_with("multipart/") {
            assert_eq!(self.need("X-Content-Type-Options"), "nosniff", "{self}");
        }
        if self.status < 300 && self.status != 204 && !self.body.is_empty() {
            assert!(!kind.is_empty(), "a body has a type: {self}");
        }
        assert_eq!(self.header("Content-Encoding"), None, "the service does not compress: {self}");
        for (name, value) in &self.headers {
            assert!(value.bytes().all(|b| (0x20..0x7f).contains(&b)), "{name} is not plain text: {self}");
            assert!(LETTERS.contains(&name.as_str()), "{name} is not how the service spells it: {self}");
        }
    }
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "\n> {}", self.asked.line)?;
        writeln!(f, "< {} {}", self.status, self.reason)?;
        for (name, value) in &self.headers {
            writeln!(f, "< {name}: {value}")?;
        }
        let shown = &self.body[..self.body.len().min(3000)];
        writeln!(f, "{}", String::from_utf8_lossy(shown))
    }
}

/// `641b8807-b002-00e1-0bd3-32c0fb000000`, lower case.
pub fn is_guid(text: &str) -> bool {
    text.len() == 36
        && text.char_indices().all(|(i, c)| match i {
            8 | 13 | 18 | 23 => c == '-',
            _ => matches!(c, '0'..='9' | 'a'..='f'),
        })
}

/// `2017-08-30T13:20:10.4954562Z` with all seven digits.
fn is_padded_time(text: &str) -> bool {
    text.len() == 28 && text.ends_with('Z') && chrono::DateTime::parse_from_rfc3339(text).is_ok()
}

fn is_version(text: &str) -> bool {
    chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok() && text.len() == 10 && text >= "2009-04-14"
}

/// Demands that an ETag has the service's form and returns the Timestamp that
/// belongs to it.
#[track_caller]
pub fn timestamp_of(etag: &str) -> String {
    let inner = etag.strip_prefix("W/\"datetime'").and_then(|t| t.strip_suffix("'\""));
    let inner = inner.unwrap_or_else(|| panic!("not an ETag of the service: {etag}"));
    assert!(!inner.contains(':'), "colons are encoded: {etag}");
    let time = inner.replace("%3A", ":");
    assert!(is_canonical_time(&time), "not a canonical time: {etag}");
    time
}

/// Whether the fraction is trimmed as protocol §5.3 says.
pub fn is_canonical_time(text: &str) -> bool {
    let trimmed = match text.strip_suffix('Z').and_then(|t| t.split_once('.')) {
        Some((_, fraction)) => (1..=7).contains(&fraction.len()) && !fraction.ends_with('0'),
        None => true,
    };
    trimmed && text.ends_with('Z') && chrono::DateTime::parse_from_rfc3339(text).is_ok()
}
