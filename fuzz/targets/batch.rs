#![no_main]
//! Multipart bodies, under the boundary `b`: parts and the requests in them, however
//! they are framed, and what a change set of them means.

use libfuzzer_sys::fuzz_target;
use rowhouse_fuzz::{PLAIN, accounts, assert_refused};
use rowhouse_protocol::codec::multipart::{self, InnerAnswer, MAX_PARTS, Part};
use rowhouse_protocol::error::{Code, Error};
use rowhouse_protocol::plan;
use rowhouse_protocol::plan::batch::{self, Batch, MAX_OPERATIONS};
use rowhouse_protocol::plan::operation::Context;
use rowhouse_protocol::request::options::NO_OPTIONS;
use rowhouse_protocol::request::{Head, target};

const BOUNDARY: &str = "b";
/// Never part of an input that is compared.
const OTHER: &str = "another-boundary";

fuzz_target!(|data: &[u8]| {
    match multipart::parts(data, BOUNDARY) {
        Ok(parts) => check_parts(data, &parts),
        Err(error) => assert_refused(&error),
    }
    check_line_ends(data);
    check_batch(data);
});

/// How parts are printed under another boundary.
#[derive(Clone, Copy)]
struct Frame {
    line_end: &'static str,
    /// Between a content and the delimiter that ends it.
    glue: &'static str,
    /// Of the last delimiter.
    closing: &'static str,
    before: &'static str,
    after: &'static str,
}

const PLAIN_FRAME: Frame = Frame { line_end: "\r\n", glue: "\r\n", closing: "--", before: "", after: "" };

const FRAMES: [Frame; 6] = [
    PLAIN_FRAME,
    Frame { line_end: "\n", glue: "\n", ..PLAIN_FRAME },
    Frame { line_end: "\n", glue: "", ..PLAIN_FRAME },
    Frame { glue: "", closing: "", ..PLAIN_FRAME },
    Frame { before: "a preamble\r\n", after: "an epilogue\n--another-boundary\n\nno part", ..PLAIN_FRAME },
    Frame { line_end: "\n", glue: "\n", closing: "", before: "x--another-boundary\n", ..PLAIN_FRAME },
];

/// Parts hold no delimiter, and are the same parts if they are printed again under another
/// boundary, whatever the frame.
fn check_parts(data: &[u8], parts: &[Part<'_>]) {
    assert!(parts.len() <= MAX_PARTS);
    for part in parts.iter().filter(|part| !part.content.is_empty()) {
        let start = part.content.as_ptr() as usize - data.as_ptr() as usize;
        let inside = start..start + part.content.len();
        assert!(!inside.into_iter().any(|at| is_delimiter(data, at)), "{}", data.escape_ascii());
        if let Err(error) = multipart::request(part.content) {
            assert_refused(&error);
        }
    }
    if parts.is_empty() || data.windows(OTHER.len()).any(|window| window == OTHER.as_bytes()) {
        return;
    }
    for frame in FRAMES {
        // A line break before a delimiter is the delimiter's.
        if frame.glue != "\r\n" && parts.iter().any(|part| matches!(part.content, [.., b'\r' | b'\n'])) {
            continue;
        }
        let printed = printed(parts, frame);
        let again = multipart::parts(&printed, OTHER);
        assert_eq!(again.as_deref(), Ok(parts), "{}", printed.escape_ascii());
    }
    let cut: Vec<Part<'_>> = parts.iter().filter(|part| !part.is_empty).take(1).cloned().collect();
    if !cut.is_empty() {
        check_headers_that_run_into_a_delimiter(&cut);
    }
}

/// Whether dashes and boundary stand at a position, with nothing but blanks behind them on their
/// line, read slowly.
fn is_delimiter(data: &[u8], at: usize) -> bool {
    let Some(rest) = data[at..].strip_prefix(b"--b") else { return false };
    let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default().trim_ascii_end();
    line.is_empty() || line == b"--"
}

fn printed(parts: &[Part<'_>], frame: Frame) -> Vec<u8> {
    let Frame { line_end, glue, closing, before, after } = frame;
    let mut printed = format!("{before}--{OTHER}{line_end}").into_bytes();
    for (at, part) in parts.iter().enumerate() {
        for header in headers(part) {
            printed.extend_from_slice(format!("{header}{line_end}").as_bytes());
        }
        printed.extend_from_slice(line_end.as_bytes());
        printed.extend_from_slice(part.content);
        let closing = if at + 1 == parts.len() { closing } else { "" };
        printed.extend_from_slice(format!("{glue}--{OTHER}{closing}{line_end}").as_bytes());
    }
    printed.extend_from_slice(after.as_bytes());
    printed
}

/// Returns the header lines of a part. An empty part has none.
fn headers(part: &Part<'_>) -> Vec<String> {
    let content_type = part.content_type.map(|value| format!("Content-Type:{value}"));
    content_type.into_iter().chain((!part.is_empty).then(|| "X:".to_owned())).collect()
}

/// Without the empty line behind them, headers cannot be read.
fn check_headers_that_run_into_a_delimiter(parts: &[Part<'_>]) {
    for line_end in ["\n", "\r\n"] {
        let mut printed = format!("--{OTHER}").into_bytes();
        for header in parts.iter().flat_map(headers) {
            printed.extend_from_slice(format!("{line_end}{header}").as_bytes());
        }
        printed.extend_from_slice(format!("{line_end}--{OTHER}--{line_end}").as_bytes());
        let error = multipart::parts(&printed, OTHER).expect_err("the headers do not end");
        assert_eq!(error.code, Code::BodyNotUnderstood, "{}", printed.escape_ascii());
    }
}

/// Lines may end with LF or CRLF: the parts are the same but for the line ends of their contents.
fn check_line_ends(data: &[u8]) {
    if data.contains(&b'\r') {
        return;
    }
    let with_returns = returned(data);
    match (multipart::parts(data, BOUNDARY), multipart::parts(&with_returns, BOUNDARY)) {
        (Ok(parts), Ok(others)) => {
            assert_eq!(parts.len(), others.len(), "{}", data.escape_ascii());
            for (part, other) in parts.iter().zip(&others) {
                assert_eq!((part.content_type, part.is_empty), (other.content_type, other.is_empty));
                assert_eq!(returned(part.content), other.content);
            }
        }
        (parts, others) => assert_eq!(parts, others, "{}", data.escape_ascii()),
    }
}

fn returned(text: &[u8]) -> Vec<u8> {
    text.iter()
        .flat_map(|byte| if *byte == b'\n' { &b"\r\n"[..] } else { std::slice::from_ref(byte) })
        .copied()
        .collect()
}

fn check_batch(data: &[u8]) {
    let read = read(data, "multipart/mixed; boundary=b");
    assert_eq!(format!("{read:?}"), format!("{:?}", self::read(data, "multipart/mixed; boundary=\"b\"")));
    match read {
        Err(error) => refused(&error),
        Ok(Batch::Query(part)) => match *part {
            Ok(part) => part.operation.plan.map(drop).unwrap_or_else(|error| refused(&error)),
            Err(failed) => refused(&failed.error),
        },
        Ok(Batch::ChangeSet { parts, failure, others }) => {
            let count = parts.len();
            assert!(count <= MAX_OPERATIONS && others.len() < MAX_PARTS);
            others.iter().for_each(|other| refused(&other.error));
            let plans = parts.into_iter().map(|part| part.operation.plan).collect();
            match plan::change_set(plans, failure.as_ref().map(|failed| &failed.error)) {
                Err(error) => refused(&error),
                Ok(set) => assert_eq!(set.map_or(0, |set| set.writes.len()), count),
            }
            check_answers(count, others.len());
        }
    }
}

fn read(data: &[u8], content_type: &str) -> Result<Batch, Error> {
    let headers = [("host", "h"), ("content-type", content_type), ("x-ms-version", "2013-08-15")];
    let head = Head {
        method: "POST".into(),
        path: "/acct/$batch".into(),
        headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
        ..Head::default()
    };
    let target = target::resolve(&head, &accounts()).expect("it is an address");
    batch::read(&Context { head: &head, options: &NO_OPTIONS, body: data, grammar: PLAIN }, &target)
}

fn refused(error: &Error) {
    assert_refused(error);
    assert!(error.index.is_none_or(|index| index < MAX_OPERATIONS), "{error:?}");
}

/// The answer to a change set has a part for each operation, and one for each change set behind it.
fn check_answers(count: usize, others: usize) {
    let answer = InnerAnswer { status: 204, headers: vec![("X-Header", "value".into())], body: Vec::new() };
    let answers = vec![answer; count.max(1)];
    let others = (0..others).map(|at| (format!("other{at}"), &answers[..1]));
    let sets: Vec<_> = std::iter::once(("inner".to_owned(), &answers[..count])).chain(others).collect();
    let printed = multipart::change_sets_response("outer", &sets);
    let outer = multipart::parts(&printed, "outer").expect("our own answer is read");
    assert_eq!(outer.len(), sets.len().min(MAX_PARTS));
    for (part, (boundary, answers)) in outer.iter().zip(&sets).filter(|(_, (_, answers))| !answers.is_empty())
    {
        let inner = multipart::parts(part.content, boundary).expect("our own answer is read");
        assert_eq!(inner.len(), answers.len());
        assert!(inner.iter().all(|part| part.content.starts_with(b"HTTP/1.1 204 No Content\r\n")));
    }
}
