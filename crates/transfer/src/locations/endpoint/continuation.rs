//! Following the continuation tokens of lists.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::client::{ClientAnswer, ClientCall};
use crate::error::{TransferResult, failed};

/// Names of continuation parameters, and of the headers that carry them, in lower case.
const CONTINUATION: [(&str, &str); 3] = [
    ("NextPartitionKey", "nextpartitionkey"),
    ("NextRowKey", "nextrowkey"),
    ("NextTableName", "nexttablename"),
];
/// Empty pages that may come at once, one after another. A server that searches for long takes its time for
/// each.
const MAX_EMPTY: u32 = 2000;
const AT_ONCE: Duration = Duration::from_secs(1);
/// Empty pages in a row that may send a token again: a server that found nothing in its time sends the token
/// that it was asked with.
const MAX_REPEATED: u32 = 100;

/// A name and a value.
type QueryParameter = (&'static str, String);

/// The pages of one or several lists. They must come to an end: no page with rows may send a token again,
/// and there may not be only empty pages.
pub(super) struct Continuation {
    /// The next page, and the first ones of the lists behind.
    pub calls: VecDeque<ClientCall>,
    followed: u64,
    /// A token that was followed before in this list.
    before: Option<Vec<QueryParameter>>,
    empty: u32,
    repeated: u32,
    asked: Instant,
}

impl Continuation {
    pub(super) fn of(lists: VecDeque<ClientCall>) -> Self {
        Self { calls: lists, followed: 0, before: None, empty: 0, repeated: 0, asked: Instant::now() }
    }

    /// Returns the call for the next page; `None` at the end.
    pub(super) fn take(&mut self) -> Option<ClientCall> {
        self.asked = Instant::now();
        self.calls.pop_front()
    }

    /// Goes on to the page that follows the one that was read.
    pub(super) fn follow(&mut self, following: Option<ClientCall>, is_empty: bool) -> TransferResult<()> {
        let is_idle = is_empty && self.asked.elapsed() < AT_ONCE;
        self.empty = if is_idle { self.empty + 1 } else { 0 };
        self.repeated = if is_empty { self.repeated } else { 0 };
        let Some(following) = following else {
            (self.followed, self.before, self.repeated) = (0, None, 0);
            return Ok(());
        };
        let token = following.query.iter().filter(is_token);
        let without_end = |what: &str| {
            let path = &following.path;
            Err(failed!("GET {path}: the endpoint sends {what}, so its pages may never end"))
        };
        if self.before.as_ref().is_some_and(|before| token.clone().eq(before)) {
            self.repeated += 1;
            if !is_empty || self.repeated > MAX_REPEATED {
                return without_end("a continuation token again");
            }
        }
        if self.empty > MAX_EMPTY {
            return without_end("only empty pages");
        }
        self.followed += 1;
        // The distance doubles, so that tokens that repeat in a circle of any length are found.
        if self.followed.is_power_of_two() {
            self.before = Some(token.cloned().collect());
        }
        self.calls.push_front(following);
        Ok(())
    }
}

/// Whether a parameter is part of a continuation token.
fn is_token(parameter: &&QueryParameter) -> bool {
    CONTINUATION.iter().any(|(name, _)| *name == parameter.0)
}

/// Returns the call with the continuation token of its answer; `None` if the answer has none.
pub(super) fn next(call: &ClientCall, answer: &ClientAnswer) -> Option<ClientCall> {
    let mut following = call.clone();
    following.query.retain(|parameter| !is_token(&parameter));
    let before = following.query.len();
    for (parameter, header) in CONTINUATION {
        // Servers refuse an empty part of a token.
        let has_value = |(name, value): &&(String, String)| name == header && !value.is_empty();
        if let Some((_, value)) = answer.continuation.iter().find(has_value) {
            following.query.push((parameter, value.clone()));
        }
    }
    (following.query.len() > before).then_some(following)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_part_of_a_token_is_not_sent() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let continuation = vec![header("nextpartitionkey", "1!4"), header("nextrowkey", "")];
        let answer = ClientAnswer { continuation, ..ClientAnswer::default() };
        let call = ClientCall::get("/People()").query("NextRowKey", "before");
        let following = next(&call, &answer).unwrap();
        assert_eq!(following.query, [("NextPartitionKey", "1!4".to_owned())]);
    }
}
