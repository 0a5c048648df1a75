//! Converts responses of the service to actix responses (protocol §2.2).

use std::borrow::Cow;

use actix_http::ConnectionType;
use actix_web::HttpResponse;
use actix_web::body::BoxBody;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::web::Bytes;

use super::workarounds::{LENGTH_PLACEHOLDER, closes_after_upgrade, has_capital_names};
use crate::protocol::request::Head;
use crate::protocol::request::head::{ApiVersion, DEFAULT};
use crate::service::{Answer, CorsHeaders, Served, XML, cors_headers};

/// Maximum length of a client request id that is echoed.
const MAX_CLIENT_REQUEST_ID: usize = 1024;

const SERVER: &str = concat!("Windows-Azure-Table/1.0 Rowhouse/", env!("CARGO_PKG_VERSION"));
const REQUEST_ID: &str = "x-ms-request-id";
const CLIENT_REQUEST_ID: &str = "x-ms-client-request-id";
const VERSION: &str = "x-ms-version";

/// Converts a response and adds the common headers.
pub(crate) fn respond(
    served: Served,
    request_id: String,
    version: Option<ApiVersion>,
    head: &Head<'_>,
) -> HttpResponse {
    let Served { answer, cors_rules } = served;
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let cors = if cors_rules.is_empty() {
        CorsHeaders::new()
    } else {
        cors_headers(head, &cors_rules, &names_sent(&answer, head))
    };
    let mut response = HttpResponse::new(status).set_body(BoxBody::new(answer.body));
    if let Some(reason) = answer.reason {
        response.head_mut().reason = Some(reason);
    }
    response.head_mut().set_camel_case_headers(has_capital_names(&head.method));
    if closes_after_upgrade(head) {
        response.head_mut().set_connection_type(ConnectionType::Close);
    }
    let headers = response.headers_mut();
    for (name, value) in answer.headers {
        insert(headers, name, value);
    }
    for (name, value) in cors {
        insert(headers, name, value.into());
    }
    if status == StatusCode::NO_CONTENT {
        insert(headers, LENGTH_PLACEHOLDER, "0".into());
    }
    insert(headers, REQUEST_ID, request_id.into());
    let version = version.as_ref().map_or(DEFAULT, ApiVersion::echo);
    insert(headers, VERSION, if version == DEFAULT { DEFAULT.into() } else { version.to_owned().into() });
    insert(headers, "Server", SERVER.into());
    // Bytes other than ASCII would not be echoed unchanged.
    let can_be_echoed = |id: &&str| id.is_ascii() && id.len() <= MAX_CLIENT_REQUEST_ID;
    if let Some(id) = head.header(CLIENT_REQUEST_ID).filter(can_be_echoed) {
        insert(headers, CLIENT_REQUEST_ID, id.to_owned().into());
    }
    response
}

/// Returns the names of all headers in a response. As recorded, the Content-Type of an XML document is left out.
fn names_sent<'a>(answer: &'a Answer, head: &Head<'_>) -> Vec<&'a str> {
    let client_id = head.header(CLIENT_REQUEST_ID).map(|_| CLIENT_REQUEST_ID);
    [REQUEST_ID]
        .into_iter()
        .chain(client_id)
        .chain(["Server", VERSION])
        .chain(answer.headers.iter().filter(|(_, value)| value != XML).map(|(name, _)| *name))
        .chain(["Content-Length", "Date"])
        .collect()
}

/// Adds a header. An invalid value is omitted rather than altered.
fn insert(headers: &mut HeaderMap, name: &'static str, value: Cow<'static, str>) {
    let value = HeaderValue::from_maybe_shared(match value {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => Bytes::from(text),
    });
    if let (Some(name), Ok(value)) = (header_name(name), value) {
        headers.insert(name, value);
    } else {
        tracing::warn!(name, "an answer has an invalid header, which was left out");
    }
}

/// Returns a header name. Most names are static and need no parsing.
fn header_name(name: &str) -> Option<HeaderName> {
    const REQUEST_ID_NAME: HeaderName = HeaderName::from_static(REQUEST_ID);
    const CLIENT_REQUEST_ID_NAME: HeaderName = HeaderName::from_static(CLIENT_REQUEST_ID);
    const VERSION_NAME: HeaderName = HeaderName::from_static(VERSION);
    const LENGTH_PLACEHOLDER_NAME: HeaderName = HeaderName::from_static(LENGTH_PLACEHOLDER);
    Some(match name {
        "Cache-Control" => header::CACHE_CONTROL,
        "Content-Type" => header::CONTENT_TYPE,
        "ETag" => header::ETAG,
        "Location" => header::LOCATION,
        "Server" => header::SERVER,
        "X-Content-Type-Options" => header::X_CONTENT_TYPE_OPTIONS,
        REQUEST_ID => REQUEST_ID_NAME,
        CLIENT_REQUEST_ID => CLIENT_REQUEST_ID_NAME,
        VERSION => VERSION_NAME,
        LENGTH_PLACEHOLDER => LENGTH_PLACEHOLDER_NAME,
        _ => return HeaderName::from_bytes(name.as_bytes()).ok(),
    })
}
