//! A request of an operator.

use std::cell::OnceCell;
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName};
use bytes::Bytes;
use serde::Deserialize;
use tokio::time::timeout;

use super::reply::{CallResult, Refusal};
use super::state::Admin;
use crate::error::{Code, Error};
use crate::protocol::codec::uri::percent_decode;
use crate::protocol::request::target::Accounts as _;
use crate::store::Store;

/// Timeout of a call. A change may still complete later, but its outcome is not reported.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// A request of an operator.
pub(crate) struct Call<'a> {
    pub admin: &'a Admin,
    pub query: &'a str,
    /// The values of the route's path parameters.
    pub parameters: Vec<(&'static str, String)>,
    /// The body, once it has arrived, at most [`super::state::MAX_BODY`] bytes.
    pub received: OnceCell<Bytes>,
    pub headers: &'a HeaderMap,
    /// The subject of the call for the audit, if its path does not name it.
    pub subject: OnceCell<String>,
    /// The account of the subject, if the path names neither account nor subject.
    pub account: OnceCell<String>,
}

impl<'a> Call<'a> {
    pub(crate) fn header(&self, name: HeaderName) -> Option<&'a str> {
        text_of(self.headers, name)
    }

    /// Returns the first query parameter with this name, percent-decoded. Refuses invalid percent-encoding, and
    /// U+0000, which is invalid in every name.
    pub(crate) fn query(&self, name: &str) -> CallResult<Option<String>> {
        for pair in self.query.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if key == name {
                let spaced = value.replace('+', " ");
                let text = percent_decode(&spaced).filter(|text| !text.contains('\0'));
                let broken = || Refusal::bad_request(format!("{name}: invalid percent-encoding"));
                return text.map(|text| Some(text.into_owned())).ok_or_else(broken);
            }
        }
        Ok(None)
    }

    pub(crate) fn parameter(&self, name: &str) -> &str {
        let found = self.parameters.iter().find(|(known, _)| *known == name);
        found.map_or("", |(_, text)| text.as_str())
    }

    pub(crate) fn store(&self) -> &Store {
        &self.admin.service.primary
    }

    /// Checks that this server serves an account.
    pub(crate) fn check_account(&self, account: &str) -> CallResult<()> {
        match self.admin.service.follower.accounts().exists(account) {
            true => Ok(()),
            false => Err(Refusal::no_account()),
        }
    }

    pub(crate) fn queried_account(&self) -> CallResult<Option<String>> {
        let account = self.query("account")?;
        account.as_deref().map(|account| self.check_account(account)).transpose()?;
        Ok(account)
    }

    pub(crate) fn table(&self) -> CallResult<(&str, &str)> {
        let account = self.parameter("name");
        self.check_account(account)?;
        Ok((account, self.parameter("table")))
    }

    /// Loads a change of accounts or indexes that this call has made.
    pub(crate) async fn follow_own_change(&self) {
        self.admin.service.follower.follow_own_change(self.store()).await;
    }

    pub(crate) fn body(&self) -> &[u8] {
        self.received.get().map_or(&[], |body| body)
    }

    pub(crate) fn document<'b, T: Deserialize<'b>>(&'b self) -> CallResult<T> {
        serde_json::from_slice(self.body())
            .map_err(|error| Refusal::bad_request(format!("The body: {error}")))
    }
}

/// Waits for the work of a call up to [`CALL_TIMEOUT`].
pub(crate) async fn within<T, E: Into<Refusal>>(work: impl Future<Output = Result<T, E>>) -> CallResult<T> {
    within_limit(CALL_TIMEOUT, work).await
}

/// Waits for a future up to a time limit; afterwards answers 500 `OperationTimedOut`.
pub(crate) async fn within_limit<T, E: Into<Refusal>>(
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> CallResult<T> {
    match timeout(limit, work).await {
        Ok(done) => done.map_err(Into::into),
        Err(_) => Err(Error::from(Code::OperationTimedOut).into()),
    }
}

pub(crate) fn text_of(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the weight of an item in a list such as that of `Accept` (RFC 9110, 12.4.2): 0 to 1, and 0 if the
/// list lacks the item.
pub(crate) fn weight_of(item: &str, list: &str) -> f32 {
    let listed = list.split(',').find_map(|listed| {
        let mut parts = listed.split(';').map(str::trim);
        let is_item = parts.next()?.eq_ignore_ascii_case(item);
        is_item.then(|| parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0))
    });
    listed.unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_the_weight_that_its_list_gives() {
        for (list, weight) in [
            ("gzip, deflate, br, zstd", 1.0),
            ("ZSTD;q=0.5", 0.5),
            ("gzip;q=1, zstd; level=3; q=0.25", 0.25),
            ("zstd;q=0", 0.0),
            ("zstd;q=0.0, gzip", 0.0),
            ("gzip", 0.0),
            ("*", 0.0),
            ("", 0.0),
        ] {
            assert_eq!(weight_of("zstd", list), weight, "{list}");
        }
    }
}
