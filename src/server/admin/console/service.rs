//! `/service/{account}/…`: the Table protocol for operators. Requests pass the same checks as those of
//! clients, except that the sender is already authenticated.

use std::sync::Arc;

use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};

use crate::protocol::auth::Identity;
use crate::protocol::request::{Head, target};
use crate::server::admin::reply::Refusal;
use crate::server::admin::route::{Route, service};
use crate::server::admin::state::{Admin, ConsoleMode};
use crate::server::http::{Incoming, RequestState, head_of, respond};
use crate::service::{Observed, Served};

pub(crate) const ROUTES: &[Route] = &[
    service("GET", "getService", "Read as on the Tables port, with the rights of an operator"),
    service(
        "POST",
        "postService",
        "Insert, or send a batch, as on the Tables port, with the rights of an operator",
    ),
    service("PUT", "putService", "Replace as on the Tables port, with the rights of an operator"),
    service("PATCH", "patchService", "Merge as on the Tables port, with the rights of an operator"),
    service("DELETE", "deleteService", "Delete as on the Tables port, with the rights of an operator"),
];

/// The path prefix, which is removed before the service sees the request.
const PREFIX: &str = "/service";
/// Headers that reach the service. Credentials are left out, because they belong to the admin listener, and
/// so is Origin, because CORS rules apply to the Tables port.
const PASSED: [&str; 13] = [
    "accept",
    "content-type",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "if-match",
    "if-none-match",
    "prefer",
    "dataserviceversion",
    "maxdataserviceversion",
    "x-http-method",
    "x-ms-version",
    "x-ms-client-request-id",
];

/// A response of the service, with its outcome.
pub(crate) struct ServiceAnswer {
    pub response: HttpResponse,
    /// The status of the result. For a refused batch, this is the status of the part inside.
    pub status: u16,
    /// The error code, or an empty text.
    pub error: &'static str,
}

/// Answers a request of the Table protocol with the permissions of an operator, and records facts about the
/// request in `observed`.
///
/// # Errors
/// 404 for a path with invalid percent-encoding; 503 if too many requests wait.
pub(crate) async fn answer(
    admin: &Admin,
    http: &HttpRequest,
    body: Payload,
    observed: &Observed,
) -> Result<ServiceAnswer, Refusal> {
    let head = head(admin, http)?;
    // Resolved early, so that the audit also names account and table of a request that waits for its permit.
    if let Ok(target) = target::resolve(&head, &*admin.service.follower.accounts()) {
        observed.target.get_or_init(|| target);
    }
    let _permit = admin.permit().await?;
    let state = RequestState::of(http);
    let mut body = Incoming::new(body, &head, &state);
    let operator = Identity::Operator { may_write: admin.settings.console == ConsoleMode::On };
    let served = admin.service.serve(&head, &mut body, Some(&operator), observed).await;
    let status = served.answer.outcome_status();
    let error = served.answer.refusal.map_or("", |code| code.facts().code);
    // The CORS rules of accounts apply to the Tables port.
    let served = Served { cors_rules: Arc::default(), ..served };
    let mut response =
        body.close(respond(served, observed.request_id.clone(), observed.version.get(), &head));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(ServiceAnswer { response, status, error })
}

/// Returns the head of the request as the service sees it, addressed to the Tables endpoint.
fn head<'a>(admin: &'a Admin, http: &'a HttpRequest) -> Result<Head<'a>, Refusal> {
    let mut head = head_of(http, &admin.settings.proxies);
    let path = http.uri().path().strip_prefix(PREFIX);
    head.path = path.ok_or_else(|| Refusal::new(404, "NotFound", "There is no such resource."))?.into();
    head.headers.retain(|(name, _)| PASSED.contains(&name.as_ref()));
    let (scheme, host) = admin.settings.tables_endpoint.split_once("://").unwrap_or_default();
    head.secure = scheme == "https";
    head.headers.push(("host".into(), host.into()));
    Ok(head)
}
