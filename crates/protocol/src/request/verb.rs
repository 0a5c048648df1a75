//! The verb of a request, after verb tunnelling (protocol §3.9).

use super::head::Head;
use crate::error::{Code, Result};

/// The verb of a request. PATCH and MERGE are the same verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Head,
    Post,
    Put,
    Merge,
    Delete,
    Options,
}

impl Verb {
    /// Returns the verb of a request.
    ///
    /// # Errors
    /// [`Code::UnsupportedHttpVerb`], and the three errors of X-HTTP-Method.
    pub(crate) fn of(head: &Head) -> Result<Self> {
        let mut overrides = head.all("x-http-method");
        match (overrides.next(), overrides.next()) {
            (None, _) => Self::tunnelled(&head.method, &[]),
            (Some(verb), None) => Self::tunnelled(&head.method, &[verb]),
            (Some(verb), Some(other)) => Self::tunnelled(&head.method, &[verb, other]),
        }
    }

    /// Returns the verb of a method, given its X-HTTP-Method headers.
    pub(crate) fn tunnelled(method: &str, overrides: &[&str]) -> Result<Self> {
        match (method, overrides) {
            (_, []) => Self::plain(method).ok_or_else(|| Code::UnsupportedHttpVerb.into()),
            (_, [_, _, ..]) => Err(Code::XMethodIncorrectCount.into()),
            ("POST", [verb]) => match Self::plain(&verb.to_ascii_uppercase()) {
                Some(verb @ (Verb::Put | Verb::Merge | Verb::Delete)) => Ok(verb),
                _ => Err(Code::XMethodIncorrectValue.into()),
            },
            _ => Err(Code::XMethodNotUsingPost.into()),
        }
    }

    /// Returns whether an X-HTTP-Method repeats the verb of the request's method.
    pub(crate) fn is_repeated(method: &str, named: &str) -> bool {
        Self::plain(method).is_some_and(|verb| Self::plain(&named.to_ascii_uppercase()) == Some(verb))
    }

    fn plain(method: &str) -> Option<Self> {
        Some(match method {
            "GET" => Verb::Get,
            "HEAD" => Verb::Head,
            "POST" => Verb::Post,
            "PUT" => Verb::Put,
            "MERGE" | "PATCH" => Verb::Merge,
            "DELETE" => Verb::Delete,
            "OPTIONS" => Verb::Options,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnelling_needs_post_and_one_known_verb() {
        for (method, overrides, result) in [
            ("POST", &[][..], Ok(Verb::Post)),
            ("PATCH", &[], Ok(Verb::Merge)),
            ("POST", &["MERGE"], Ok(Verb::Merge)),
            ("POST", &["PATCH"], Ok(Verb::Merge)),
            ("POST", &["PUT"], Ok(Verb::Put)),
            ("POST", &["delete"], Ok(Verb::Delete)),
            ("POST", &["GET"], Err(Code::XMethodIncorrectValue)),
            ("POST", &["x"], Err(Code::XMethodIncorrectValue)),
            ("PUT", &["MERGE"], Err(Code::XMethodNotUsingPost)),
            ("POST", &["MERGE", "MERGE"], Err(Code::XMethodIncorrectCount)),
            ("BREW", &[], Err(Code::UnsupportedHttpVerb)),
            ("get", &[], Err(Code::UnsupportedHttpVerb)),
        ] {
            assert_eq!(
                Verb::tunnelled(method, overrides).map_err(|e| e.code),
                result,
                "{method} {overrides:?}"
            );
        }
    }
}
