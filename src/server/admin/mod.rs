//! The admin listener: probes, metrics and account administration, on a separate port.
//!
//! Each module declares its routes, with their descriptions and handlers. [`routes`] generates the OpenAPI
//! document from the routes. Errors are `{"error":{"code":…,"message":…}}`.

mod about;
mod accounts;
mod audit;
mod call;
mod console;
mod dispatch;
mod expiry;
mod guard;
mod history;
mod indexes;
mod reply;
mod route;
pub(crate) mod routes;
mod state;
mod tables;
mod test_mode;

pub(crate) use console::requests::record_history;
pub(crate) use console::sas::SignedSas;
pub(crate) use guard::{AdminToken, Guard};
pub(crate) use state::{Admin, AdminSettings, ConsoleMode};

use std::io;
use std::net::TcpListener;

use actix_web::dev::Server;
use actix_web::web::{self, Data};

use crate::server::http::{Listening, listen as serve_connections};
use dispatch::serve;
use state::MAX_CONNECTIONS;

/// Serves the admin routes on this socket, on a separate thread, so that probes do not wait for table
/// requests. A graceful stop waits up to `shutdown_seconds` for requests in flight.
pub(crate) fn listen(listener: TcpListener, admin: Data<Admin>, shutdown_seconds: u64) -> io::Result<Server> {
    let server = Server::build()
        .workers(1)
        .disable_signals()
        .max_concurrent_connections(MAX_CONNECTIONS)
        .shutdown_timeout(shutdown_seconds);
    let listening = Listening { server, listener, tls: None, limits: admin.service.limits };
    let connected = admin.clone();
    let server = serve_connections(
        listening,
        move |app| {
            app.app_data(admin.clone()).default_service(web::to(serve));
        },
        move |connection, turn| connected.connections.enter(connection, turn),
    )?;
    Ok(server.run())
}
