//! Dispatches a request of an operator: route, access, handler, audit, response.

use std::cell::OnceCell;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use tokio::time::timeout;
use uuid::Uuid;

use super::audit::{Audit, Audited, Operator};
use super::call::{Call, text_of};
use super::console::service;
use super::guard::{Admission, GuardedRequest, token_needed};
use super::reply::{Outcome, Refusal, Reply};
use super::route::{Access, Handler, ListenerPart, Parameters, Route};
use super::routes::routes;
use super::state::{Admin, ConsoleMode, MAX_BODY};
use crate::observe::metrics::warning_limiter::{DueWarning, WarningLimiter};
use crate::server::http::{RequestState, has_capital_names, head_of};
use crate::service::Observed;

/// Timeout for receiving a body.
const BODY_TIME: Duration = Duration::from_secs(10);
const REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-request-id");

pub(super) async fn serve(admin: Data<Admin>, http: HttpRequest, body: Payload) -> HttpResponse {
    let state = RequestState::of(&http);
    let _answering = state.begin();
    let request_id = Uuid::new_v4().to_string();
    let mut response = match answer(&admin, &http, body, &request_id).await {
        Ok(Answered::Service(response)) => response,
        Ok(Answered::Reply(reply)) => respond(reply, &request_id),
        Err(refusal) => refuse(&admin, &http, refusal, &request_id),
    };
    response.head_mut().set_camel_case_headers(has_capital_names(http.method().as_str()));
    response
}

/// A response of this listener or of the Table service.
enum Answered {
    Reply(Reply),
    Service(HttpResponse),
}

async fn answer(
    admin: &Admin,
    http: &HttpRequest,
    body: Payload,
    request_id: &str,
) -> Result<Answered, Refusal> {
    let (route, parameters, admission) = route_of(admin, http)?;
    let permitted = permitted(admin, http, route, admission);
    let operator = Operator { peer: head_of(http, &admin.settings.proxies).peer, admission };
    match route.handler {
        Handler::Service => {
            let observed = Observed::new(request_id.to_owned(), true);
            let audit = Audit::begin(operator, route, Audited::Service(&observed), request_id);
            let answered = match permitted {
                Ok(()) => service::answer(admin, http, body, &observed).await,
                Err(refusal) => Err(refusal),
            };
            audit.end(answered.as_ref().map(|answer| (answer.status, answer.error)));
            answered.map(|answer| Answered::Service(answer.response))
        }
        Handler::Function(function) => {
            let (headers, query) = (http.headers(), http.query_string());
            let (received, subject, account) = (OnceCell::new(), OnceCell::new(), OnceCell::new());
            let call = Call { admin, query, parameters, received, headers, subject, account };
            let audit = Audit::begin(operator, route, Audited::Call(&call), request_id);
            let outcome: Outcome = match permitted {
                Ok(()) => match whole(http, body).await {
                    Ok(body) => {
                        call.received.get_or_init(|| body);
                        function(&call).await
                    }
                    Err(refusal) => Err(refusal),
                },
                Err(refusal) => Err(refusal),
            };
            audit.end(outcome.as_ref().map(|reply| (reply.status, "")));
            outcome.map(Answered::Reply)
        }
    }
}

/// Logs the refusal of a request, at most once a second.
fn warn_of(refusal: &Refusal, http: &HttpRequest) {
    static REFUSED: WarningLimiter = WarningLimiter::new();
    if let Some(DueWarning { left_out }) = REFUSED.due() {
        let peer = http.peer_addr();
        tracing::warn!(?peer, code = refusal.code, left_out, "the admin listener refused a request");
    }
}

/// Returns the route of a request if the sender may know of it, its parameters, and the reason for admission.
fn route_of(admin: &Admin, http: &HttpRequest) -> Result<(&'static Route, Parameters, Admission), Refusal> {
    let matching: Vec<_> =
        offered(admin).filter_map(|route| Some((route, route.parameters(http.path())?))).collect();
    let known = !matching.is_empty();
    let is_open = known && matching.iter().all(|(route, _)| route.access == Access::Open);
    // Without the token, a client cannot even learn which other routes exist.
    let admission = match is_open {
        true => Admission::Local,
        false => admin.settings.guard.admit(guarded(http)).inspect_err(|refusal| warn_of(refusal, http))?,
    };
    let Some((route, parameters)) =
        matching.into_iter().find(|(route, _)| answers(route, http.method().as_str()))
    else {
        return Err(match known {
            true => Refusal::new(405, "MethodNotAllowed", "This resource does not support the method."),
            false => Refusal::new(404, "NotFound", "There is no such resource; see /openapi.json."),
        });
    };
    Ok((route, parameters, admission))
}

/// Refuses a request without the token that its route needs, and a change by a browser if the console is read-only.
fn permitted(admin: &Admin, http: &HttpRequest, route: &Route, admission: Admission) -> Result<(), Refusal> {
    if route.access == Access::AdminToken && admission != Admission::Token {
        return Err(token_needed());
    }
    if route.is_change && admin.settings.console == ConsoleMode::ReadOnly && is_of_browser(http) {
        return Err(super::console::read_only());
    }
    Ok(())
}

/// Returns whether a browser sent the request. Browsers send one of these headers with every request that can
/// change something, and no page can omit them.
fn is_of_browser(http: &HttpRequest) -> bool {
    ["origin", "sec-fetch-site"].iter().any(|name| http.headers().contains_key(*name))
}

async fn whole(http: &HttpRequest, body: Payload) -> Result<Bytes, Refusal> {
    let state = RequestState::of(http);
    match timeout(BODY_TIME, state.receive(None, body.to_bytes_limited(MAX_BODY))).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(_))) => Err(Refusal::bad_request("The body could not be read.")),
        Ok(Err(_)) => Err(Refusal::new(413, "BodyTooLarge", format!("More than {MAX_BODY} bytes."))),
        Err(_) => Err(Refusal::new(408, "RequestTimedOut", "The body did not arrive in time.")),
    }
}

fn offered(admin: &Admin) -> impl Iterator<Item = &'static Route> {
    let settings = &admin.settings;
    routes().filter(move |route| match route.part {
        ListenerPart::Always => true,
        ListenerPart::TestMode => settings.test_mode,
        ListenerPart::Console => settings.console != ConsoleMode::Off,
    })
}

fn answers(route: &Route, method: &str) -> bool {
    route.method == method || (route.method == "GET" && method == "HEAD")
}

fn methods(admin: &Admin, path: &str) -> String {
    let methods = offered(admin).filter(|route| route.parameters(path).is_some()).map(|route| route.method);
    methods.collect::<Vec<_>>().join(", ")
}

fn guarded(http: &HttpRequest) -> GuardedRequest<'_> {
    let headers = http.headers();
    GuardedRequest {
        authorization: text_of(headers, header::AUTHORIZATION),
        host: text_of(headers, header::HOST),
        // A header that is not text counts as a foreign origin.
        origin: headers.get(header::ORIGIN).map(|value| value.to_str().unwrap_or_default()),
    }
}

fn refuse(admin: &Admin, http: &HttpRequest, refusal: Refusal, request_id: &str) -> HttpResponse {
    let status = refusal.status;
    let reply = Reply::from(refusal);
    let reply = match status {
        401 => reply.with("WWW-Authenticate", "Bearer"),
        405 => reply.with("Allow", methods(admin, http.path())),
        _ => reply,
    };
    respond(reply, request_id)
}

fn respond(reply: Reply, request_id: &str) -> HttpResponse {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    response.content_type(reply.content_type);
    response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
    response.insert_header((header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")));
    response.insert_header((REQUEST_ID, request_id));
    for (name, value) in reply.headers {
        response.insert_header((name, value.as_ref()));
    }
    response.body(reply.body)
}
