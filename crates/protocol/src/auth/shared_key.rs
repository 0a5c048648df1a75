//! SharedKey and SharedKeyLite (protocol §10.1 to §10.4).

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use subtle::ConstantTimeEq;

use super::accounts::{AccountKey, DEVELOPMENT_ACCOUNT};
use crate::codec::uri::percent_decode;
use crate::error::{Code, Error, Result};
use crate::model::Ticks;
use crate::request::{Head, Target};

/// Maximum difference between the date of a request and the server's clock.
const MAX_SKEW_SECONDS: i64 = 15 * 60;

/// Size of the buffer for a decoded signature, which has 32 bytes. The base64 decoder needs one more byte.
const SIGNATURE_BUFFER_BYTES: usize = 33;

/// The authentication scheme, which determines the string to sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    SharedKey,
    SharedKeyLite,
}

/// The parsed Authorization header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AuthorizationHeader<'a> {
    pub scheme: Scheme,
    pub account: &'a str,
    /// The signature, in base64.
    pub signature: &'a str,
}

impl<'a> AuthorizationHeader<'a> {
    /// Parses `SharedKey account:signature` or `SharedKeyLite account:signature`.
    ///
    /// # Errors
    /// [`Code::InvalidAuthenticationInfo`] for anything else.
    pub(crate) fn parse(header: &'a str) -> Result<Self> {
        let read = || {
            let (scheme, rest) = header.trim().split_once(' ')?;
            let scheme = match scheme {
                "SharedKey" => Scheme::SharedKey,
                "SharedKeyLite" => Scheme::SharedKeyLite,
                _ => return None,
            };
            let (account, signature) = rest.trim().split_once(':')?;
            let is_complete = !account.is_empty() && !signature.is_empty();
            is_complete.then_some(Self { scheme, account, signature })
        };
        read().ok_or_else(|| {
            let error = Error::from(Code::InvalidAuthenticationInfo);
            error.with_reason(
                "the Authorization header is neither SharedKey nor SharedKeyLite account:signature",
            )
        })
    }
}

/// Checks that an account key signed this request, and that the request's date is recent.
///
/// # Errors
/// [`Code::AuthenticationFailed`] for every reason.
pub(crate) fn verify(
    credentials: &AuthorizationHeader<'_>,
    head: &Head,
    target: &Target,
    keys: &[AccountKey],
    now: Ticks,
) -> Result<()> {
    if credentials.account != target.account {
        let (given, addressed) = (credentials.account, &target.account);
        return Err(failed(format!("signed for the account {given:?}, addressed to {addressed:?}")));
    }
    let date = head.header("x-ms-date").or_else(|| head.header("date"));
    let date = date.ok_or_else(|| failed("there is neither an x-ms-date nor a Date header"))?;
    let sent = DateTime::parse_from_rfc2822(date).map_err(|_| failed(format!("{date:?} is no date")))?;
    let ahead = sent.timestamp() - now.unix_seconds();
    if ahead.abs() > MAX_SKEW_SECONDS {
        return Err(failed(format!(
            "{date:?} is {ahead} seconds ahead of the server, {MAX_SKEW_SECONDS} are allowed"
        )));
    }
    let mut given = [0; SIGNATURE_BUFFER_BYTES];
    let length = STANDARD
        .decode_slice(credentials.signature, &mut given)
        .map_err(|_| failed("the signature is not the base64 of 32 bytes"))?;
    for path in signed_paths(credentials.scheme, head, target) {
        let pieces = signed_pieces(credentials.scheme, head, date, &target.account, &path);
        if keys.iter().any(|key| bool::from(key.sign(pieces).ct_eq(&given[..length]))) {
            return Ok(());
        }
    }
    let expected = signed_pieces(credentials.scheme, head, date, &target.account, &head.path).concat();
    Err(failed(format!(
        "the signature fits none of the keys of {}; is the key right? The text to sign with {:?} is {expected:?}",
        target.account, credentials.scheme
    )))
}

fn failed(reason: impl Into<Box<str>>) -> Error {
    Error::from(Code::AuthenticationFailed).with_reason(reason)
}

/// Returns the paths that clients may have signed: the path as sent, without the suffix of path-style
/// secondary addresses, and the path from [`path_without_account`].
fn signed_paths<'a>(scheme: Scheme, head: &'a Head, target: &Target) -> impl Iterator<Item = Cow<'a, str>> {
    let primary = (target.secondary && target.path_style).then(|| head.path.replacen("-secondary", "", 1));
    let path_without_account =
        (scheme == Scheme::SharedKey).then(|| path_without_account(&head.path, target)).flatten();
    std::iter::once(Cow::Borrowed(head.path.as_ref()))
        .chain(primary.map(Cow::Owned))
        .chain(path_without_account.map(Cow::Borrowed))
}

/// Returns the path after the name of the development account. HashiCorp's SDK signs this path, for this account only,
/// so the signed resource contains the name once instead of twice. The signature is then the same as for the resource
/// in host style. A rest that is itself a path-style address is excluded, because it would name a different resource.
fn path_without_account<'a>(path: &'a str, target: &Target) -> Option<&'a str> {
    let is_development = target.account == DEVELOPMENT_ACCOUNT && target.path_style && !target.secondary;
    let rest = path.strip_prefix('/').filter(|_| is_development)?.strip_prefix(DEVELOPMENT_ACCOUNT)?;
    let segment = rest.strip_prefix('/').unwrap_or(rest).split('/').next()?;
    let is_account = segment.strip_suffix("-secondary").unwrap_or(segment) == DEVELOPMENT_ACCOUNT;
    (!is_account).then_some(rest)
}

/// Returns the string to sign in pieces, one per line: `verb, Content-MD5, Content-Type, date, resource` for
/// SharedKey, `date, resource` for SharedKeyLite (protocol §10.1, §10.2). The resource is `"/" + account +
/// path + ("?comp=" + value, if given)` (§10.3).
fn signed_pieces<'a>(
    scheme: Scheme,
    head: &'a Head,
    date: &'a str,
    account: &'a str,
    path: &'a str,
) -> [&'a str; 13] {
    let header = |name| head.header(name).unwrap_or_default();
    let [verb, md5, content_type, end] = match scheme {
        Scheme::SharedKey => [head.method.as_ref(), header("content-md5"), header("content-type"), "\n"],
        Scheme::SharedKeyLite => [""; 4],
    };
    let comp = head.query.split('&').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        // The name is decoded, as it is for choosing the operation.
        percent_decode(name)?.eq_ignore_ascii_case("comp").then_some(value)
    });
    let (mark, value) = comp.map_or(("", ""), |value| ("?comp=", value));
    [verb, end, md5, end, content_type, end, date, "\n", "/", account, path, mark, value]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::AccountSet;
    use crate::request::options::Options;
    use crate::request::target::resolve;

    const DATE: &str = "Fri, 20 Nov 2026 10:00:00 GMT";

    fn head<'a>(method: &'a str, path: &'a str, query: &'a str) -> Head<'a> {
        Head {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            headers: vec![("host".into(), "127.0.0.1".into()), ("x-ms-date".into(), DATE.into())],
            secure: false,
            peer: None,
        }
    }

    #[test]
    fn each_intermediate_string_is_as_documented() {
        let mut h = head("MERGE", "/acct/T(PartitionKey='%27')", "Comp=acl&x=1");
        h.headers.push(("content-type".into(), "application/json".into()));
        h.headers.push(("date".into(), "ignored".into()));
        let resource = "/acct/acct/T(PartitionKey='%27')?comp=acl";
        let text = |scheme, h: &Head| signed_pieces(scheme, h, DATE, "acct", &h.path).concat();
        assert_eq!(text(Scheme::SharedKey, &h), format!("MERGE\n\napplication/json\n{DATE}\n{resource}"));
        assert_eq!(text(Scheme::SharedKeyLite, &h), format!("{DATE}\n{resource}"));
        h.query = "restype=service".into();
        h.path = "/Tables".into();
        assert_eq!(text(Scheme::SharedKeyLite, &h), format!("{DATE}\n/acct/Tables"));
        // Computed with an independent implementation of HMAC-SHA256.
        assert_eq!(
            STANDARD.encode(key(b"key").sign(["The quick brown fox ", "jumps over the lazy dog"])),
            "97yD9DBThCSxMpjmqm+xQ+9NWaFJRhdZl0edvC0aPNg="
        );
    }

    fn key(bytes: &[u8]) -> AccountKey {
        AccountKey::new(bytes.to_vec()).unwrap()
    }

    fn outcome(scheme: &str, change: impl FnOnce(&mut Head), key: usize, minutes: i64) -> Result<(), Code> {
        let accounts = AccountSet::parse("acct:AQID:BAUG", vec![]).unwrap();
        let mut h = head("GET", "/acct/T()", "");
        let kind = if scheme == "SharedKey" { Scheme::SharedKey } else { Scheme::SharedKeyLite };
        let text = signed_pieces(kind, &h, DATE, "acct", &h.path).concat();
        let secret: &[u8] = [&[1, 2, 3][..], &[4, 5, 6], &[9]][key];
        let signature = STANDARD.encode(self::key(secret).sign([text.as_str()]));
        h.headers.push(("authorization".into(), format!("{scheme} acct:{signature}").into()));
        change(&mut h);
        let target = resolve(&h, &accounts).unwrap();
        let ticks = Ticks::parse("2026-11-20T10:00:00Z").unwrap().raw() + minutes * 600_000_000;
        super::super::credentials(
            &h,
            &Options::default(),
            &target,
            &accounts,
            Ticks::from_raw(ticks).unwrap(),
        )
        .map(drop)
        .map_err(|e| e.code)
    }

    #[test]
    fn both_keys_and_both_schemes_open_the_door_and_nothing_else_does() {
        let failed = Err(Code::AuthenticationFailed);
        for scheme in ["SharedKey", "SharedKeyLite"] {
            assert_eq!(outcome(scheme, |_| {}, 0, 0), Ok(()));
            assert_eq!(outcome(scheme, |_| {}, 1, 14), Ok(()));
            assert_eq!(outcome(scheme, |_| {}, 2, 0), failed);
            assert_eq!(outcome(scheme, |_| {}, 0, 16), failed);
            assert_eq!(outcome(scheme, |_| {}, 0, -16), failed);
            assert_eq!(outcome(scheme, |h| h.path = "/acct/U()".into(), 0, 0), failed);
            assert_eq!(outcome(scheme, |h| h.headers[1].1 = "nonsense".into(), 0, 0), failed);
            assert_eq!(outcome(scheme, |h| drop(h.headers.remove(1)), 0, 0), failed);
        }
        assert_eq!(outcome("SharedKey", |h| h.method = "PUT".into(), 0, 0), failed);
        assert_eq!(outcome("SharedKeyLite", |h| h.method = "PUT".into(), 0, 0), Ok(()));
        let set = |value: &'static str| move |h: &mut Head| h.headers[2].1 = value.into();
        for malformed in ["SharedKey", "SharedKey acct", "SharedKey :x", "SharedKey acct:", "Basic a:b", ""] {
            assert_eq!(
                outcome("SharedKey", set(malformed), 0, 0),
                Err(Code::InvalidAuthenticationInfo),
                "{malformed}"
            );
        }
        assert_eq!(outcome("SharedKey", set("SharedKey other:AAAA"), 0, 0), failed);
        assert_eq!(outcome("SharedKey", set("SharedKey acct:!!"), 0, 0), failed);
    }

    #[test]
    fn missing_credentials_are_told_by_version() {
        for (version, code) in [
            (None, Code::AuthenticationFailed),
            (Some("2019-07-07"), Code::AuthenticationFailed),
            (Some("2020-12-06"), Code::NoCredentials),
        ] {
            let change = |h: &mut Head| {
                h.headers.remove(2);
                h.headers.extend(version.map(|v| ("x-ms-version".into(), v.into())));
            };
            assert_eq!(outcome("SharedKey", change, 0, 0), Err(code), "{version:?}");
        }
    }
}
