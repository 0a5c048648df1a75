//! All routes of the admin listener. Each module declares its own, with their handlers.

use std::sync::LazyLock;

use super::call::Call;
use super::console::{assets, requests, sas, service, session};
use super::reply::{Outcome, Reply};
use super::route::{Route, guarded};
use super::{about, accounts, deleted, expiry, indexes, openapi, tables, test_mode};

const ROUTES: &[&[Route]] = &[
    about::ROUTES,
    DOCUMENTATION,
    tables::ROUTES,
    deleted::ROUTES,
    indexes::ROUTES,
    accounts::ROUTES,
    expiry::ROUTES,
    test_mode::ROUTES,
    session::ROUTES,
    assets::ROUTES,
    requests::ROUTES,
    sas::ROUTES,
    service::ROUTES,
];

const DOCUMENTATION: &[Route] = &[guarded("GET", "/openapi.json", |call| Box::pin(document(call)))
    .about("openapi", "This OpenAPI document")
    .answers::<serde_json::Map<String, serde_json::Value>>("An OpenAPI document.")];

/// Returns all routes. The first one that matches a request answers it.
pub(crate) fn routes() -> impl Iterator<Item = &'static Route> {
    ROUTES.iter().copied().flatten()
}

/// Generated once, because clients choose how often they request it.
static DOCUMENT: LazyLock<Reply> = LazyLock::new(|| Reply::json(200, &openapi::generate(routes())));

/// Returns the OpenAPI document.
async fn document(_: &Call<'_>) -> Outcome {
    Ok(DOCUMENT.clone())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::server::admin::route::ListenerPart;

    /// The committed document, for readers and for reviews of changes.
    const COMMITTED: &str = "docs/reference/openapi.json";

    #[test]
    fn the_committed_document_is_the_generated_one() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(COMMITTED);
        let generated = format!("{}\n", serde_json::to_string_pretty(&openapi::generate(routes())).unwrap());
        if std::env::var_os("ROWHOUSE_WRITE_OPENAPI").is_some() {
            std::fs::write(&path, &generated).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let is_same = committed == generated;
        assert!(is_same, "{COMMITTED} is old: ROWHOUSE_WRITE_OPENAPI=1 cargo test --lib routes");
    }

    #[test]
    fn each_operation_has_a_name_of_its_own() {
        let mut ids: Vec<&str> = routes().map(|route| route.description.id).collect();
        ids.sort_unstable();
        let count = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }

    #[test]
    fn routes_for_tests_and_only_those_begin_with_test() {
        let for_tests =
            |route: &Route| (route.part == ListenerPart::TestMode) == route.path.starts_with("/test/");
        assert!(routes().all(for_tests));
    }
}
