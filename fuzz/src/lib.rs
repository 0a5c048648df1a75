//! What the targets share. Each asserts more than that nothing panics: a
//! refusal blames the client, a limit holds, and what is read, stored and printed
//! is the same when it is read again.

pub mod entity;
pub mod filter;

use std::fmt::Debug;

use rowhouse_protocol::auth::AccountSet;
use rowhouse_protocol::codec::failure::{self, ErrorContext};
use rowhouse_protocol::codec::{multipart, xml};
use rowhouse_protocol::error::{Code, Error};
use rowhouse_protocol::model::Ticks;
use rowhouse_protocol::odata::Grammar;
use rowhouse_protocol::request::Head;

/// The account that every request is for.
pub const ACCOUNT: &str = "acct";
/// Its key, which no input knows.
pub const KEY: &str = "c2l4dGVlbiBieXRlcyBhbmQgc2l4dGVlbiBtb3JlIQ==";
/// Comparisons of a filter at most.
pub const COMPARISONS: usize = 100;
/// What an account that asks for it may write in a filter.
pub const EXTENDED: Grammar = Grammar { max_comparisons: COMPARISONS, extended: true };
/// What the service understands.
pub const PLAIN: Grammar = Grammar { extended: false, ..EXTENDED };

/// The time at which everything happens.
pub fn now() -> Ticks {
    Ticks::parse("2026-01-31T12:00:00Z").expect("it is a time")
}

/// The one account, addressed by path, by suffix, or as the service does it.
pub fn accounts() -> AccountSet {
    AccountSet::parse(&format!("{ACCOUNT}:{KEY}"), vec!["tables.example".into()]).expect("it is an account")
}

/// Two values that must be the same; NaN is the same as NaN, zero is not minus
/// zero.
#[track_caller]
pub fn assert_same(one: &impl Debug, other: &impl Debug, what: &str) {
    assert_eq!(format!("{one:?}"), format!("{other:?}"), "{what}");
}

/// A refusal is the client's fault, or names what the service does not have;
/// every form that it can be sent in is a document that says it.
#[track_caller]
pub fn assert_refused(error: &Error) {
    let status = error.code.facts().status;
    let blamed = (400..500).contains(&status) || error.code == Code::NotImplemented;
    assert!(blamed, "the server blames itself: {error:?}");
    let occasion = ErrorContext { request_id: "id", now: now() };
    let json: serde_json::Value = serde_json::from_str(&failure::json(error, &occasion)).expect("it is JSON");
    let said = json["odata.error"]["message"]["value"].as_str().expect("there is a message");
    assert!(said.contains(error.text()), "{said:?} does not say {:?}", error.text());
    // XML has no way to write U+0000.
    if error.text().contains('\0') {
        return;
    }
    for document in [failure::xml(error, &occasion), failure::atom(error)] {
        assert!(!document.contains(forbidden_in_xml), "{document:?}");
        let root = xml::parse(document.as_bytes()).expect("it is XML");
        let said = &root.child("message").expect("there is a message").text;
        assert!(said.contains(error.text()), "{said:?} does not say {:?}", error.text());
    }
}

fn forbidden_in_xml(c: char) -> bool {
    c < ' ' && !matches!(c, '\t' | '\n')
}

/// A request written as HTTP/1.1 writes it. Its version may be missing.
pub fn http(data: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let request = multipart::request(data).ok()?;
    let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
    let head = Head {
        method: request.method.into(),
        path: path.into(),
        query: query.into(),
        headers: request.headers,
        secure: data.len().is_multiple_of(2),
        peer: None,
    };
    Some((head, request.body))
}

/// The fields of an input, one a line; an empty one is absent.
pub fn fields<const N: usize>(data: &[u8]) -> Option<[Option<&str>; N]> {
    let mut lines = std::str::from_utf8(data).ok()?.split('\n');
    Some(std::array::from_fn(|_| lines.next().filter(|line| !line.is_empty())))
}
