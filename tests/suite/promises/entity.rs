//! One entity as a single-threaded object: the model that recorded histories
//! are compared with.

use super::linear::Model;

/// What is stored, as far as clients can know.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Content {
    /// The ETag; `None` if the write that made it was never answered and nobody
    /// has seen it since.
    pub etag: Option<String>,
    pub a: Option<u64>,
    pub b: Option<u64>,
}

/// `If-Match`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    Any,
    Version(String),
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    Get,
    Insert { a: u64 },
    Replace { a: u64, when: Condition },
    Merge { b: u64, when: Condition },
    Upsert { a: u64 },
    Delete { when: Condition },
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Found(Content),
    /// Done; with the new ETag but for a delete.
    Written(Option<String>),
    /// 404.
    Missing,
    /// 409.
    Exists,
    /// 412.
    Differs,
    /// It may have happened, or may yet.
    Unknown,
}

/// A request with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    pub request: Request,
    pub reply: Reply,
}

/// The object.
pub struct Entity;

impl Model for Entity {
    type State = Option<Content>;
    type Call = Call;
    type Mark = String;

    fn step(state: &Option<Content>, Call { request, reply }: &Call) -> Option<Option<Content>> {
        match request {
            Request::Get => read(state, reply),
            Request::Insert { a } => match (state, reply) {
                (None, Reply::Written(etag)) => Some(Some(fresh(etag, *a))),
                (None, Reply::Unknown) => Some(Some(fresh(&None, *a))),
                (Some(_), Reply::Exists) => Some(state.clone()),
                _ => None,
            },
            Request::Upsert { a } => match reply {
                Reply::Written(etag) => Some(Some(fresh(etag, *a))),
                Reply::Unknown => Some(Some(fresh(&None, *a))),
                _ => None,
            },
            Request::Replace { a, when } => conditional(state, reply, when, |_, etag| Some(fresh(&etag, *a))),
            Request::Merge { b, when } => {
                conditional(state, reply, when, |found, etag| Some(Content { etag, a: found.a, b: Some(*b) }))
            }
            Request::Delete { when } => conditional(state, reply, when, |_, _| None),
        }
    }

    fn mark(state: &Option<Content>) -> Option<String> {
        state.as_ref().and_then(|content| content.etag.clone())
    }

    fn needs(Call { request, reply }: &Call) -> Option<String> {
        match (request, reply) {
            (_, Reply::Found(content)) => content.etag.clone(),
            (
                Request::Replace { when: Condition::Version(etag), .. }
                | Request::Merge { when: Condition::Version(etag), .. }
                | Request::Delete { when: Condition::Version(etag) },
                Reply::Written(_),
            ) => Some(etag.clone()),
            _ => None,
        }
    }
}

fn fresh(etag: &Option<String>, a: u64) -> Content {
    Content { etag: etag.clone(), a: Some(a), b: None }
}

fn read(state: &Option<Content>, reply: &Reply) -> Option<Option<Content>> {
    match (state, reply) {
        (None, Reply::Missing) => Some(None),
        (Some(stored), Reply::Found(found)) => {
            let same = (stored.a, stored.b) == (found.a, found.b);
            let etag = stored.etag.is_none() || stored.etag == found.etag;
            // Whoever reads a version that nobody was told of tells its ETag.
            (same && etag).then(|| Some(found.clone()))
        }
        _ => None,
    }
}

fn conditional(
    state: &Option<Content>,
    reply: &Reply,
    when: &Condition,
    change: impl Fn(&Content, Option<String>) -> Option<Content>,
) -> Option<Option<Content>> {
    let Some(stored) = state else {
        return matches!(reply, Reply::Missing).then_some(None);
    };
    let may_hold = match when {
        Condition::Any => true,
        Condition::Version(wanted) => stored.etag.as_ref().is_none_or(|etag| etag == wanted),
    };
    let must_hold = match when {
        Condition::Any => true,
        Condition::Version(wanted) => stored.etag.as_ref() == Some(wanted),
    };
    match reply {
        Reply::Written(etag) if may_hold => Some(change(stored, etag.clone())),
        Reply::Unknown if may_hold => Some(change(stored, None)),
        Reply::Differs if !must_hold => Some(state.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::linear::{Span, check};
    use super::*;

    fn history(calls: &[(u64, u64, Request, Reply)]) -> bool {
        let spans: Vec<_> = calls
            .iter()
            .map(|(start, end, request, reply)| Span {
                start: *start,
                end: (*reply != Reply::Unknown).then_some(*end),
                call: Call { request: request.clone(), reply: reply.clone() },
            })
            .collect();
        check::<Entity>(None, &spans).is_ok()
    }

    fn written(etag: &str) -> Reply {
        Reply::Written(Some(etag.into()))
    }

    fn found(etag: &str, a: u64, b: Option<u64>) -> Reply {
        Reply::Found(Content { etag: Some(etag.into()), a: Some(a), b })
    }

    fn replace(a: u64, etag: &str) -> Request {
        Request::Replace { a, when: Condition::Version(etag.into()) }
    }

    #[test]
    fn a_life_of_an_entity_is_fine() {
        let merge = Request::Merge { b: 7, when: Condition::Version("y".into()) };
        assert!(history(&[
            (0, 1, Request::Get, Reply::Missing),
            (2, 3, Request::Insert { a: 1 }, written("x")),
            (4, 5, Request::Insert { a: 2 }, Reply::Exists),
            (6, 7, replace(3, "x"), written("y")),
            (8, 9, replace(4, "x"), Reply::Differs),
            (10, 11, merge, written("z")),
            (12, 13, Request::Get, found("z", 3, Some(7))),
            (14, 15, Request::Delete { when: Condition::Any }, Reply::Written(None)),
            (16, 17, replace(4, "z"), Reply::Missing),
        ]));
    }

    #[test]
    fn two_winners_under_one_etag_are_refused() {
        let start = (0, 1, Request::Insert { a: 1 }, written("x"));
        assert!(!history(&[
            start.clone(),
            (2, 9, replace(2, "x"), written("y")),
            (3, 8, replace(3, "x"), written("z")),
        ]));
        assert!(history(&[
            start,
            (2, 9, replace(2, "x"), written("y")),
            (3, 8, replace(3, "x"), Reply::Differs)
        ]));
    }

    #[test]
    fn a_stale_read_is_refused() {
        let insert = (0, 1, Request::Insert { a: 1 }, written("x"));
        let write = (2, 3, replace(2, "x"), written("y"));
        assert!(!history(&[insert.clone(), write.clone(), (4, 5, Request::Get, found("x", 1, None))]));
        assert!(history(&[insert, write, (4, 5, Request::Get, found("y", 2, None))]));
    }

    #[test]
    fn a_refusal_without_a_reason_is_refused() {
        let insert = (0, 1, Request::Insert { a: 1 }, written("x"));
        assert!(!history(&[insert.clone(), (2, 3, replace(2, "x"), Reply::Differs)]));
        assert!(!history(&[insert.clone(), (2, 3, replace(2, "x"), Reply::Missing)]));
        assert!(!history(&[(0, 1, Request::Insert { a: 1 }, Reply::Exists)]));
    }

    #[test]
    fn a_merge_that_loses_the_rest_is_refused() {
        let insert = (0, 1, Request::Insert { a: 1 }, written("x"));
        let merge = (2, 3, Request::Merge { b: 5, when: Condition::Any }, written("y"));
        let lost = Reply::Found(Content { etag: Some("y".into()), a: None, b: Some(5) });
        assert!(!history(&[insert.clone(), merge.clone(), (4, 5, Request::Get, lost)]));
        assert!(history(&[insert, merge, (4, 5, Request::Get, found("y", 1, Some(5)))]));
    }

    #[test]
    fn an_unknown_write_may_be_there_or_not_but_not_both() {
        let insert = (0, 1, Request::Insert { a: 1 }, written("x"));
        let lost = (2, 3, replace(2, "x"), Reply::Unknown);
        let (old, new) = (found("x", 1, None), found("n", 2, None));
        assert!(history(&[insert.clone(), lost.clone(), (4, 5, Request::Get, old.clone())]));
        assert!(history(&[insert.clone(), lost.clone(), (4, 5, Request::Get, new.clone())]));
        let (back, forth) = ((4, 5, Request::Get, new), (6, 7, Request::Get, old));
        assert!(!history(&[insert, lost, back, forth]));
    }
}
