//! Placeholders for the blob and queue services, for tools that expect their ports to be open. Their lists
//! are empty, and every other request is answered as not implemented.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

use actix_web::rt::System;
use actix_web::rt::net::TcpSocket;
use actix_web::web::{self, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use uuid::Uuid;

use crate::server::http::{accept, reserve};

/// A service that is not implemented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceholderService {
    Blob,
    Queue,
}

impl PlaceholderService {
    /// Returns the XML element of the service's list of containers or queues.
    const fn list_element(self) -> &'static str {
        match self {
            PlaceholderService::Blob => "Containers",
            PlaceholderService::Queue => "Queues",
        }
    }

    /// Reserves the first free address of the host.
    pub(crate) fn reserve(self, host: &str, port: u16) -> io::Result<Placeholder> {
        let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in (host, port).to_socket_addrs()? {
            match reserve(address).and_then(|socket| Ok((socket.local_addr()?, socket))) {
                Ok((address, socket)) => return Ok(Placeholder { service: self, address, socket }),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }
}

/// A placeholder with a reserved address. Connections are refused until it serves, because tools that wait
/// for its port assume that tables are ready too.
pub(crate) struct Placeholder {
    pub service: PlaceholderService,
    /// The actual address.
    pub address: SocketAddr,
    socket: TcpSocket,
}

impl Placeholder {
    /// Serves on a separate thread until the process ends. Must be called within a runtime.
    pub(crate) fn answer(self) -> io::Result<()> {
        let Self { service, socket, .. } = self;
        let listener = accept(socket)?;
        let serve = move || {
            System::new().block_on(async move {
                let app = move || App::new().app_data(Data::new(service)).default_service(web::to(answer));
                HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run().await
            })
        };
        std::thread::Builder::new().name(format!("no-{service:?}")).spawn(move || {
            if let Err(error) = serve() {
                tracing::error!(%error, ?service, "a placeholder ended");
            }
        })?;
        Ok(())
    }
}

async fn answer(service: Data<PlaceholderService>, request: HttpRequest) -> HttpResponse {
    let parameters = request.query_string().split('&');
    let is_list = request.method() == "GET" && parameters.into_iter().any(|p| p == "comp=list");
    let account = request.path().trim_matches('/');
    let (status, body) = if is_list && !account.contains('/') {
        (200, empty_list(**service, request.connection_info().host(), account))
    } else {
        (501, String::from(NOT_IMPLEMENTED))
    };
    let status = actix_web::http::StatusCode::from_u16(status).unwrap_or_default();
    HttpResponse::build(status)
        .content_type("application/xml")
        .insert_header(("x-ms-request-id", Uuid::new_v4().to_string()))
        .insert_header(("x-ms-version", "2019-02-02"))
        .body(body)
}

const NOT_IMPLEMENTED: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>NotImplemented</Code>\
     <Message>Rowhouse stores tables only.</Message></Error>";

fn empty_list(service: PlaceholderService, host: &str, account: &str) -> String {
    let host = quick_xml::escape::escape(host);
    let account = quick_xml::escape::escape(account);
    let list = service.list_element();
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults \
         ServiceEndpoint=\"http://{host}/{account}\"><{list} /><NextMarker /></EnumerationResults>"
    )
}
