//! Connects a listening socket to the request handler.
//!
//! actix's `HttpServer` does the same, but cannot wrap the connections below HTTP, as the
//! [`workarounds`](super::workarounds) require.

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
use actix_web::web::ServiceConfig;
use actix_web::{App, Error};

use super::tls::Tls;
use super::workarounds::{Connection, HeaderCase, OneAtATime, PeerTimeout, RequestState, app_config};
use crate::service::{Limits, MAX_OPERATION_TIME};

/// The connection type on which actix serves HTTP.
type ServedConnection = OneAtATime<HeaderCase<PeerTimeout<Connection>>>;

/// How long a connection may be idle: longer than with common load balancers, so that they close it first.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long a client may take to close its side.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time between two writes on a connection, in addition to the time for a head and a body. It covers the pause
/// between two requests, an operation, and the longest delay of an operation that tests can inject.
const MAX_SILENCE: Duration = KEEP_ALIVE.saturating_add(MAX_OPERATION_TIME.saturating_mul(2));
const BACKLOG: u32 = 1024;

/// Replaces an unspecified address, such as 0.0.0.0, with the loopback address.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Opens a socket for connections.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    accept(reserve(address)?)
}

/// Accepts connections on a reserved address. Must be called within a runtime.
pub(crate) fn accept(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)?.into_std()
}

/// Reserves an address. Connections are refused until [`accept`].
pub(crate) fn reserve(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart must not wait until earlier connections time out.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// A socket to serve.
pub(crate) struct Listening {
    pub server: ServerBuilder,
    pub listener: TcpListener,
    /// The TLS state, if connections are encrypted.
    pub tls: Option<Arc<Tls>>,
    pub limits: Limits,
}

/// Serves a socket over HTTP/1.1. `configure` sets the handler. `on_connect` is called for each new connection,
/// and its result is dropped when the connection ends.
pub(crate) fn listen<C, E, G>(listening: Listening, configure: C, on_connect: E) -> io::Result<ServerBuilder>
where
    C: Fn(&mut ServiceConfig) + Clone + Send + 'static,
    E: Fn(&TcpStream, &RequestState) -> G + Clone + Send + 'static,
    G: 'static,
{
    let Listening { server, listener, tls, limits } = listening;
    let address = listener.local_addr()?;
    let stop = server.graceful_shutdown_signal();
    server.listen("http", listener, move || {
        let app = App::new().configure(configure.clone()).into_factory();
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
            .on_connect_ext(|connection: &ServedConnection, data| {
                data.insert(connection.request_state().clone());
            })
            .finish(app);
        let (tls, on_connect) = (tls.clone(), on_connect.clone());
        fn_factory(move || {
            let (http, tls, on_connect) = (http.new_service(()), tls.clone(), on_connect.clone());
            async move {
                let http = Rc::new(http.await?);
                let serve = move |connection: TcpStream| {
                    let (http, tls, state) = (Rc::clone(&http), tls.clone(), RequestState::default());
                    let guard = on_connect(&connection, &state);
                    async move {
                        let served = serve_connection(connection, state, &*http, tls, limits).await;
                        drop(guard);
                        served
                    }
                };
                Ok::<_, ()>(fn_service(serve))
            }
        })
    })
}

/// Serves one connection until it ends.
async fn serve_connection<H>(
    connection: TcpStream,
    state: RequestState,
    http: &H,
    tls: Option<Arc<Tls>>,
    limits: Limits,
) -> Result<(), DispatchError>
where
    H: Service<(ServedConnection, Protocol, Option<SocketAddr>), Response = (), Error = DispatchError>,
{
    let peer = connection.peer_addr().ok();
    // The end of a response must not wait until the client acknowledges the beginning.
    connection.set_nodelay(true)?;
    let connection = match tls {
        None => Connection::Left(connection),
        Some(tls) => Connection::Right(Box::new(tls.accept(connection).await?)),
    };
    let connection = PeerTimeout::new(connection, limits.body, MAX_SILENCE + limits.head + limits.body);
    let connection = OneAtATime::new(HeaderCase::new(connection), state);
    http.call((connection, Protocol::Http1, peer)).await
}
