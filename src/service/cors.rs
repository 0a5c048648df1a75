//! CORS: requests from pages of other origins (protocol §11.3).

use crate::error::{Code, Result};
use crate::protocol::codec::properties::CorsRule;
use crate::protocol::request::Head;

/// Maximum number of headers that a preflight request may list. The limit bounds the work for clients without
/// credentials, because each header is compared with those of the rules.
const MAX_REQUESTED_HEADERS: usize = 256;

/// Headers to add to a response.
pub(crate) type CorsHeaders = Vec<(&'static str, String)>;

/// The value in a rule that allows every origin.
const ANY: &str = "*";
const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";

/// Answers a preflight request. Even if the rule allows all origins, the answer repeats the origin and allows
/// credentials, like that of the emulator. Other responses then send `*` without credentials, as recorded from Azure
/// (protocol §11.3).
///
/// # Errors
/// [`Code::CorsHeaderMissing`] without Origin or method, [`Code::CorsPreflightFailure`] if no rule
/// matches.
pub(crate) fn preflight(head: &Head, rules: &[CorsRule]) -> Result<CorsHeaders> {
    let origin = head.header("origin").ok_or(Code::CorsHeaderMissing)?;
    let method = head.header("access-control-request-method").ok_or(Code::CorsHeaderMissing)?;
    let requested = head.header("access-control-request-headers").unwrap_or_default();
    let names: Vec<&str> = requested.split(',').map(str::trim).filter(|n| !n.is_empty()).collect();
    if names.len() > MAX_REQUESTED_HEADERS {
        return Err(Code::CorsPreflightFailure.into());
    }
    let rule = find(rules, origin, method)
        .find(|rule| names.iter().all(|name| matches_any(&rule.allowed_headers, name)))
        .ok_or(Code::CorsPreflightFailure)?;
    let mut headers = vec![
        (ALLOW_ORIGIN, origin.to_owned()),
        ("Access-Control-Allow-Methods", method.to_owned()),
        ("Access-Control-Max-Age", rule.max_age.to_string()),
        (ALLOW_CREDENTIALS, "true".to_owned()),
    ];
    if !requested.is_empty() {
        headers.push(("Access-Control-Allow-Headers", requested.to_owned()));
    }
    Ok(headers)
}

/// Returns the headers to add to the response to any other request. `sent_names` are the headers of the response.
/// As recorded, if a rule allows all origins, a GET without an origin is answered like one with any origin,
/// but without Vary.
pub(crate) fn response_headers(head: &Head, rules: &[CorsRule], sent_names: &[&str]) -> CorsHeaders {
    let mut headers = CorsHeaders::new();
    if rules.is_empty() {
        return headers;
    }
    let is_get = head.method == "GET";
    let origin = head.header("origin").or(is_get.then_some(ANY));
    let rule = origin.and_then(|origin| Some((origin, find(rules, origin, &head.method).next()?)));
    let mut varies = is_get;
    if let Some((origin, rule)) = rule {
        if rule.origins.iter().any(|o| o == ANY) {
            headers.push((ALLOW_ORIGIN, ANY.to_owned()));
            varies = false;
        } else {
            headers.push((ALLOW_ORIGIN, origin.to_owned()));
            headers.push((ALLOW_CREDENTIALS, "true".to_owned()));
            varies = true;
        }
        let exposed: Vec<&str> =
            sent_names.iter().copied().filter(|name| matches_any(&rule.exposed_headers, name)).collect();
        if !exposed.is_empty() {
            headers.push(("Access-Control-Expose-Headers", exposed.join(",")));
        }
    }
    if varies {
        headers.push(("Vary", "Origin".to_owned()));
    }
    headers
}

/// Returns the rules that match an origin and a method, both case-sensitively.
fn find<'a>(rules: &'a [CorsRule], origin: &'a str, method: &'a str) -> impl Iterator<Item = &'a CorsRule> {
    rules.iter().filter(move |rule| {
        rule.origins.iter().any(|o| o == ANY || o == origin) && rule.methods.iter().any(|m| m == method)
    })
}

/// Returns whether a header matches a literal, a prefix `abc*` or `*`, ignoring case.
fn matches_any(patterns: &[String], name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    patterns.iter().any(|pattern| {
        let pattern = pattern.to_ascii_lowercase();
        match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == pattern,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head<'a>(method: &'a str, headers: &[(&'a str, &'a str)]) -> Head<'a> {
        let own = |(name, value): &(&'a str, &'a str)| ((*name).into(), (*value).into());
        Head { method: method.into(), headers: headers.iter().map(own).collect(), ..Head::default() }
    }
    fn rule(origin: &str, methods: &str, allowed: &str, exposed: &str) -> CorsRule {
        let list = |text: &str| text.split(',').filter(|t| !t.is_empty()).map(str::to_owned).collect();
        CorsRule {
            origins: list(origin),
            methods: list(methods),
            allowed_headers: list(allowed),
            exposed_headers: list(exposed),
            max_age: 7,
        }
    }
    fn get(headers: &CorsHeaders, name: &str) -> Option<String> {
        headers.iter().find(|(n, _)| *n == name).map(|(_, v)| v.clone())
    }

    #[test]
    fn a_preflight_takes_the_first_rule_that_matches_everything() {
        let rules = [rule("http://a", "GET", "x-ms-*", ""), rule("*", "PUT", "*", "")];
        let ask = |origin: &str, method: &str, headers: &str| {
            let head = head(
                "OPTIONS",
                &[
                    ("origin", origin),
                    ("access-control-request-method", method),
                    ("access-control-request-headers", headers),
                ],
            );
            preflight(&head, &rules).map_err(|e| e.code)
        };
        let granted = ask("http://a", "GET", "X-MS-Date, x-ms-version").unwrap();
        assert_eq!(get(&granted, ALLOW_ORIGIN).as_deref(), Some("http://a"));
        assert_eq!(get(&granted, "Access-Control-Max-Age").as_deref(), Some("7"));
        assert_eq!(get(&granted, "Access-Control-Allow-Headers").as_deref(), Some("X-MS-Date, x-ms-version"));
        assert!(ask("http://b", "PUT", "anything").is_ok());
        let many = |count: usize| vec!["x"; count].join(",");
        assert!(ask("http://b", "PUT", &many(MAX_REQUESTED_HEADERS)).is_ok());
        assert_eq!(ask("http://b", "PUT", &many(MAX_REQUESTED_HEADERS + 1)), Err(Code::CorsPreflightFailure));
        for (origin, method, headers) in [
            ("http://A", "GET", ""),
            ("http://a", "GET", "other"),
            ("http://b", "GET", ""),
            ("http://a", "get", ""),
        ] {
            assert_eq!(ask(origin, method, headers), Err(Code::CorsPreflightFailure), "{origin} {method}");
        }
        let bare = head("OPTIONS", &[("origin", "http://a")]);
        assert_eq!(preflight(&bare, &rules).unwrap_err().code, Code::CorsHeaderMissing);
        assert_eq!(preflight(&head("OPTIONS", &[]), &rules).unwrap_err().code, Code::CorsHeaderMissing);
    }

    #[test]
    fn responses_list_the_headers_that_pages_may_read() {
        let sent_names = ["ETag", "x-ms-version", "Date"];
        let named = [rule("http://a", "GET", "", "x-ms-*,etag")];
        let headers = response_headers(&head("GET", &[("origin", "http://a")]), &named, &sent_names);
        assert_eq!(get(&headers, ALLOW_CREDENTIALS).as_deref(), Some("true"));
        assert_eq!(get(&headers, "Access-Control-Expose-Headers").as_deref(), Some("ETag,x-ms-version"));
        assert_eq!(get(&headers, "Vary").as_deref(), Some("Origin"));
        let anyone = [rule("*", "GET,PUT", "", "*")];
        let headers = response_headers(&head("PUT", &[("origin", "http://z")]), &anyone, &sent_names);
        assert_eq!(get(&headers, ALLOW_ORIGIN).as_deref(), Some("*"));
        assert_eq!((get(&headers, ALLOW_CREDENTIALS), get(&headers, "Vary")), (None, None));
        assert_eq!(get(&headers, "Access-Control-Expose-Headers").as_deref(), Some("ETag,x-ms-version,Date"));
        let unmatched = response_headers(&head("GET", &[("origin", "http://b")]), &named, &sent_names);
        assert_eq!(unmatched, vec![("Vary", "Origin".to_owned())]);
        assert_eq!(response_headers(&head("PUT", &[]), &named, &sent_names), vec![]);
        assert_eq!(response_headers(&head("GET", &[]), &[], &sent_names), vec![]);
    }
}
