//! Serves requests over HTTP: connections, encryption, and the conversion of actix requests and responses.

mod busy_poll;
mod forwarded;
mod listen;
mod receive;
mod respond;
mod tls;
mod workarounds;

use std::sync::Arc;

use actix_http::ConnectionType;
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use tokio::sync::watch;
use uuid::Uuid;

pub(crate) use forwarded::Proxies;
pub(crate) use listen::{Listening, accept, bind, listen, reachable, reserve};
pub(crate) use receive::{Incoming, head_of};
pub(crate) use respond::respond;
pub(crate) use tls::{Tls, TlsFiles, ValidityProblem};
pub(crate) use workarounds::{RequestState, has_capital_names};

use crate::service::{Observed, Service};

/// The service, and the settings for its connections.
pub(crate) struct Edge {
    pub service: Arc<Service>,
    /// Proxies whose reports about clients are trusted.
    pub proxies: Proxies,
    /// Whether worker threads busy-poll for a single client.
    pub busy_poll: bool,
    /// Changes once, when clients should connect elsewhere.
    pub draining: watch::Receiver<()>,
}

impl Edge {
    fn is_draining(&self) -> bool {
        self.draining.has_changed().is_ok_and(|changed| changed)
    }
}

/// Routes all requests to the service.
pub(crate) fn configure(app: &mut ServiceConfig, edge: Data<Edge>) {
    app.app_data(edge).default_service(web::to(serve));
}

/// Answers one request.
async fn serve(edge: Data<Edge>, http: HttpRequest, body: Payload) -> HttpResponse {
    let state = RequestState::of(&http);
    let _answering = state.begin();
    let _in_flight = edge.busy_poll.then(busy_poll::begin);
    let head = head_of(&http, &edge.proxies);
    let mut body = Incoming::new(body, &head, &state);
    // Boxed, because actix copies this future several times before it runs.
    let observed = Box::new(Observed::new(Uuid::new_v4().to_string(), false));
    let served = edge.service.serve(&head, &mut body, None, &observed).await;
    let version = observed.version.get();
    let mut response = body.close(respond(served, observed.request_id, version, &head));
    if edge.is_draining() {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    /// actix copies a future several times before it runs, with room for all the state that the future may ever hold.
    /// Large and rare state must be boxed.
    #[test]
    fn the_future_of_a_request_is_small() {
        let size = size(serve);
        assert!(size <= 3072, "{size} bytes");
    }
}
