//! The admin listener.

use std::io;
use std::net::TcpListener;

use actix_web::dev::Server;
use actix_web::web::{self, Data};
use actix_web::{App, HttpServer};

use super::dispatch::serve;
use super::state::Admin;

/// Maximum number of connections, when none is idle and could be closed.
const MAX_CONNECTIONS: usize = 256;

/// Serves the admin routes on this socket, on a thread of its own, so that probes do not wait for
/// table requests. A graceful stop waits for requests in flight for `shutdown_seconds`.
///
/// # Errors
/// Errors of the operating system.
pub(crate) fn listen(listener: TcpListener, admin: Data<Admin>, shutdown_seconds: u64) -> io::Result<Server> {
    let connected = admin.clone();
    let app = move || App::new().app_data(admin.clone()).default_service(web::to(serve));
    let server = HttpServer::new(app).workers(1).disable_signals().max_connections(MAX_CONNECTIONS);
    let server = server.on_connect(move |connection, data| {
        if let Some(entered) = connected.connections.enter(connection) {
            data.insert(entered);
        }
    });
    Ok(server.shutdown_timeout(shutdown_seconds).listen(listener)?.run())
}
