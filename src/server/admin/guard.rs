//! Access to the admin listener.

use std::net::IpAddr;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::reply::Refusal;

/// Minimum characters of a token.
pub(crate) const MIN_TOKEN: usize = 16;

/// The admin token, of which only the hash is kept.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AdminToken([u8; 32]);

impl AdminToken {
    /// Accepts a token of at least [`MIN_TOKEN`] visible ASCII characters.
    pub(crate) fn new(text: &str) -> Option<Self> {
        let fits = text.len() >= MIN_TOKEN && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(Sha256::digest(text).into()))
    }

    /// Whether this is the token. Compares in constant time.
    fn is(&self, text: &str) -> bool {
        self.0.ct_eq(&<[u8; 32]>::from(Sha256::digest(text))).into()
    }
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminToken(…)")
    }
}

/// The headers that decide on access.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GuardedRequest<'a> {
    pub authorization: Option<&'a str>,
    pub host: Option<&'a str>,
    pub origin: Option<&'a str>,
}

/// Lets a request in if it has the token and comes from no web page of another site. Without a
/// configured token, the listener is reachable from this machine only, and must be addressed as
/// such: another host name may be one of a web page that was made to resolve to this machine (DNS
/// rebinding).
///
/// # Errors
/// 401 without the right token, 403 for a request from a web page of another site.
pub(crate) fn authorize(token: Option<&AdminToken>, request: GuardedRequest<'_>) -> Result<(), Refusal> {
    let Some(token) = token else { return is_local(request) };
    let sent = request.authorization.and_then(|header| {
        let (scheme, text) = header.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(text.trim())
    });
    match sent {
        Some(text) if token.is(text) && is_own_page(request) => Ok(()),
        Some(text) if token.is(text) => {
            Err(Refusal::new(403, "Forbidden", "A page of another site may not ask this server."))
        }
        _ => Err(Refusal::new(401, "Unauthorized", "Show the admin token: Authorization: Bearer …")),
    }
}

fn is_local(request: GuardedRequest<'_>) -> Result<(), Refusal> {
    let host = request.host.unwrap_or_default();
    if is_address_or_localhost(host) && is_own_page(request) {
        return Ok(());
    }
    Err(Refusal::new(403, "Forbidden", "Without a token only this machine may ask, under its address."))
}

/// Whether the request comes from no web page, or from one that this listener, or a proxy in front
/// of it, has served.
fn is_own_page(request: GuardedRequest<'_>) -> bool {
    let own = |origin: &str| {
        let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        host.is_some_and(|host| !host.is_empty() && Some(host) == request.host)
    };
    request.origin.is_none_or(own)
}

/// Anyone can make a host name resolve to this machine, but not an address or `localhost`.
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

    #[test]
    fn only_the_token_lets_in_where_there_is_one() {
        let token = AdminToken::new(TEXT);
        let ask = |authorization| {
            let request = GuardedRequest { authorization, host: Some("x.example"), origin: None };
            authorize(token.as_ref(), request).map_err(|refusal| refusal.status)
        };
        assert_eq!(ask(Some("Bearer 0123456789abcdef")), Ok(()));
        assert_eq!(ask(Some("bearer  0123456789abcdef")), Ok(()));
        let wrong =
            ["Bearer 0123456789abcdeg", "Bearer ", "0123456789abcdef", "Basic 0123456789abcdef", "Bearer"];
        for header in wrong {
            assert_eq!(ask(Some(header)), Err(401), "{header}");
        }
        assert_eq!(ask(None), Err(401));
    }

    #[test]
    fn the_token_does_not_let_in_pages_of_other_sites() {
        let token = AdminToken::new(TEXT);
        let ask = |origin| {
            let authorization = Some("Bearer 0123456789abcdef");
            let request = GuardedRequest { authorization, host: Some("x.example"), origin: Some(origin) };
            authorize(token.as_ref(), request).map_err(|refusal| refusal.status)
        };
        for own in ["http://x.example", "https://x.example"] {
            assert_eq!(ask(own), Ok(()), "{own}");
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
            authorize(None, GuardedRequest { authorization: None, host: Some(host), origin })
                .map_err(|r| r.status)
        };
        for host in ["127.0.0.1:9000", "localhost:9000", "[::1]:9000", "127.0.0.1", "LOCALHOST"] {
            assert_eq!(ask(host, None), Ok(()), "{host}");
        }
        for host in ["evil.example:9000", "localhost.evil.example", "", "[evil]:1", "[::1]evil.example"] {
            assert_eq!(ask(host, None), Err(403), "{host}");
        }
        assert_eq!(ask("localhost:9000", Some("http://localhost:9000")), Ok(()));
        assert_eq!(ask("localhost:9000", Some("https://evil.example")), Err(403));
    }
}
