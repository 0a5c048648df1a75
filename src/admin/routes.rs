//! The routes of the admin listener.

use std::future::Future;
use std::pin::Pin;

use super::call::{Call, Outcome};
use super::{about, accounts, figures, indexes, probes, rewind, tables};

/// The future of an answer.
pub(crate) type Pending<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// A path, its method, and its handler.
pub(crate) struct Route {
    /// `GET` also covers `HEAD`.
    pub method: &'static str,
    /// Segments in braces are parameters: `/accounts/{name}`.
    pub path: &'static str,
    pub access: Access,
    /// Whether the route exists in test mode only.
    pub is_for_tests: bool,
    pub handler: Handler,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anyone.
    Open,
    /// Callers with the token; without a configured token, callers on this machine.
    Guarded,
    /// Callers with the token. Without a configured token, nobody: not every program on this
    /// machine may change accounts or see keys.
    AdminToken,
}

/// All routes, in the order of the documentation.
pub(crate) const ROUTES: &[Route] = &[
    open("GET", "/livez", |call| Box::pin(probes::live(call))),
    open("GET", "/readyz", |call| Box::pin(probes::ready(call))),
    guarded("GET", "/metrics", |call| Box::pin(figures::metrics(call))),
    guarded("GET", "/version", |call| Box::pin(about::version(call))),
    guarded("GET", "/openapi.json", |call| Box::pin(about::openapi(call))),
    guarded("GET", "/tables", |call| Box::pin(tables::tables(call))),
    guarded("GET", "/indexes", |call| Box::pin(indexes::list(call))),
    token("POST", "/indexes", |call| Box::pin(indexes::add(call))),
    token("DELETE", "/indexes/{id}", |call| Box::pin(indexes::remove(call))),
    guarded("GET", "/index-suggestions", |_| Box::pin(async { Ok(indexes::suggestions()) })),
    guarded("GET", "/accounts", |call| Box::pin(accounts::list(call))),
    token("POST", "/accounts", |call| Box::pin(accounts::add(call))),
    guarded("GET", "/accounts/{name}", |call| Box::pin(accounts::read(call))),
    token("DELETE", "/accounts/{name}", |call| Box::pin(accounts::remove(call))),
    token("POST", "/accounts/{name}/disable", |call| Box::pin(accounts::set_disabled(call, true))),
    token("POST", "/accounts/{name}/enable", |call| Box::pin(accounts::set_disabled(call, false))),
    guarded("GET", "/accounts/{name}/limits", |call| Box::pin(accounts::read_limits(call))),
    token("PUT", "/accounts/{name}/limits", |call| Box::pin(accounts::set_limits(call))),
    token("POST", "/accounts/{name}/rotate", |call| Box::pin(accounts::rotate(call))),
    for_tests("POST", "/test/reset", |call| Box::pin(rewind::reset(call))),
    for_tests("GET", "/test/snapshots", |call| Box::pin(rewind::list(call))),
    for_tests("POST", "/test/snapshots", |call| Box::pin(rewind::take(call))),
    for_tests("POST", "/test/snapshots/{name}/restore", |call| Box::pin(rewind::restore(call))),
    for_tests("DELETE", "/test/snapshots/{name}", |call| Box::pin(rewind::discard(call))),
];

type Handler = for<'a> fn(&'a Call<'a>) -> Pending<'a>;

const fn open(method: &'static str, path: &'static str, handler: Handler) -> Route {
    Route { method, path, access: Access::Open, is_for_tests: false, handler }
}

const fn guarded(method: &'static str, path: &'static str, handler: Handler) -> Route {
    Route { method, path, access: Access::Guarded, is_for_tests: false, handler }
}

const fn token(method: &'static str, path: &'static str, handler: Handler) -> Route {
    Route { method, path, access: Access::AdminToken, is_for_tests: false, handler }
}

const fn for_tests(method: &'static str, path: &'static str, handler: Handler) -> Route {
    Route { method, path, access: Access::Guarded, is_for_tests: true, handler }
}

impl Route {
    /// Returns the parameters of a path, percent-decoded; `None` if the path is not this route's or
    /// its percent-encoding is invalid.
    pub(crate) fn parameters(&self, path: &str) -> Option<Vec<(&'static str, String)>> {
        let (mut ours, mut theirs) = (self.path.split('/'), path.split('/'));
        let mut found = Vec::new();
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) => return Some(found),
                (Some(our), Some(their)) => {
                    let name = our.strip_prefix('{').and_then(|our| our.strip_suffix('}'));
                    match name {
                        Some(_) if their.is_empty() => return None,
                        Some(name) => {
                            found.push((name, crate::codec::uri::percent_decode(their)?.into_owned()));
                        }
                        None if our == their => {}
                        None => return None,
                    }
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_in_braces_take_any_text_but_none() {
        let route =
            Route { path: "/accounts/{name}/keys", ..open("GET", "", |call| Box::pin(probes::live(call))) };
        assert_eq!(route.parameters("/accounts/a%20b/keys"), Some(vec![("name", "a b".to_owned())]));
        for other in ["/accounts//keys", "/accounts/a", "/accounts/a/keys/", "/accounts/%/keys", "/"] {
            assert_eq!(route.parameters(other), None, "{other}");
        }
    }

    #[test]
    fn the_description_names_every_route_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(about::OPENAPI).unwrap();
        let mut described = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let is_open = operation["security"] == serde_json::json!([]);
                described.push((method.to_uppercase(), path.clone(), is_open));
                assert!(operation["summary"].is_string(), "{method} {path}");
                let responses = &operation["responses"];
                assert!(responses["200"].is_object() || responses["201"].is_object(), "{method} {path}");
                let refused = responses["401"].is_object() && responses["403"].is_object();
                assert_eq!(refused, !is_open, "{method} {path}");
                let absent = operation["responses"]["404"]["description"].as_str();
                let absent = absent.is_some_and(|text| text.contains("test mode"));
                assert_eq!(absent, path.starts_with("/test/"), "{method} {path}");
            }
        }
        assert!(ROUTES.iter().all(|route| route.is_for_tests == route.path.starts_with("/test/")));
        let mut routes: Vec<_> = ROUTES
            .iter()
            .map(|r| (r.method.to_owned(), r.path.to_owned(), r.access == Access::Open))
            .collect();
        described.sort();
        routes.sort();
        assert_eq!(described, routes);
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
