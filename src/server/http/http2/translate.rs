//! Converts heads and bodies between h2 and actix, which use different versions of `http`.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use actix_http::{Payload, Request, ResponseHead};
use actix_web::body::BodySize;
use actix_web::error::PayloadError;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue, HttpDate};
use actix_web::http::{Method, StatusCode, Uri, Version};
use actix_web::web::Bytes;
use futures_util::Stream;
use h2::RecvStream;

use crate::server::http::workarounds::LENGTH_OF_NOTHING;

/// Maximum headers of a request, as on HTTP/1.1.
const MAX_HEADERS: usize = 96;

/// Converts a request to that of actix.
///
/// # Errors
/// The status of the answer to an invalid request.
pub(crate) fn request_of(
    request: http::Request<RecvStream>,
    peer: Option<SocketAddr>,
) -> Result<Request, StatusCode> {
    let (head, body) = request.into_parts();
    if head.headers.len() > MAX_HEADERS {
        return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    }
    let payload: Payload = if body.is_end_stream() {
        Payload::None
    } else {
        Payload::Stream { payload: Box::pin(Http2Body(body)) }
    };
    let mut request = Request::with_payload(payload);
    let translated = request.head_mut();
    translated.method = Method::from_bytes(head.method.as_str().as_bytes()).map_err(bad_request)?;
    translated.uri = head.uri.to_string().parse::<Uri>().map_err(bad_request)?;
    translated.version = Version::HTTP_2;
    translated.headers = headers_of(&head.headers).ok_or(StatusCode::BAD_REQUEST)?;
    translated.peer_addr = peer;
    Ok(request)
}

fn bad_request<E>(_: E) -> StatusCode {
    StatusCode::BAD_REQUEST
}

fn headers_of(headers: &http::HeaderMap) -> Option<HeaderMap> {
    let mut translated = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        translated.append(name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
    }
    Some(translated)
}

/// Converts the head of an answer, without the headers that HTTP/2 forbids.
pub(crate) fn head_of(head: &ResponseHead, size: BodySize) -> http::Response<()> {
    let mut translated = http::Response::new(());
    if let Ok(status) = http::StatusCode::from_u16(head.status.as_u16()) {
        *translated.status_mut() = status;
    }
    let headers = translated.headers_mut();
    for (name, value) in head.headers() {
        if !matches!(*name, header::CONNECTION | header::TRANSFER_ENCODING | header::CONTENT_LENGTH)
            && name != LENGTH_OF_NOTHING
            && let Ok(name) = http::HeaderName::from_bytes(name.as_str().as_bytes())
            && let Ok(value) = http::HeaderValue::from_bytes(value.as_bytes())
        {
            headers.append(name, value);
        }
    }
    if let BodySize::Sized(length) = size
        && head.status != StatusCode::NO_CONTENT
    {
        headers.insert(http::header::CONTENT_LENGTH, length.into());
    }
    if let Ok(date) = HttpDate::from(SystemTime::now()).to_string().try_into() {
        headers.insert(http::header::DATE, date);
    }
    translated
}

/// The body of a request. Reading it frees space in the window.
struct Http2Body(RecvStream);

impl Stream for Http2Body {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut self.get_mut().0;
        let Some(piece) = ready!(stream.poll_data(cx)) else { return Poll::Ready(None) };
        let piece = piece.and_then(|piece| {
            stream.flow_control().release_capacity(piece.len())?;
            Ok(piece)
        });
        Poll::Ready(Some(piece.map_err(|error| PayloadError::Io(io::Error::other(error)))))
    }
}
