//! Closes a connection after the answer if the body of the request was not read to its end.
//!
//! If the reader of a chunked body is dropped, actix reads the body to its end, which may never come. The
//! reader is therefore kept as long as the response; then actix closes the connection. After a request for an
//! upgrade or a tunnel, actix also takes all further bytes as the body, and closes the connection after the
//! response, regardless of the response.
//!
//! This file becomes unnecessary once actix closes a connection on request, with an unread body of any kind.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::{Bytes, Payload};

use crate::protocol::request::Head;

/// Returns whether actix takes everything after this head as its body. This applies to requests for a tunnel
/// or a different protocol, which this server never accepts.
pub(crate) fn is_endless(head: &Head<'_>) -> bool {
    let is_websocket = |upgrade: &str| upgrade.trim().eq_ignore_ascii_case("websocket");
    head.method == "CONNECT" || head.all("upgrade").any(is_websocket)
}

/// Returns whether actix closes the connection after the response, so that the response must announce it.
pub(crate) fn closes_after_upgrade(head: &Head<'_>) -> bool {
    let names_upgrade =
        |list: &str| list.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    head.headers.iter().any(|(name, value)| name == "upgrade" || name == "connection" && names_upgrade(value))
}

/// Returns the response to a request whose body is not read to its end. The connection closes after it.
pub(crate) fn close_after(answer: BoxBody, unread: Payload) -> BoxBody {
    BoxBody::new(AnswerBeforeEnd { answer, _unread: unread })
}

struct AnswerBeforeEnd {
    answer: BoxBody,
    _unread: Payload,
}

impl MessageBody for AnswerBeforeEnd {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.answer.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.answer).poll_next(context)
    }
}
