//! Stand-ins for the blob and the queue service, for tools that insist on
//! finding their ports: they list nothing, and say of everything else that it is
//! not implemented.

use std::io;
use std::net::TcpListener;

use actix_web::rt::System;
use actix_web::web::{self, Data};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use uuid::Uuid;

/// A service that is not here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    Blob,
    Queue,
}

impl Absent {
    /// What the service's list of containers, or of queues, is called.
    const fn list(self) -> &'static str {
        match self {
            Absent::Blob => "Containers",
            Absent::Queue => "Queues",
        }
    }

    /// Answers on this socket from a thread of its own, until the process ends.
    ///
    /// # Errors
    /// Those of the operating system.
    pub fn answer_on(self, listener: TcpListener) -> io::Result<()> {
        let serve = move || {
            System::new().block_on(async move {
                let app = move || App::new().app_data(Data::new(self)).default_service(web::to(answer));
                HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run().await
            })
        };
        std::thread::Builder::new().name(format!("no-{self:?}")).spawn(move || {
            if let Err(error) = serve() {
                tracing::error!(%error, service = ?self, "a stand-in ended");
            }
        })?;
        Ok(())
    }
}

async fn answer(absent: Data<Absent>, request: HttpRequest) -> HttpResponse {
    let parameters = request.query_string().split('&');
    let is_list = request.method() == "GET" && parameters.into_iter().any(|p| p == "comp=list");
    let account = request.path().trim_matches('/');
    let (status, body) = if is_list && !account.contains('/') {
        (200, empty_list(**absent, request.connection_info().host(), account))
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

fn empty_list(absent: Absent, host: &str, account: &str) -> String {
    let host = quick_xml::escape::escape(host);
    let account = quick_xml::escape::escape(account);
    let list = absent.list();
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults \
         ServiceEndpoint=\"http://{host}/{account}\"><{list} /><NextMarker /></EnumerationResults>"
    )
}
