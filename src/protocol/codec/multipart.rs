//! The multipart format of batches: reading and printing (protocol §8.2, §8.3).

use std::borrow::Cow;

use memchr::memmem;

use crate::error::{Code, Result};

/// Headers in the order sent, names in lower case.
pub(crate) type PartHeaders<'a> = Vec<(Cow<'a, str>, &'a str)>;

impl Part<'_> {
    const EMPTY: Self = Self { headers: Vec::new(), content: &[] };

    /// Whether there is nothing between its delimiters.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }
}

/// One part of a multipart body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// MIME headers, names in lower case.
    pub headers: PartHeaders<'a>,
    /// The text after the empty line.
    pub content: &'a [u8],
}

/// A request inside a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerRequest<'a> {
    pub method: &'a str,
    pub target: &'a str,
    /// Headers of the request, names in lower case.
    pub headers: PartHeaders<'a>,
    pub body: &'a [u8],
}

/// Maximum parts: one more than a change set may hold, so that the error of too many operations is
/// reported.
pub const MAX_PARTS: usize = 101;

/// Returns the boundary in a Content-Type, if it is multipart/mixed.
pub(crate) fn boundary(content_type: &str) -> Option<&str> {
    let mut parts = content_type.split(';');
    if !parts.next()?.trim().eq_ignore_ascii_case("multipart/mixed") {
        return None;
    }
    parts.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim().trim_matches('"');
        (name.trim().eq_ignore_ascii_case("boundary") && !value.is_empty()).then_some(value)
    })
}

/// Splits a body at its boundary. Lines end with CRLF or LF; text before the first and after the
/// closing delimiter is ignored, and so are empty parts. Parsing stops after `MAX_PARTS` parts.
///
/// # Errors
/// [`Code::InvalidInput`] without an opening delimiter, or with a part whose
/// headers do not end.
pub fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>> {
    let mut parts = Vec::new();
    let mut open: Option<usize> = None;
    let dashed = ["--", boundary].concat();
    for at in memmem::find_iter(body, &dashed) {
        let Some(delimiter) = delimiter(body, at, dashed.len()) else { continue };
        if let Some(start) = open {
            add(&mut parts, part(&body[start..content_end(body, at).max(start)])?);
            if parts.len() == MAX_PARTS {
                return Ok(parts);
            }
        }
        open = Some(delimiter.next);
        if delimiter.closing {
            return Ok(parts);
        }
    }
    match open {
        None => Err(Code::InvalidInput.into()),
        // The closing delimiter is missing: the last part ends with the body. If nothing follows,
        // this was the closing delimiter without its dashes.
        Some(start) => {
            if let Some(last) = part(&body[start.min(body.len())..])? {
                add(&mut parts, Some(last));
            }
            Ok(parts)
        }
    }
}

/// Empty parts count only if there are no others.
fn add<'a>(parts: &mut Vec<Part<'a>>, part: Option<Part<'a>>) {
    match part {
        Some(part) => {
            if parts.first().is_some_and(Part::is_empty) {
                parts.clear();
            }
            parts.push(part);
        }
        None if parts.is_empty() => parts.push(Part::EMPTY),
        None => {}
    }
}

/// Parses the request in a part of type application/http.
///
/// # Errors
/// [`Code::InvalidInput`] for an invalid HTTP request.
pub fn request<'a>(content: &'a [u8]) -> Result<InnerRequest<'a>> {
    let mut rest = content;
    while let Some(line) = lines(rest).next().filter(|l| l.start == l.end && l.next > l.start) {
        rest = &rest[line.next..];
    }
    let line = lines(rest).next().ok_or(Code::InvalidInput)?;
    let text = utf8(&rest[..line.end])?;
    let (method, tail) = split_at_byte(text, memchr::memchr(b' ', text.as_bytes()))?;
    let (target, version) = split_at_byte(tail, memchr::memrchr(b' ', tail.as_bytes()))?;
    if !version.starts_with("HTTP/") || method.is_empty() {
        return Err(Code::InvalidInput.into());
    }
    let (headers, body) = headers(&rest[line.next..])?;
    Ok(InnerRequest { method, target: target.trim(), headers, body })
}

/// Splits text before and after a character of one byte, if it contains it.
fn split_at_byte(text: &str, at: Option<usize>) -> Result<(&str, &str)> {
    let at = at.ok_or(Code::InvalidInput)?;
    Ok((&text[..at], &text[at + 1..]))
}

struct Line {
    start: usize,
    /// The end of the text, before CRLF or LF.
    end: usize,
    /// The start of the next line.
    next: usize,
}

fn lines(body: &[u8]) -> impl Iterator<Item = Line> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= body.len() {
            return None;
        }
        let newline = memchr::memchr(b'\n', &body[at..]).map(|n| at + n);
        let next = newline.map_or(body.len(), |n| n + 1);
        let mut end = newline.unwrap_or(body.len());
        if end > at && body[end - 1] == b'\r' {
            end -= 1;
        }
        let line = Line { start: at, end, next };
        at = next;
        Some(line)
    })
}

struct Delimiter {
    closing: bool,
    /// The start of the next line.
    next: usize,
}

/// Returns the delimiter line of dashes and boundary that were found at a position, unless they are
/// inside a line, or other text follows on it.
fn delimiter(body: &[u8], at: usize, length: usize) -> Option<Delimiter> {
    if at > 0 && body[at - 1] != b'\n' {
        return None;
    }
    let rest = &body[at + length..];
    let line = lines(rest).next().unwrap_or(Line { start: 0, end: 0, next: 0 });
    let closing = match rest[..line.end].trim_ascii_end() {
        b"" => false,
        b"--" => true,
        _ => return None,
    };
    Some(Delimiter { closing, next: at + length + line.next })
}

/// The line break before a delimiter belongs to the delimiter.
fn content_end(body: &[u8], delimiter_start: usize) -> usize {
    let before = &body[..delimiter_start];
    let before = before.strip_suffix(b"\n").unwrap_or(before);
    before.strip_suffix(b"\r").unwrap_or(before).len()
}

/// `None` for an empty part.
fn part(bytes: &[u8]) -> Result<Option<Part<'_>>> {
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let (headers, content) = headers(bytes)?;
    Ok(Some(Part { headers, content }))
}

/// Parses header lines up to an empty line, and returns what follows. A body may be missing
/// together with its empty line.
fn headers(bytes: &[u8]) -> Result<(PartHeaders<'_>, &[u8])> {
    const MAX_HEADERS: usize = 64;
    let mut headers = Vec::with_capacity(8);
    for line in lines(bytes) {
        if line.start == line.end {
            return Ok((headers, &bytes[line.next..]));
        }
        let text = utf8(&bytes[line.start..line.end])?;
        let (name, value) = split_at_byte(text, memchr::memchr(b':', text.as_bytes()))?;
        if headers.len() == MAX_HEADERS {
            return Err(Code::InvalidInput.into());
        }
        headers.push((in_lower_case(trimmed(name)), trimmed(value)));
    }
    Ok((headers, &[]))
}

/// Header names of all parts of change sets, in lower case, so that a hundred parts need not
/// allocate them.
const COMMON: [&str; 10] = [
    "accept",
    "content-id",
    "content-length",
    "content-transfer-encoding",
    "content-type",
    "dataserviceversion",
    "if-match",
    "maxdataserviceversion",
    "prefer",
    "x-ms-version",
];

fn in_lower_case(name: &str) -> Cow<'_, str> {
    let common = COMMON.into_iter().find(|common| common.eq_ignore_ascii_case(name));
    common.map_or_else(|| name.to_ascii_lowercase().into(), Cow::Borrowed)
}

/// Returns the text without white space around it; usually that is at most one space before it.
fn trimmed(text: &str) -> &str {
    let text = text.strip_prefix(' ').unwrap_or(text);
    match text.as_bytes() {
        [first, .., last] if first.is_ascii_graphic() && last.is_ascii_graphic() => text,
        _ => text.trim(),
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| Code::InvalidInput.into())
}

/// The answer to one operation in a batch response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerAnswer {
    pub status: u16,
    /// Headers in the order they are printed.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    pub body: Vec<u8>,
}

/// Prints a batch response around a change set's answers.
pub fn change_set_response(batch: &str, change_set: &str, answers: &[InnerAnswer]) -> Vec<u8> {
    let text = format!("--{batch}\r\nContent-Type: multipart/mixed; boundary={change_set}\r\n\r\n");
    let room = answers.iter().fold(2 * text.len(), |sum, a| sum + room(a, change_set));
    let mut out = Vec::with_capacity(room);
    out.extend_from_slice(text.as_bytes());
    for answer in answers {
        push_answer(&mut out, change_set, answer);
    }
    out.extend_from_slice(format!("--{change_set}--\r\n--{batch}--\r\n").as_bytes());
    out
}

/// Prints a batch response around the answer to a single query.
pub(crate) fn query_response(batch: &str, answer: &InnerAnswer) -> Vec<u8> {
    let mut out = Vec::with_capacity(room(answer, batch) + batch.len() + 8);
    push_answer(&mut out, batch, answer);
    out.extend_from_slice(format!("--{batch}--\r\n").as_bytes());
    out
}

/// Returns the maximum bytes of a printed answer.
fn room(answer: &InnerAnswer, boundary: &str) -> usize {
    const LINES: usize = 160;
    let headers = answer.headers.iter().map(|(name, value)| name.len() + value.len() + 4);
    LINES + boundary.len() + headers.sum::<usize>() + answer.body.len()
}

fn push_answer(out: &mut Vec<u8>, boundary: &str, answer: &InnerAnswer) {
    let mut push = |text: &str| out.extend_from_slice(text.as_bytes());
    push("--");
    push(boundary);
    push("\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\nHTTP/1.1 ");
    push(&answer.status.to_string());
    push(" ");
    push(reason(answer.status));
    for (name, value) in &answer.headers {
        push("\r\n");
        push(name);
        push(": ");
        push(value);
    }
    push("\r\n\r\n");
    out.extend_from_slice(&answer.body);
    out.extend_from_slice(b"\r\n");
}

/// Returns the reason phrase of a status that occurs inside batches.
const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        412 => "Precondition Failed",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CRLF: &str = "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\
        Content-Type: application/http\r\n\r\nPUT http://h/T(PartitionKey='a b',RowKey='') HTTP/1.1\r\n\
        If-Match: *\r\nContent-Length: 999\r\n\r\n{\"a\":\r\n1}\r\n--c--\r\n\r\n--b--\r\n";

    fn check(body: &str) {
        let outer = parts(body.as_bytes(), "b").unwrap();
        assert_eq!(outer.len(), 1);
        let inner = parts(outer[0].content, boundary(outer[0].headers[0].1).unwrap()).unwrap();
        assert_eq!(inner.len(), 1);
        let request = request(inner[0].content).unwrap();
        assert_eq!((request.method, request.target), ("PUT", "http://h/T(PartitionKey='a b',RowKey='')"));
        assert_eq!(request.headers[0], ("if-match".into(), "*"));
        let json: serde_json::Value = serde_json::from_slice(request.body).unwrap();
        assert_eq!(json["a"], 1);
    }

    #[test]
    fn line_ends_may_be_crlf_or_lf_or_mixed() {
        check(CRLF);
        check(&CRLF.replace("\r\n", "\n"));
        check(&CRLF.replacen("\r\n", "\n", 5));
        check(CRLF.trim_end());
        check(&format!("preamble\r\n{CRLF}epilogue"));
        check(&CRLF.replace("--b--\r\n", ""));
        check(&CRLF.replace("--b--\r\n", "--b\r\n"));
        check(&CRLF.replace("--c--\r\n\r\n--b--\r\n", "--c\n--b"));
        check(
            &CRLF
                .replace("HTTP/1.1\r\n", "HTTP/1.1\r\nContent-ID: 1\r\n")
                .replace("If-Match: *\r\nContent-Length", "X: y\r\nContent-Length")
                .replacen("Content-ID: 1", "If-Match: *", 1),
        );
    }

    #[test]
    fn headers_are_trimmed_and_their_names_are_in_lower_case() {
        let text = "Content-Type: a;b \r\nX-Other :\u{a0} c\nACCEPT:*/*\nÀ: \n B :  \r\n\r\nrest";
        let (found, rest) = headers(text.as_bytes()).unwrap();
        let expected = [("content-type", "a;b"), ("x-other", "c"), ("accept", "*/*"), ("À", ""), ("b", "")];
        assert_eq!(found, expected.map(|(name, value)| (name.into(), value)));
        assert_eq!(rest, b"rest");
    }

    #[test]
    fn a_request_without_body_may_end_anyhow() {
        for tail in ["", "\r\n", "\r\n\r\n", "\n\n\n"] {
            let text = format!("DELETE /T(PartitionKey='',RowKey='') HTTP/1.1\r\nIf-Match: *{tail}");
            let request = request(text.as_bytes()).unwrap();
            assert!(request.body.trim_ascii().is_empty());
            assert_eq!(request.headers.len(), 1);
        }
    }

    #[test]
    fn boundaries_may_be_quoted_and_lines_that_only_hold_one_are_content() {
        assert_eq!(boundary("multipart/mixed; boundary=\"x y\"; charset=\"utf-8\""), Some("x y"));
        assert_eq!(boundary("Multipart/Mixed;charset=utf-8;BOUNDARY=b"), Some("b"));
        for none in ["application/json", "multipart/mixed", "multipart/mixed; boundary=", ""] {
            assert_eq!(boundary(none), None, "{none}");
        }
        for line in ["--bx", "x--b", " --b--", "--bx--b"] {
            let body = format!("--b\r\n\r\n{line}\r\n--b--\r\n");
            assert_eq!(parts(body.as_bytes(), "b").unwrap()[0].content, line.as_bytes());
        }
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parts(b"", "b").is_err());
        assert!(parts(b"no delimiter", "b").is_err());
        assert!(parts(b"--b\r\nno colon\r\n\r\n--b--", "b").is_err());
        for bad in ["", "\r\n", "GET", "GET /x", "GET /x FTP/1", "\u{1}", " /x HTTP/1.1"] {
            assert!(request(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert!(request(b"GET /\xff HTTP/1.1\r\n\r\n").is_err());
    }

    #[test]
    fn responses_print_byte_for_byte_as_recorded() {
        let answer = InnerAnswer {
            status: 204,
            headers: vec![("X-Content-Type-Options", "nosniff".into()), ("ETag", "W/\"x\"".into())],
            body: vec![],
        };
        let text =
            String::from_utf8(change_set_response("batchresponse_1", "changesetresponse_2", &[answer]))
                .unwrap();
        assert_eq!(
            text,
            "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n\
             --changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n\
             HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nETag: W/\"x\"\r\n\r\n\r\n\
             --changesetresponse_2--\r\n--batchresponse_1--\r\n"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parts(&body, "b");
            let _ = request(&body);
        }

        #[test]
        fn no_line_soup_makes_the_parser_panic(lines in prop::collection::vec(prop::sample::select(vec![
            "--b", "--b--", "--c", "", "\r", "A: b", "GET / HTTP/1.1", "x",
        ]), 0..12)) {
            let body = lines.join("\n");
            for part in parts(body.as_bytes(), "b").unwrap_or_default() {
                let _ = parts(part.content, "c");
                let _ = request(part.content);
            }
        }
    }
}
