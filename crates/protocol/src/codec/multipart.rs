//! Reads and prints the multipart format of batches (protocol §8.2, §8.3).

use std::borrow::Cow;

use memchr::memmem;

use crate::codec::split_once;
use crate::error::{Code, Result};

/// One part of a multipart body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// The Content-Type among the MIME headers. The others have no meaning here.
    pub content_type: Option<&'a str>,
    /// The text after the empty line.
    pub content: &'a [u8],
    /// Whether there is nothing but white space between the delimiters.
    pub is_empty: bool,
}

impl Part<'_> {
    const EMPTY: Self = Self { content_type: None, content: &[], is_empty: true };
}

/// A request inside a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerRequest<'a> {
    pub method: &'a str,
    pub target: &'a str,
    /// Headers of the request in the order sent, with names in lower case.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    pub body: &'a [u8],
}

/// Maximum number of parts. It is one more than the maximum of a change set, so that the error for an oversized change
/// set can be reported.
pub const MAX_PARTS: usize = 101;

/// Returns the boundary in a Content-Type, if it is multipart/mixed.
pub fn boundary(content_type: &str) -> Option<&str> {
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

/// Splits a body at its boundary. Lines end with CRLF or LF. The first delimiter must begin a line. As recorded, every
/// other delimiter ends a part, even inside a line. Text before the first delimiter and after the closing delimiter is
/// ignored, as are empty parts. Parsing stops after `MAX_PARTS` parts.
///
/// # Errors
/// [`Code::InvalidInput`] without an opening delimiter, [`Code::BodyNotUnderstood`] for a part with
/// unreadable headers.
pub fn parts<'a>(body: &'a [u8], boundary: &str) -> Result<Vec<Part<'a>>> {
    let mut parts = Vec::new();
    let mut open: Option<usize> = None;
    let dashed = ["--", boundary].concat();
    for at in memmem::find_iter(body, &dashed) {
        let Some(delimiter) = delimiter(body, at + dashed.len()) else { continue };
        match open {
            Some(start) => {
                add_part(&mut parts, parse_part(&body[start..content_end(body, at).max(start)])?);
                if parts.len() == MAX_PARTS {
                    return Ok(parts);
                }
            }
            None if at > 0 && body[at - 1] != b'\n' => continue,
            None => {}
        }
        open = Some(delimiter.next);
        if delimiter.is_closing {
            return Ok(parts);
        }
    }
    match open {
        None => Err(Code::InvalidInput.into()),
        // The closing delimiter is missing, so the last part ends with the body. If the body ends here, the last
        // delimiter was the closing delimiter without its dashes.
        Some(start) => {
            if let Some(last) = parse_part(&body[start.min(body.len())..])? {
                add_part(&mut parts, Some(last));
            }
            Ok(parts)
        }
    }
}

/// Adds a part. Empty parts count only if there are no others.
fn add_part<'a>(parts: &mut Vec<Part<'a>>, part: Option<Part<'a>>) {
    match part {
        Some(part) => {
            if parts.first().is_some_and(|first| first.is_empty) {
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
/// [`Code::InvalidInput`] for content that is not an HTTP request, [`Code::BodyNotUnderstood`] for unreadable
/// headers.
pub fn request<'a>(content: &'a [u8]) -> Result<InnerRequest<'a>> {
    let line = lines(content).find(|line| line.start < line.end).ok_or(Code::InvalidInput)?;
    let text = utf8(&content[line.start..line.end])?;
    let (method, tail) = split_once(text, b' ').ok_or(Code::InvalidInput)?;
    let (target, version) = tail.rsplit_once(' ').ok_or(Code::InvalidInput)?;
    if !version.starts_with("HTTP/") || method.is_empty() {
        return Err(Code::InvalidInput.into());
    }
    let has_line_end = line.next > line.end;
    let mut headers = Vec::with_capacity(8);
    let add = |name, value| headers.push((to_lower_case(name), Cow::Borrowed(value)));
    let body =
        each_header(&content[line.next..], add).filter(|_| has_line_end).ok_or(Code::BodyNotUnderstood)?;
    if headers.iter().any(|(name, value)| name == "content-length" && !is_number(value)) {
        return Err(Code::BodyNotUnderstood.into());
    }
    Ok(InnerRequest { method, target: target.trim(), headers, body })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

struct Line {
    start: usize,
    /// The end of the line's text, before CRLF or LF.
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
    is_closing: bool,
    /// The start of the next line.
    next: usize,
}

/// Returns the delimiter whose dashes and boundary end at a position, unless other text follows on the same line. Reads
/// no further than that text, so that a body full of boundaries costs no more than any other body.
fn delimiter(body: &[u8], end: usize) -> Option<Delimiter> {
    let is_closing = body[end..].starts_with(b"--");
    let rest = &body[if is_closing { end + 2 } else { end }..];
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t' | b'\x0c' | b'\r')).count();
    match rest.get(blanks) {
        None => Some(Delimiter { is_closing, next: body.len() }),
        Some(b'\n') => Some(Delimiter { is_closing, next: body.len() - rest.len() + blanks + 1 }),
        Some(_) => None,
    }
}

/// Returns the end of the content before a delimiter. The line break before a delimiter belongs to the delimiter.
fn content_end(body: &[u8], delimiter_start: usize) -> usize {
    let before = &body[..delimiter_start];
    match before.strip_suffix(b"\n") {
        Some(before) => before.strip_suffix(b"\r").unwrap_or(before).len(),
        None => before.len(),
    }
}

/// Parses a part. Returns `None` for an empty part.
fn parse_part(bytes: &[u8]) -> Result<Option<Part<'_>>> {
    if bytes.trim_ascii().is_empty() {
        return Ok(None);
    }
    let mut content_type = None;
    let content = each_header(bytes, |name, value| {
        if name.eq_ignore_ascii_case("content-type") {
            content_type.get_or_insert(value);
        }
    });
    let content = content.ok_or(Code::BodyNotUnderstood)?;
    Ok(Some(Part { content_type, content, is_empty: false }))
}

/// Passes the headers up to an empty line and returns the remaining bytes, or `None` for unreadable headers. Without a
/// body, the empty line may be missing if the last header has a line break. Headers without it may be truncated.
fn each_header<'a>(bytes: &'a [u8], mut f: impl FnMut(&'a str, &'a str)) -> Option<&'a [u8]> {
    const MAX_HEADERS: usize = 64;
    let empty_line = lines(bytes).find(|line| line.start == line.end);
    let (end, rest) = match empty_line {
        Some(line) => (line.start, &bytes[line.next..]),
        None => (bytes.len(), &[][..]),
    };
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    for (number, line) in lines(text.as_bytes()).enumerate() {
        let line = &text[line.start..line.end];
        let colon = memchr::memchr(b':', line.as_bytes()).filter(|_| number < MAX_HEADERS)?;
        f(trimmed(&line[..colon]), trimmed(&line[colon + 1..]));
    }
    matches!(bytes[..end], [] | [.., b'\n']).then_some(rest)
}

/// Common header names in the parts of change sets, in lower case, which need no allocation.
const COMMON_HEADERS: [&str; 10] = [
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

fn to_lower_case(name: &str) -> Cow<'_, str> {
    let common = COMMON_HEADERS.into_iter().find(|common| common.eq_ignore_ascii_case(name));
    common.map_or_else(|| name.to_ascii_lowercase().into(), Cow::Borrowed)
}

/// Returns the text without surrounding white space. Usually, there is at most one leading space.
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

/// The response to one operation of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerAnswer {
    pub status: u16,
    /// Headers in the order in which they are printed.
    pub headers: Vec<(&'static str, Cow<'static, str>)>,
    pub body: Vec<u8>,
}

/// Prints a batch response with the responses to change sets, each with its own boundary.
pub fn change_sets_response(batch: &str, change_sets: &[(String, &[InnerAnswer])]) -> Vec<u8> {
    const LINES: usize = 64;
    let around = |boundary: &str| 2 * (LINES + batch.len() + boundary.len());
    let sizes = change_sets.iter().map(|(boundary, answers)| {
        answers.iter().fold(around(boundary), |sum, answer| sum + estimated_size(answer, boundary))
    });
    let mut out = Vec::with_capacity(sizes.sum());
    for (boundary, answers) in change_sets {
        let text = format!("--{batch}\r\nContent-Type: multipart/mixed; boundary={boundary}\r\n\r\n");
        out.extend_from_slice(text.as_bytes());
        for answer in *answers {
            push_answer(&mut out, boundary, answer);
        }
        out.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    }
    out.extend_from_slice(format!("--{batch}--\r\n").as_bytes());
    out
}

/// Prints a batch response with the response to a single query.
pub fn query_response(batch: &str, answer: &InnerAnswer) -> Vec<u8> {
    let mut out = Vec::with_capacity(estimated_size(answer, batch) + batch.len() + 8);
    push_answer(&mut out, batch, answer);
    out.extend_from_slice(format!("--{batch}--\r\n").as_bytes());
    out
}

/// Returns the maximum size of a printed response, in bytes.
fn estimated_size(answer: &InnerAnswer, boundary: &str) -> usize {
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
        304 => "Not Modified",
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
        let inner = parts(outer[0].content, boundary(outer[0].content_type.unwrap()).unwrap()).unwrap();
        assert_eq!(inner.len(), 1);
        let request = request(inner[0].content).unwrap();
        assert_eq!((request.method, request.target), ("PUT", "http://h/T(PartitionKey='a b',RowKey='')"));
        assert_eq!(request.headers[0], ("if-match".into(), "*".into()));
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
        let headers = "Content-Type: a;b \r\nX-Other :\u{a0} c\nACCEPT:*/*\nÀ: \n B :  \r\n\r\nrest";
        let text = format!("\r\n\nGET / HTTP/1.1\r\n{headers}");
        let found = request(text.as_bytes()).unwrap();
        let expected = [("content-type", "a;b"), ("x-other", "c"), ("accept", "*/*"), ("À", ""), ("b", "")];
        assert_eq!(found.headers, expected.map(|(name, value)| (name.into(), value.into())));
        assert_eq!(found.body, b"rest");
        let part = format!("--b\r\n{headers}");
        assert_eq!(parts(part.as_bytes(), "b").unwrap()[0].content_type, Some("a;b"));
    }

    #[test]
    fn a_request_without_body_may_end_anyhow() {
        for tail in ["\r\n", "\r\n\r\n", "\n\n\n"] {
            let text = format!("DELETE /T(PartitionKey='',RowKey='') HTTP/1.1\r\nIf-Match: *{tail}");
            let request = request(text.as_bytes()).unwrap();
            assert!(request.body.trim_ascii().is_empty());
            assert_eq!(request.headers.len(), 1);
        }
    }

    #[test]
    fn boundaries_may_be_quoted_and_with_other_text_behind_them_are_content() {
        assert_eq!(boundary("multipart/mixed; boundary=\"x y\"; charset=\"utf-8\""), Some("x y"));
        assert_eq!(boundary("Multipart/Mixed;charset=utf-8;BOUNDARY=b"), Some("b"));
        for none in ["application/json", "multipart/mixed", "multipart/mixed; boundary=", ""] {
            assert_eq!(boundary(none), None, "{none}");
        }
        for line in ["--bx", "--b--x", "x--b x", "--bx--by", "--b\\r\\n", "--b\"", "--b-"] {
            for end in ["\n", "\r\n"] {
                let body = format!("--b{end}{end}{line}{end}--b--{end}");
                assert_eq!(parts(body.as_bytes(), "b").unwrap()[0].content, line.as_bytes(), "{line}");
            }
        }
    }

    #[test]
    fn a_boundary_ends_a_part_wherever_it_stands() {
        for end in ["\n", "\r\n"] {
            for (glue, content) in
                [("x--b", "x"), ("y --b--", "y "), ("--bx--b", "--bx"), ("x-\r--b--", "x-\r")]
            {
                for rest in [end.to_owned(), format!(" \t{end}--b--{end}"), String::new()] {
                    let body = format!("--b{end}{end}{glue}{rest}");
                    let found = parts(body.as_bytes(), "b").unwrap();
                    assert_eq!(found.len(), 1, "{body:?}");
                    assert_eq!(found[0].content, content.as_bytes(), "{body:?}");
                }
            }
            let body = format!("x--b{end}--b{end}{end}1--b{end}a: b{end}{end}2{end}--b{end}");
            let found = parts(body.as_bytes(), "b").unwrap();
            assert_eq!(found.iter().map(|part| part.content).collect::<Vec<_>>(), [b"1", b"2"], "{body:?}");
        }
    }

    #[test]
    fn headers_that_run_into_a_boundary_cannot_be_read() {
        for end in ["\n", "\r\n"] {
            for delimiter in ["--b", "--b--"] {
                for glue in [end, ""] {
                    let body = format!("--b{end}a: b{glue}{delimiter}{end}");
                    let error = parts(body.as_bytes(), "b").unwrap_err();
                    assert_eq!(error.code, Code::BodyNotUnderstood, "{body:?}");
                }
                let body = format!("--b{end}a: b{end}{end}{delimiter}{end}");
                assert!(!parts(body.as_bytes(), "b").unwrap()[0].is_empty, "{body:?}");
            }
            let request = |text: String| request(text.as_bytes()).map_err(|error| error.code).map(drop);
            assert_eq!(request("DELETE /T HTTP/1.1".into()), Err(Code::BodyNotUnderstood));
            assert_eq!(request(format!("DELETE /T HTTP/1.1{end}If-Match: *")), Err(Code::BodyNotUnderstood));
            assert_eq!(request(format!("DELETE /T HTTP/1.1{end}")), Ok(()));
        }
    }

    #[test]
    fn headers_that_are_none_cannot_be_read() {
        for length in ["69Accept: application/json", "", "-1", "1 2", "+1"] {
            let text = format!("PUT /T HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{{}}");
            assert_eq!(request(text.as_bytes()).unwrap_err().code, Code::BodyNotUnderstood, "{length}");
        }
        for headers in [&b"no colon\r\n"[..], b"a: \xff\r\n", b"a: b\r\n".repeat(65).as_slice()] {
            let text = [&b"PUT /T HTTP/1.1\r\n"[..], headers, b"\r\n{}"].concat();
            assert_eq!(request(&text).unwrap_err().code, Code::BodyNotUnderstood, "{}", text.escape_ascii());
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
        let text = String::from_utf8(change_sets_response(
            "batchresponse_1",
            &[("changesetresponse_2".into(), &[answer])],
        ))
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
        ]), 0..12), glue in prop::sample::select(vec!["\n", "\r\n", ""])) {
            let body = lines.join(glue);
            for part in parts(body.as_bytes(), "b").unwrap_or_default() {
                let _ = parts(part.content, "c");
                let _ = request(part.content);
            }
        }
    }
}
