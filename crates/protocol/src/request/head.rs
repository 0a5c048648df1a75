//! The head of a request as plain data (protocol §2.1, §12).

use std::borrow::Cow;
use std::net::IpAddr;

use chrono::NaiveDate;

use crate::error::{Code, Result};

/// A request without its body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Head<'a> {
    pub method: Cow<'a, str>,
    /// The path as sent, still percent-encoded, because signatures cover this form.
    pub path: Cow<'a, str>,
    /// The query string as sent, without the question mark.
    pub query: Cow<'a, str>,
    /// Lower-case names and values. Headers with the same name keep the order sent.
    pub headers: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Whether the client's connection is encrypted.
    pub secure: bool,
    /// The address of the client; `None` if a trusted proxy does not report it.
    pub peer: Option<IpAddr>,
}

impl Head<'_> {
    /// Returns the first header with this lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_ref())
    }

    /// Returns all headers with this lower-case name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_ref())
    }

    /// Returns the combined list of all headers with this lower-case name.
    pub(crate) fn list(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut lines = self.headers.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_ref());
        let first = lines.next()?;
        Some(match lines.next() {
            None => first.into(),
            Some(second) => lines.fold(format!("{first},{second}"), |list, more| list + "," + more).into(),
        })
    }

    pub(crate) fn host(&self) -> &str {
        self.header("host").unwrap_or("localhost")
    }

    /// Returns the version in a SAS: `api-version` or, without it, `sv`. A version needs no escapes, so it is not
    /// percent-decoded.
    fn signed_version(&self) -> Option<&str> {
        let parameter =
            |name: &str| self.query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
        parameter("sig").and_then(|_| parameter("api-version").or_else(|| parameter("sv")))
    }

    /// Returns the API version of the request from its header or, without it, from its SAS.
    ///
    /// # Errors
    /// [`Code::InvalidHeaderValue`] for an invalid date, or a date before 2009-04-14.
    pub fn version(&self) -> Result<ApiVersion> {
        match self.header("x-ms-version") {
            Some(named) => ApiVersion::parse(Some(named)),
            None => ApiVersion::parse(self.signed_version()),
        }
    }
}

/// The API version of a request, which is a date. `None` stands for a request without a version (UNVERIFIED 17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiVersion(Option<Date>);

/// A date in the form `YYYY-MM-DD`.
type Date = [u8; 10];

/// First version with JSON, Prefer and `$format`.
pub(crate) const WITH_JSON: &str = "2013-08-15";
/// First version with `odata.etag` in minimal metadata (recorded in 2015-04-05, and missing in 2015-02-21).
pub(crate) const WITH_MINIMAL_ETAG: &str = "2015-04-05";
/// First version without Atom.
pub const WITHOUT_ATOM: &str = "2015-12-11";
/// First version with bearer tokens.
pub(crate) const WITH_BEARER: &str = "2017-11-09";
/// First version with upserts and `$select`.
pub(crate) const WITH_UPSERT: &str = "2011-08-18";
/// First version whose 401 response carries a bearer challenge.
pub(crate) const WITH_CHALLENGE: &str = "2020-12-06";
/// The version in the response to a request without a version.
pub const DEFAULT: &str = "2019-02-02";
const OLDEST: &str = "2009-04-14";

impl ApiVersion {
    fn parse(header: Option<&str>) -> Result<Self> {
        let Some(text) = header else { return Ok(Self(None)) };
        match parse_date(text) {
            Some(date) if date.as_slice() >= OLDEST.as_bytes() => Ok(Self(Some(date))),
            _ => Err(Code::InvalidHeaderValue.into()),
        }
    }

    /// Returns whether the request uses rules that `version` introduced. A request without a version uses the
    /// newest rules.
    pub fn at_least(&self, version: &str) -> bool {
        self.0.is_none_or(|own| own.as_slice() >= version.as_bytes())
    }

    /// Returns whether the request named a version.
    pub const fn is_named(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the value of `x-ms-version` in the response.
    pub fn echo(&self) -> &str {
        self.0.as_ref().and_then(|date| std::str::from_utf8(date).ok()).unwrap_or(DEFAULT)
    }
}

/// Returns whether a text has the form of a version, `YYYY-MM-DD`.
pub(crate) fn is_date(text: &str) -> bool {
    parse_date(text).is_some()
}

fn parse_date(text: &str) -> Option<Date> {
    let date: Date = text.as_bytes().try_into().ok()?;
    let number = |from: usize, to: usize| {
        date[from..to].iter().try_fold(0_u16, |n, b| b.is_ascii_digit().then(|| n * 10 + u16::from(b - b'0')))
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let exists = NaiveDate::from_ymd_opt(year.into(), month.into(), day.into()).is_some();
    (exists && date[4] == b'-' && date[7] == b'-').then_some(date)
}

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
            (_, []) => Self::parse(method).ok_or_else(|| Code::UnsupportedHttpVerb.into()),
            (_, [_, _, ..]) => Err(Code::XMethodIncorrectCount.into()),
            ("POST", [verb]) => match Self::parse(&verb.to_ascii_uppercase()) {
                Some(verb @ (Verb::Put | Verb::Merge | Verb::Delete)) => Ok(verb),
                _ => Err(Code::XMethodIncorrectValue.into()),
            },
            _ => Err(Code::XMethodNotUsingPost.into()),
        }
    }

    /// Returns whether an X-HTTP-Method repeats the verb of the request's method.
    pub(crate) fn is_repeated(method: &str, named: &str) -> bool {
        Self::parse(method).is_some_and(|verb| Self::parse(&named.to_ascii_uppercase()) == Some(verb))
    }

    fn parse(method: &str) -> Option<Self> {
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
    fn versions_are_dates_from_2009_04_14_on() {
        for good in ["2009-04-14", "2019-02-02", "2026-06-06", "2999-12-31"] {
            assert_eq!(ApiVersion::parse(Some(good)).unwrap().echo(), good);
        }
        for bad in [
            "",
            "2009-04-13",
            "2008-10-27",
            "latest",
            "2019-2-2",
            "2019-02-30",
            "2019-02-02x",
            " 2019-02-02",
            "+2019-2-02",
        ] {
            assert_eq!(ApiVersion::parse(Some(bad)).unwrap_err().code, Code::InvalidHeaderValue, "{bad}");
        }
        assert!(ApiVersion::parse(None).unwrap().at_least(WITHOUT_ATOM));
        assert!(!ApiVersion::parse(Some("2013-08-15")).unwrap().at_least(WITHOUT_ATOM));
    }

    mod verb {
        use super::super::*;

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
}
