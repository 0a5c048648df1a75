//! The admin listener: from the socket to the handler of a route.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::{self, Data, Payload};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use bytes::Bytes;
use tokio::time::timeout;

use super::connections::{OpenConnection, OpenConnections};
use super::guard::{self, GuardedRequest};
use super::routes::{Access, ROUTES, Route};
use super::{Admin, Call, Refusal, Reply};

/// Maximum bytes of a body.
pub(crate) const MAX_BODY: usize = 256 * 1024;
/// Timeout for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);
/// Maximum number of connections, when none is idle and could be closed.
const MAX_CONNECTIONS: usize = 256;

/// Serves the admin routes on this socket, on a thread of its own, so that probes do not wait for
/// table requests.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn listen(listener: TcpListener, admin: Data<Admin>) -> io::Result<Server> {
    let app = move || App::new().app_data(admin.clone()).default_service(web::to(serve));
    let open = OpenConnections::default();
    let server = HttpServer::new(app).workers(1).disable_signals().max_connections(MAX_CONNECTIONS);
    let server = server.on_connect(move |connection, data| {
        if let Some(entered) = open.enter(connection) {
            data.insert(entered);
        }
    });
    Ok(server.shutdown_timeout(1).listen(listener)?.run())
}

async fn serve(admin: Data<Admin>, http: HttpRequest, body: Payload) -> HttpResponse {
    let reply = answer(&admin, &http, body).await;
    let wrong = reply.as_ref().err().filter(|refusal| refusal.status == 405);
    let allow = wrong.map(|_| allowed(&admin, http.path()));
    let challenge = reply.as_ref().err().is_some_and(|refusal| refusal.status == 401);
    let reply = reply.unwrap_or_else(Reply::from);
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = HttpResponse::build(status);
    response.content_type(reply.content_type);
    response.insert_header((header::CACHE_CONTROL, HeaderValue::from_static("no-store")));
    response.insert_header((header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")));
    if let Some(allow) = allow {
        response.insert_header((header::ALLOW, allow));
    }
    if challenge {
        response.insert_header((header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")));
    }
    response.body(reply.body)
}

async fn answer(admin: &Admin, http: &HttpRequest, body: Payload) -> Result<Reply, Refusal> {
    let matching: Vec<_> =
        routes(admin).filter_map(|route| Some((route, route.parameters(http.path())?))).collect();
    let known = !matching.is_empty();
    let is_probe = known && matching.iter().all(|(route, _)| route.access == Access::Open);
    let found = matching.into_iter().find(|(route, _)| answers(route, http.method().as_str()));
    // Without the token, not even the existence of other routes is revealed.
    if !is_probe {
        let authorize = guard::authorize(admin.token.as_ref(), guarded(http));
        authorize.inspect_err(|refusal| {
            let peer = http.peer_addr();
            tracing::warn!(?peer, code = refusal.code, "somebody was kept from the admin listener");
        })?;
    }
    let Some((route, parameters)) = found else {
        return Err(match known {
            true => Refusal::new(405, "MethodNotAllowed", "That is not a method of this resource."),
            false => Refusal::new(404, "NotFound", "There is no such resource; see /openapi.json."),
        });
    };
    if route.access == Access::AdminToken && admin.token.is_none() {
        return Err(Refusal::new(
            403,
            "TokenNeeded",
            "Only a server that was given --admin-token does that.",
        ));
    }
    let body = whole(body).await?;
    // From here on the connection is not idle.
    let _busy = http.conn_data::<Arc<OpenConnection>>().map(|seat| seat.busy());
    let call = Call { admin, query: http.query_string(), parameters, body: &body };
    (route.handler)(&call).await
}

async fn whole(body: Payload) -> Result<Bytes, Refusal> {
    match timeout(BODY_TIME, body.to_bytes_limited(MAX_BODY)).await {
        Ok(Ok(Ok(body))) => Ok(body),
        Ok(Ok(Err(_))) => Err(Refusal::bad_request("The body could not be read.")),
        Ok(Err(_)) => Err(Refusal::new(413, "BodyTooLarge", format!("More than {MAX_BODY} bytes."))),
        Err(_) => Err(Refusal::new(408, "RequestTimedOut", "The body did not arrive in time.")),
    }
}

/// The routes that this server has: those of the test mode only if it is on.
fn routes(admin: &Admin) -> impl Iterator<Item = &'static Route> {
    let test_mode = admin.test_mode;
    ROUTES.iter().filter(move |route| test_mode || !route.is_for_tests)
}

fn answers(route: &Route, method: &str) -> bool {
    route.method == method || (route.method == "GET" && method == "HEAD")
}

fn allowed(admin: &Admin, path: &str) -> String {
    let methods = routes(admin).filter(|route| route.parameters(path).is_some()).map(|route| route.method);
    methods.collect::<Vec<_>>().join(", ")
}

fn guarded(http: &HttpRequest) -> GuardedRequest<'_> {
    let text = |name: HeaderName| http.headers().get(name).and_then(|value| value.to_str().ok());
    GuardedRequest {
        authorization: text(header::AUTHORIZATION),
        host: text(header::HOST),
        origin: text(header::ORIGIN),
    }
}
