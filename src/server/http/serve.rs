//! The handler of all requests: from actix to the service and back.

use actix_http::ConnectionType;
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use tokio::sync::watch;

use super::Proxies;
use super::busy_poll;
use super::receive::{Incoming, head_of};
use super::respond::respond;
use super::workarounds::Turn;
use crate::service::Service;
use std::sync::Arc;

/// The service, and the settings of connections.
pub(crate) struct Edge {
    pub service: Arc<Service>,
    /// Proxies whose reports about clients are trusted.
    pub proxies: Proxies,
    /// Whether worker threads busy-poll for a single client.
    pub busy_poll: bool,
    /// Changes once, when clients are to connect elsewhere.
    pub draining: watch::Receiver<()>,
}

impl Edge {
    fn is_draining(&self) -> bool {
        self.draining.has_changed().is_ok_and(|changed| changed)
    }
}

/// Has all requests answered by the service.
pub(crate) fn configure(app: &mut ServiceConfig, edge: Data<Edge>) {
    app.app_data(edge).default_service(web::to(serve));
}

/// Answers one request.
async fn serve(edge: Data<Edge>, http: HttpRequest, body: Payload) -> HttpResponse {
    let turn = Turn::of(&http);
    let _answering = turn.begin();
    let _in_flight = edge.busy_poll.then(busy_poll::begin);
    let head = head_of(&http, &edge.proxies);
    let mut body = Incoming::new(body, &head, &turn);
    let served = edge.service.serve(&head, &mut body).await;
    let mut response = body.close(respond(served, &head));
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

    /// Futures are copied several times on the way to where they run, with all
    /// that they may ever hold: what is large and rare is to be boxed.
    #[test]
    fn what_waits_for_an_answer_is_small() {
        let size = size(serve);
        assert!(size <= 3072, "{size} bytes");
    }
}
