//! Controls access to the admin listener.

use std::net::IpAddr;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use uuid::Uuid;

use super::reply::Refusal;

/// Minimum number of characters in a token.
pub(crate) const MIN_TOKEN: usize = 16;

/// The admin token. Only its hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AdminToken([u8; 32]);

impl AdminToken {
    /// Accepts a token of at least [`MIN_TOKEN`] visible ASCII characters.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let fits = text.len() >= MIN_TOKEN && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(Sha256::digest(text).into()))
    }

    /// Generates a token, and returns its text too.
    pub(crate) fn generate() -> (Self, String) {
        let text = Uuid::new_v4().simple().to_string();
        (Self(Sha256::digest(&text).into()), text)
    }

    /// Returns whether a text is the token, and compares in constant time.
    fn is(&self, text: &str) -> bool {
        self.0.ct_eq(&<[u8; 32]>::from(Sha256::digest(text))).into()
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

/// The headers that determine access.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GuardedRequest<'a> {
    pub authorization: Option<&'a str>,
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
}

/// The access rules of the admin listener.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    pub token: AdminToken,
    /// Whether programs on this machine may read without the token, because the operator chose a loopback
    /// address and no token.
    pub is_open_locally: bool,
}

/// The reason why a request was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The request has the token.
    Token,
    /// The request comes from this machine and only reads.
    Local,
}

impl Guard {
    /// Admits a request if it has the token and does not come from a web page of a different site. If
    /// requests without a token are allowed, they must name this machine by its address: any other host name
    /// may belong to a web page whose name was made to resolve to this machine (DNS rebinding).
    ///
    /// # Errors
    /// 401 without the right token, 403 for a request from a web page of a different site.
    pub(crate) fn admit(&self, request: GuardedRequest<'_>) -> Result<Admission, Refusal> {
        let sent = request.authorization.and_then(|header| {
            let (scheme, text) = header.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(text.trim())
        });
        match sent {
            Some(text) if self.token.is(text) && is_own_page(request) => Ok(Admission::Token),
            Some(text) if self.token.is(text) => {
                Err(Refusal::new(403, "Forbidden", "Pages of other sites may not use this listener."))
            }
            None if self.is_open_locally && request.authorization.is_none() => admit_locally(request),
            _ => Err(token_needed()),
        }
    }
}

pub(super) fn token_needed() -> Refusal {
    Refusal::new(401, "Unauthorized", "Send the admin token: Authorization: Bearer TOKEN.")
}

fn admit_locally(request: GuardedRequest<'_>) -> Result<Admission, Refusal> {
    let host = request.host.unwrap_or_default();
    if is_address_or_localhost(host) && is_own_page(request) {
        return Ok(Admission::Local);
    }
    let message =
        "Without the admin token, a request must come from this machine and name its address as the host.";
    Err(Refusal::new(403, "Forbidden", message))
}

/// Returns whether the request comes from no web page, or from a page that this listener, or a proxy in front
/// of it, has served.
fn is_own_page(request: GuardedRequest<'_>) -> bool {
    let own = |origin: &str| {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| !host.is_empty() && Some(host) == request.host)
    };
    request.origin.is_none_or(own)
}

/// Returns whether a host is an address or `localhost`, which cannot be made to resolve to this machine.
fn is_address_or_localhost(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest
            .split_once(']')
            .filter(|(_, port)| port.is_empty() || port.starts_with(':'))
            .map_or("", |(address, _)| address),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_long_and_can_stand_in_a_header() {
        assert!(AdminToken::new(TEXT).is_some());
        for text in ["", "short", "0123456789abcde", "0123456789 abcdef", "0123456789abcdé"] {
            assert_eq!(AdminToken::new(text), None, "{text}");
        }
        assert!(!format!("{:?}", AdminToken::new(TEXT)).contains("0123"));
    }

    fn guard(is_open_locally: bool) -> Guard {
        Guard { token: AdminToken::new(TEXT).unwrap(), is_open_locally }
    }

    #[test]
    fn a_generated_token_lets_in_and_differs_each_time() {
        let (token, text) = AdminToken::generate();
        let authorization = format!("Bearer {text}");
        let request = GuardedRequest { authorization: Some(&authorization), host: None, origin: None };
        let generated = Guard { token, is_open_locally: false };
        assert_eq!(generated.admit(request).ok(), Some(Admission::Token));
        assert_ne!(AdminToken::generate().1, text);
    }

    #[test]
    fn only_the_token_lets_in_where_there_is_one() {
        let ask = |guard: &Guard, authorization| {
            let request = GuardedRequest { authorization, host: Some("127.0.0.1"), origin: None };
            guard.admit(request).map_err(|refusal| refusal.status)
        };
        let wrong =
            ["Bearer 0123456789abcdeg", "Bearer ", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer"];
        for guard in [guard(false), guard(true)] {
            assert_eq!(ask(&guard, Some("Bearer 0123456789abcdef")), Ok(Admission::Token));
            assert_eq!(ask(&guard, Some("bearer  0123456789abcdef")), Ok(Admission::Token));
            for header in wrong {
                assert_eq!(ask(&guard, Some(header)), Err(401), "{header}");
            }
        }
        assert_eq!(ask(&guard(false), None), Err(401));
        assert_eq!(ask(&guard(true), None), Ok(Admission::Local));
    }

    #[test]
    fn the_token_does_not_let_in_pages_of_other_sites() {
        let ask = |origin| {
            let authorization = Some("Bearer 0123456789abcdef");
            let request = GuardedRequest { authorization, host: Some("x.example"), origin: Some(origin) };
            guard(false).admit(request).map_err(|refusal| refusal.status)
        };
        for own in ["http://x.example", "https://x.example"] {
            assert_eq!(ask(own), Ok(Admission::Token), "{own}");
        }
        for other in
            ["null", "", "https://y.example", "https://x.example:1", "x.example", "https://x.example/"]
        {
            assert_eq!(ask(other), Err(403), "{other}");
        }
    }

    #[test]
    fn without_a_token_foreign_pages_are_kept_out() {
        let ask = |host, origin| {
            let request = GuardedRequest { authorization: None, host: Some(host), origin };
            guard(true).admit(request).map_err(|refusal| refusal.status)
        };
        let local = Ok(Admission::Local);
        for host in ["127.0.0.1:10003", "localhost:10003", "[::1]:10003", "127.0.0.1", "LOCALHOST"] {
            assert_eq!(ask(host, None), local, "{host}");
        }
        for host in ["evil.example:10003", "localhost.evil.example", "", "[evil]:1", "[::1]evil.example"] {
            assert_eq!(ask(host, None), Err(403), "{host}");
        }
        assert_eq!(ask("localhost:10003", Some("http://localhost:10003")), local);
        assert_eq!(ask("localhost:10003", Some("https://evil.example")), Err(403));
    }
}
