//! Closes a connection after the answer if the body of the request was not read to its end.
//!
//! If the reader of a chunked body is dropped, actix reads the body to its end, which may never come.
//! So the reader is kept as long as the answer; then actix closes the connection. It also takes
//! everything after a request for an upgrade or a tunnel as the body, and closes the connection after
//! the answer, whatever the answer says.
//!
//! It is not needed once actix closes a connection on request, with an unread body of any kind.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::web::{Bytes, Payload};

use crate::protocol::request::Head;

/// Whether actix takes everything after this head as its body: a request for a tunnel or another
/// protocol, which this server never accepts.
pub(crate) fn is_endless(head: &Head<'_>) -> bool {
    let is_websocket = |upgrade: &str| upgrade.trim().eq_ignore_ascii_case("websocket");
    head.method == "CONNECT" || head.all("upgrade").any(is_websocket)
}

/// Whether actix closes the connection after the answer, so that the answer must say so.
pub(crate) fn closes_after_upgrade(head: &Head<'_>) -> bool {
    let names_upgrade =
        |list: &str| list.split(',').any(|token| token.trim().eq_ignore_ascii_case("upgrade"));
    head.headers.iter().any(|(name, value)| name == "upgrade" || name == "connection" && names_upgrade(value))
}

/// Returns the answer to a request whose body is not read to its end. The connection closes after it.
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
