#![no_main]
//! Multipart bodies, under the boundary `b`: parts and the requests in them, and
//! what a change set of them means.

use libfuzzer_sys::fuzz_target;
use rowhouse::error::Error;
use rowhouse::protocol::codec::multipart::{self, InnerAnswer, MAX_PARTS, Part};
use rowhouse::protocol::plan;
use rowhouse::protocol::request::batch::{self, Batch, MAX_OPERATIONS};
use rowhouse::protocol::request::operation::Context;
use rowhouse::protocol::request::options::NO_OPTIONS;
use rowhouse::protocol::request::{Head, target};
use rowhouse_fuzz::{PLAIN, accounts, assert_refused};

const BOUNDARY: &str = "b";
/// Never part of an input that is compared.
const OTHER: &str = "another-boundary";

fuzz_target!(|data: &[u8]| {
    match multipart::parts(data, BOUNDARY) {
        Ok(parts) => check_parts(data, &parts),
        Err(error) => assert_refused(&error),
    }
    check_batch(data);
});

/// Printed again under another boundary, parts are the same parts.
fn check_parts(data: &[u8], parts: &[Part<'_>]) {
    assert!(parts.len() <= MAX_PARTS);
    if data.windows(OTHER.len()).any(|window| window == OTHER.as_bytes()) {
        return;
    }
    let mut printed = Vec::new();
    for part in parts {
        printed.extend_from_slice(format!("--{OTHER}\r\n").as_bytes());
        for (name, value) in &part.headers {
            printed.extend_from_slice(format!("{name}:{value}\r\n").as_bytes());
        }
        printed.extend_from_slice(b"\r\n");
        printed.extend_from_slice(part.content);
        printed.extend_from_slice(b"\r\n");
    }
    printed.extend_from_slice(format!("--{OTHER}--\r\n").as_bytes());
    let again = multipart::parts(&printed, OTHER);
    if parts.is_empty() {
        return;
    }
    assert_eq!(again.as_deref(), Ok(parts), "{}", printed.escape_ascii());
    for part in parts {
        if let Err(error) = multipart::request(part.content) {
            assert_refused(&error);
        }
    }
}

fn check_batch(data: &[u8]) {
    let headers =
        [("host", "h"), ("content-type", "multipart/mixed; boundary=b"), ("x-ms-version", "2013-08-15")];
    let head = Head {
        method: "POST".into(),
        path: "/acct/$batch".into(),
        headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
        ..Head::default()
    };
    let target = target::resolve(&head, &accounts()).expect("it is an address");
    let context = Context { head: &head, options: &NO_OPTIONS, body: data, grammar: PLAIN };
    match batch::read(&context, &target) {
        Err(error) => refused(&error),
        Ok(Batch::Query(part)) => match *part {
            Ok(part) => plan::plan(part.wanted).map(drop).unwrap_or_else(|error| refused(&error)),
            Err(failed) => refused(&failed.error),
        },
        Ok(Batch::ChangeSet { parts, failure }) => {
            let count = parts.len();
            assert!(count <= MAX_OPERATIONS);
            let writes = parts.into_iter().map(|part| part.wanted).collect();
            match plan::change_set(writes, failure.as_ref()) {
                Err(error) => refused(&error),
                Ok(set) => assert_eq!(set.map_or(0, |set| set.writes.len()), count),
            }
            check_answers(count);
        }
    }
}

fn refused(error: &Error) {
    assert_refused(error);
    assert!(error.index.is_none_or(|index| index < MAX_OPERATIONS), "{error:?}");
}

/// An answer to so many operations has as many parts.
fn check_answers(count: usize) {
    let answer = InnerAnswer { status: 204, headers: vec![("X-Header", "value".into())], body: Vec::new() };
    let printed = multipart::change_set_response("outer", "inner", &vec![answer; count]);
    let outer = multipart::parts(&printed, "outer").expect("our own answer is read");
    let [only] = outer.as_slice() else { panic!("there is one change set") };
    if count > 0 {
        let inner = multipart::parts(only.content, "inner").expect("our own answer is read");
        assert_eq!(inner.len(), count);
        assert!(inner.iter().all(|part| part.content.starts_with(b"HTTP/1.1 204 No Content\r\n")));
    }
}
