//! From a listening socket to the handler of requests.
//!
//! actix's `HttpServer` does the same, but cannot wrap the connections below HTTP, as
//! [`workarounds`](super::workarounds) has to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, Protocol};
use actix_server::ServerBuilder;
use actix_service::{
    IntoServiceFactory as _, Service, ServiceFactory as _, ServiceFactoryExt as _, fn_factory, fn_service,
    map_config,
};
use actix_web::rt::net::{TcpSocket, TcpStream};
use actix_web::web::{self, Data};
use actix_web::{App, Error};

use super::connection::Connection;
use super::serve::{Edge, serve};
use super::timeouts::{DISCONNECT_TIMEOUT, KEEP_ALIVE};
use super::tls::Tls;
use super::workarounds::{HeaderCase, PeerTimeout, app_config};
use crate::service::{Limits, MAX_OPERATION_TIME};

/// What actix serves HTTP on.
type ServedConnection = (HeaderCase<PeerTimeout<Connection>>, Protocol, Option<SocketAddr>);

/// Maximum time between two writes on a connection, besides those for a head and a body: for the pause between
/// two requests, and for an operation, which tests may delay by as long.
const SILENCE: Duration = KEEP_ALIVE.saturating_add(MAX_OPERATION_TIME.saturating_mul(2));
/// Maximum connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// Replaces the unspecified address, which means all addresses of the machine, by the loopback
/// address.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Opens a socket for connections.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    accept(reserve(address)?)
}

/// Accepts connections on an address that was reserved. Only within a runtime.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn accept(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?.into_std()
}

/// Reserves an address; connections are refused until [`accept`].
///
/// # Errors
/// Those of the operating system.
pub(crate) fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait for earlier connections to time out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Serves this socket over HTTP/1.1; with `tls`, on encrypted connections only.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn listen(
    server: ServerBuilder,
    listener: TcpListener,
    edge: Edge,
    tls: Option<Arc<Tls>>,
) -> io::Result<ServerBuilder> {
    let address = listener.local_addr()?;
    let limits = edge.service.limits;
    let edge = Data::new(edge);
    let stop = server.graceful_shutdown_signal();
    server.listen("http", listener, move || {
        let app = App::new().app_data(edge.clone()).default_service(web::to(serve)).into_factory();
        let is_encrypted = tls.is_some();
        let app = map_config(app.map_err(|error: Error| error.error_response()), move |()| {
            app_config(is_encrypted, address)
        });
        let stopping = stop.clone();
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let stop = stopping.clone();
                async move { stop.notified().await }
            })
            .keep_alive(KEEP_ALIVE)
            .client_request_timeout(limits.head)
            .client_disconnect_timeout(DISCONNECT_TIMEOUT)
            .local_addr(address)
            .finish(app);
        let tls = tls.clone();
        fn_factory(move || {
            let (http, tls) = (http.new_service(()), tls.clone());
            async move {
                let http = Rc::new(http.await?);
                let serve = move |connection: TcpStream| {
                    let (http, tls) = (Rc::clone(&http), tls.clone());
                    async move { converse(connection, &*http, tls, limits).await }
                };
                Ok::<_, ()>(fn_service(serve))
            }
        })
    })
}

/// Serves one connection until it ends.
async fn converse<H>(
    connection: TcpStream,
    http: &H,
    tls: Option<Arc<Tls>>,
    limits: Limits,
) -> Result<(), DispatchError>
where
    H: Service<ServedConnection, Response = (), Error = DispatchError>,
{
    let peer = connection.peer_addr().ok();
    // The end of an answer must not wait until the client acknowledges its beginning.
    connection.set_nodelay(true)?;
    let connection = match tls {
        None => Connection::Plain(connection),
        Some(tls) => Connection::Encrypted(Box::new(tls.accept(connection).await?)),
    };
    let connection = PeerTimeout::new(connection, limits.body, SILENCE + limits.head + limits.body);
    http.call((HeaderCase::new(connection), Protocol::Http1, peer)).await
}
