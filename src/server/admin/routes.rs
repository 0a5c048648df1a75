//! The routes of the admin listener.

use std::future::Future;
use std::pin::Pin;

use super::call::Call;
use super::console::{assets, explain, history, requests, sas, session};
use super::reply::Outcome;
use super::{about, accounts, cluster, deleted, expiry, faults, indexes, reset, tables};
use crate::protocol::codec::uri::percent_decode;

/// The future of an answer.
pub(crate) type Pending<'a> = Pin<Box<dyn Future<Output = Outcome> + 'a>>;

/// The names and values of the parameters of a path.
pub(crate) type Parameters = Vec<(&'static str, String)>;

/// A path, its method, and its handler.
pub(crate) struct Route {
    /// `GET` also covers `HEAD`.
    pub method: &'static str,
    /// Segments in braces are parameters: `/accounts/{name}`. A last one that ends with dots takes
    /// the rest of the path, undecoded, which may be empty: `/console/{asset...}`.
    pub path: &'static str,
    pub access: Access,
    pub part: ListenerPart,
    /// Whether the route changes something or gives access to it, so that its use is audited.
    pub is_change: bool,
    pub handler: Handler,
}

/// The part of the listener that a route belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListenerPart {
    /// Every admin listener has it.
    Always,
    /// It exists in test mode only.
    TestMode,
    /// It exists unless the console is off.
    Console,
}

/// What answers a route.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// A function of this module.
    Function(for<'a> fn(&'a Call<'a>) -> Pending<'a>),
    /// The Table service.
    Service,
}

/// Who may use a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Anyone.
    Open,
    /// Callers with the token; where an operator chose a loopback address and no token, every program on this
    /// machine.
    Guarded,
    /// Callers with the token: not every program on this machine may change accounts or see keys.
    AdminToken,
}

/// All routes, in the order of the documentation. The first that matches answers.
pub(crate) const ROUTES: &[Route] = &[
    open("GET", "/livez", |call| Box::pin(about::live(call))),
    open("GET", "/readyz", |call| Box::pin(about::ready(call))),
    guarded("GET", "/metrics", |call| Box::pin(about::metrics(call))),
    guarded("GET", "/version", |call| Box::pin(about::version(call))),
    guarded("GET", "/openapi.json", |call| Box::pin(about::openapi(call))),
    guarded("GET", "/cluster", |call| Box::pin(cluster::status(call))),
    guarded("GET", "/tables", |call| Box::pin(tables::tables(call))),
    guarded("GET", "/deleted-tables", |call| Box::pin(deleted::list(call))),
    token("POST", "/deleted-tables/{id}/undelete", |call| Box::pin(deleted::undelete(call))).changing(),
    token("DELETE", "/deleted-tables/{id}", |call| Box::pin(deleted::purge(call))).changing(),
    guarded("GET", "/indexes", |call| Box::pin(indexes::list(call))),
    token("POST", "/indexes", |call| Box::pin(indexes::add(call))).changing(),
    token("DELETE", "/indexes/{id}", |call| Box::pin(indexes::remove(call))).changing(),
    guarded("GET", "/index-suggestions", |call| Box::pin(indexes::suggestions(call))),
    guarded("GET", "/accounts", |call| Box::pin(accounts::list(call))),
    token("POST", "/accounts", |call| Box::pin(accounts::add(call))).changing(),
    guarded("GET", "/accounts/{name}", |call| Box::pin(accounts::read(call))),
    token("DELETE", "/accounts/{name}", |call| Box::pin(accounts::remove(call))).changing(),
    token("POST", "/accounts/{name}/disable", |call| Box::pin(accounts::set_disabled(call, true))).changing(),
    token("POST", "/accounts/{name}/enable", |call| Box::pin(accounts::set_disabled(call, false))).changing(),
    guarded("GET", "/accounts/{name}/limits", |call| Box::pin(accounts::read_limits(call))),
    token("PUT", "/accounts/{name}/limits", |call| Box::pin(accounts::set_limits(call))).changing(),
    guarded("GET", "/accounts/{name}/queries", |call| Box::pin(async move { accounts::read_queries(call) })),
    token("PUT", "/accounts/{name}/queries", |call| Box::pin(accounts::set_queries(call))).changing(),
    token("POST", "/accounts/{name}/rotate", |call| Box::pin(accounts::rotate(call))).changing(),
    guarded("GET", "/accounts/{name}/tables/{table}/count", |call| Box::pin(tables::count(call))),
    guarded("GET", "/expiry", |call| Box::pin(expiry::list(call))),
    token("PUT", "/accounts/{name}/tables/{table}/expiry", |call| Box::pin(expiry::set(call))).changing(),
    token("DELETE", "/accounts/{name}/tables/{table}/expiry", |call| Box::pin(expiry::clear(call)))
        .changing(),
    for_tests("POST", "/test/reset", |call| Box::pin(reset::reset(call))).changing(),
    for_tests("GET", "/test/snapshots", |call| Box::pin(reset::list(call))),
    for_tests("POST", "/test/snapshots", |call| Box::pin(reset::take(call))).changing(),
    for_tests("POST", "/test/snapshots/{name}/restore", |call| Box::pin(reset::restore(call))).changing(),
    for_tests("DELETE", "/test/snapshots/{name}", |call| Box::pin(reset::discard(call))).changing(),
    for_tests("GET", "/test/faults", |call| Box::pin(async { faults::list(call) })),
    for_tests("PUT", "/test/faults", |call| Box::pin(async { faults::set(call) })).changing(),
    for_tests("DELETE", "/test/faults", |call| Box::pin(async { faults::clear(call) })).changing(),
    open("GET", "/", |call| Box::pin(assets::redirect(call))).of_console(),
    open("GET", "/console", |call| Box::pin(assets::redirect(call))).of_console(),
    token("GET", "/console/api/session", |call| Box::pin(session::session(call))).of_console(),
    open("GET", "/console/{asset...}", |call| Box::pin(assets::asset(call))).of_console(),
    token("GET", "/requests", |call| Box::pin(requests::requests(call))).of_console(),
    token("GET", "/history", |call| Box::pin(history::history(call))).of_console(),
    token("POST", "/explain", |call| Box::pin(explain::explain(call))).of_console(),
    token("POST", "/sas", |call| Box::pin(sas::sign(call))).of_console().changing(),
    token("POST", "/sas/inspect", |call| Box::pin(sas::inspect(call))).of_console(),
    service("GET"),
    service("POST"),
    service("PUT"),
    service("PATCH"),
    service("DELETE"),
];

type Function = for<'a> fn(&'a Call<'a>) -> Pending<'a>;

const fn route(method: &'static str, path: &'static str, access: Access, handler: Handler) -> Route {
    Route { method, path, access, part: ListenerPart::Always, is_change: false, handler }
}

const fn open(method: &'static str, path: &'static str, function: Function) -> Route {
    route(method, path, Access::Open, Handler::Function(function))
}

const fn guarded(method: &'static str, path: &'static str, function: Function) -> Route {
    route(method, path, Access::Guarded, Handler::Function(function))
}

const fn token(method: &'static str, path: &'static str, function: Function) -> Route {
    route(method, path, Access::AdminToken, Handler::Function(function))
}

const fn for_tests(method: &'static str, path: &'static str, function: Function) -> Route {
    Route { part: ListenerPart::TestMode, ..guarded(method, path, function) }
}

/// The service decides what changes something.
const fn service(method: &'static str) -> Route {
    route(method, "/service/{account}/{path...}", Access::AdminToken, Handler::Service).of_console()
}

impl Route {
    const fn changing(self) -> Self {
        Self { is_change: true, ..self }
    }

    const fn of_console(self) -> Self {
        Self { part: ListenerPart::Console, ..self }
    }

    /// Returns the parameters of a path, percent-decoded; `None` if the path is not this route's, its
    /// percent-encoding is invalid, or a parameter has U+0000.
    pub(crate) fn parameters(&self, path: &str) -> Option<Parameters> {
        let (ours, rest) = match self.path.strip_suffix("...}").and_then(|path| path.rsplit_once("/{")) {
            Some((ours, rest)) => (ours, Some(rest)),
            None => (self.path, None),
        };
        let taken = rest.map_or(usize::MAX, |_| ours.split('/').count() + 1);
        let (mut ours, mut theirs) = (ours.split('/'), path.splitn(taken, '/'));
        let mut found = Vec::new();
        loop {
            match (ours.next(), theirs.next()) {
                (None, None) if rest.is_none() => return Some(found),
                (None, Some(their)) => {
                    found.push((rest?, their.to_owned()));
                    return Some(found);
                }
                (Some(our), Some(their)) => {
                    let name = our.strip_prefix('{').and_then(|our| our.strip_suffix('}'));
                    match name {
                        Some(_) if their.is_empty() => return None,
                        Some(name) => {
                            let text = percent_decode(their).filter(|text| !text.contains('\0'))?;
                            found.push((name, text.into_owned()));
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
            Route { path: "/accounts/{name}/keys", ..open("GET", "", |call| Box::pin(about::live(call))) };
        assert_eq!(route.parameters("/accounts/a%20b/keys"), Some(vec![("name", "a b".to_owned())]));
        for other in ["/accounts//keys", "/accounts/a", "/accounts/a/keys/", "/accounts/%/keys", "/"] {
            assert_eq!(route.parameters(other), None, "{other}");
        }
    }

    #[test]
    fn the_rest_of_a_path_may_be_empty_and_have_slashes() {
        let open = |path| open("GET", path, |call| Box::pin(about::live(call)));
        let route = open("/a/{b}/{rest...}");
        let found =
            |path| route.parameters(path).map(|found| found.into_iter().map(|(_, v)| v).collect::<Vec<_>>());
        assert_eq!(found("/a/x/"), Some(vec!["x".into(), String::new()]));
        assert_eq!(found("/a/x/y%20/z"), Some(vec!["x".into(), "y%20/z".into()]));
        for other in ["/a", "/a/x", "/a//y", "/b/x/y", "/"] {
            assert_eq!(found(other), None, "{other}");
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
                assert!(
                    ["200", "201", "308"].iter().any(|status| responses[*status].is_object()),
                    "{method} {path}"
                );
                let refused = responses["401"].is_object() && responses["403"].is_object();
                assert_eq!(refused, !is_open, "{method} {path}");
                let absent = operation["responses"]["404"]["description"].as_str();
                let absent = absent.is_some_and(|text| text.contains("test mode"));
                assert_eq!(absent, path.starts_with("/test/"), "{method} {path}");
            }
        }
        let for_tests =
            |route: &Route| (route.part == ListenerPart::TestMode) == route.path.starts_with("/test/");
        assert!(ROUTES.iter().all(for_tests));
        let mut routes: Vec<_> = ROUTES
            .iter()
            .map(|r| (r.method.to_owned(), r.path.replace("...}", "}"), r.access == Access::Open))
            .collect();
        described.sort();
        routes.sort();
        assert_eq!(described, routes);
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
