//! The pipeline, read top to bottom: address, version, credentials, body,
//! request, permission, plan, store, answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{StatusCode, Version};
use actix_web::web::{Bytes, BytesMut, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use futures_util::StreamExt as _;
use uuid::Uuid;

use super::answer::Answer;
use super::batch::Run;
use super::clock::Clock;
use super::cors::{self, CorsCache};
use super::execute::execute;
use super::issuer::Issuer;
use super::permit::permit;
use super::print::Printer;
use super::wire::announces_body;
use crate::auth::{self, AccountSet, Credentials, Identity, sas};
use crate::codec::failure::Occasion;
use crate::codec::properties::CorsRule;
use crate::codec::{policies, properties};
use crate::error::{Code, Error, Result};
use crate::plan;
use crate::request::allow;
use crate::request::head::DEFAULT;
use crate::request::options::Options;
use crate::request::target::{self, Target};
use crate::request::{self, Format, Head, Operation, Prefer, Wanted};
use crate::store::{Backend, Store};

/// Bytes of a body at most (protocol §5.7, §8.1).
pub const MAX_BODY: usize = 4 * 1024 * 1024;
/// Time that an operation may take in all (protocol §2.3).
pub const MAX_OPERATION_TIME: Duration = Duration::from_secs(30);
/// Time between two pieces of a body.
const MAX_BODY_PAUSE: Duration = Duration::from_secs(20);
/// Characters of a client request id that are echoed.
const MAX_CLIENT_REQUEST_ID: usize = 1024;

/// What answering requests takes; shared by all threads.
pub struct Service {
    pub primary: Place,
    /// The read replica that `{account}-secondary` reads from, if there is one;
    /// without it that is the primary.
    pub secondary: Option<Place>,
    pub accounts: AccountSet,
    pub clock: Clock,
    /// Whose tokens are trusted, if any are.
    pub issuer: Option<Issuer>,
    /// Comparisons that a filter may hold.
    pub max_comparisons: usize,
}

/// A database, and what is remembered of it.
pub struct Place {
    pub store: Store,
    pub cors: CorsCache,
}

impl From<Store> for Place {
    fn from(store: Store) -> Self {
        Self { store, cors: CorsCache::default() }
    }
}

impl Service {
    /// Where requests to an address go. Writes to a secondary are refused
    /// before they get there.
    fn place(&self, target: &Target) -> &Place {
        match &self.secondary {
            Some(place) if target.secondary => place,
            _ => &self.primary,
        }
    }
}

/// Answers one request.
pub async fn serve(service: Data<Service>, http: HttpRequest, body: Payload) -> HttpResponse {
    let started = Instant::now();
    let request_id = Uuid::new_v4().to_string();
    let now = service.clock.now();
    let head = head_of(&http);
    let occasion = Occasion { request_id: &request_id, now };
    let pipeline = Pipeline { service: &service, head: &head, occasion };
    let timely = tokio::time::timeout(time_allowed(&head), pipeline.answer(body));
    let (answer, rules) = timely.await.unwrap_or_else(|_| {
        let error = Error::from(Code::OperationTimedOut);
        (pipeline.refuse(&error), Arc::default())
    });
    log(&head, &answer, &request_id, started);
    respond(answer, &rules, &head, &request_id)
}

/// The time that the client allows, up to ours.
fn time_allowed(head: &Head) -> Duration {
    let asked = Options::parse(&head.query).ok().and_then(|o| o.any_case("timeout")?.parse().ok());
    match asked {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(MAX_OPERATION_TIME),
        _ => MAX_OPERATION_TIME,
    }
}

struct Pipeline<'a> {
    service: &'a Service,
    head: &'a Head,
    occasion: Occasion<'a>,
}

impl Pipeline<'_> {
    /// The answer, and the CORS rules that apply to it.
    async fn answer(&self, body: Payload) -> (Answer, Arc<[CorsRule]>) {
        let (service, head) = (self.service, self.head);
        let target = match target::resolve(head, &service.accounts).and_then(|target| {
            head.version()?;
            Ok(target)
        }) {
            Ok(target) => target,
            Err(error) => return (self.refuse(&error), Arc::default()),
        };
        if head.method == "OPTIONS" {
            return (self.preflight(&target).await, Arc::default());
        }
        let answer = self.authenticated(&target, body).await;
        (answer, self.cors_rules(&target).await)
    }

    async fn authenticated(&self, target: &Target, body: Payload) -> Answer {
        let (service, head) = (self.service, self.head);
        let identity = match self.authenticate(target).await {
            Ok(identity) => identity,
            Err(error) => return self.front_door(&error),
        };
        let operate = async {
            let body = read_body(head, body).await?;
            let request = request::read(head, target, &body, service.max_comparisons)?;
            self.operate(target, &identity, &request).await
        };
        operate.await.unwrap_or_else(|error| self.refuse_at(target, &error))
    }

    /// Keys prove themselves; a signature may need the policies of its table.
    async fn authenticate(&self, target: &Target) -> Result<Identity> {
        let (service, now) = (self.service, self.occasion.now);
        let claim = match auth::credentials(self.head, target, &service.accounts, now)? {
            Credentials::Verified(identity) => return Ok(identity),
            Credentials::Signature(claim) => claim,
            Credentials::Token(token) => {
                let issuer = service.issuer.as_ref().ok_or(Code::NoCredentials)?;
                return issuer.identify(&token, &target.account, self.head.secure, now).await;
            }
        };
        let policies = match claim.policy() {
            None => Vec::new(),
            Some((table, _)) => {
                match service.place(target).store.policies(&target.account, table).await.map_err(Error::from)
                {
                    Ok(stored) => stored.map_or(Ok(Vec::new()), |text| policies::from_stored(&text))?,
                    Err(error) if error.code == Code::TableNotFound => Vec::new(),
                    Err(error) => return Err(error),
                }
            }
        };
        let usage = sas::Use { now, secure: self.head.secure, peer: self.head.peer };
        let keys = service.accounts.keys(&target.account).ok_or(Code::AuthenticationFailed)?;
        claim.verify(&target.account, keys, &policies, &usage)
    }

    async fn preflight(&self, target: &Target) -> Answer {
        self.service.place(target).cors.forget(&target.account);
        let rules = self.cors_rules(target).await;
        match cors::preflight(self.head, &rules) {
            Ok(headers) => {
                headers.into_iter().fold(Answer::bare(200), |answer, (name, value)| answer.with(name, value))
            }
            Err(error) => self.front_door(&error),
        }
    }

    /// The account's rules, remembered for a moment. They are never a reason to
    /// fail a request.
    async fn cors_rules(&self, target: &Target) -> Arc<[CorsRule]> {
        let relevant = self.head.method == "GET" || self.head.header("origin").is_some();
        if !relevant {
            return Arc::default();
        }
        let (place, account) = (self.service.place(target), target.account.as_str());
        if let Some(rules) = place.cors.get(account) {
            return rules;
        }
        let Ok(stored) = place.store.properties(account).await else { return Arc::default() };
        let read = stored.and_then(|text| properties::from_stored(&text).ok()).unwrap_or_default();
        let rules: Arc<[CorsRule]> = read.cors.unwrap_or_default().into();
        place.cors.put(account, Arc::clone(&rules));
        rules
    }

    async fn operate(
        &self,
        target: &Target,
        identity: &Identity,
        request: &request::Request,
    ) -> Result<Answer> {
        let (Place { store, cors }, now) = (self.service.place(target), self.occasion.now);
        let operation = match &request.wanted {
            Wanted::One(operation) => operation,
            Wanted::Batch(batch) => {
                let run = Run { store, target, identity, occasion: self.occasion, now };
                return Ok(run.batch(batch).await);
            }
        };
        let plan = permit(identity, target, plan::plan(operation)?)?;
        let printer = Printer { target, format: request.format, prefer: request.prefer, now };
        let answer = execute(store, &plan, operation, printer).await?;
        if matches!(operation, Operation::SetProperties(_)) {
            cors.forget(&target.account);
        }
        Ok(answer)
    }

    fn front_door(&self, error: &Error) -> Answer {
        let challenge = self.service.issuer.as_ref().map(Issuer::challenge);
        Answer::front_door(error, self.head, challenge, &self.occasion)
    }

    /// A refusal by a resource that is known: a method that it does not answer
    /// is told those that it does.
    fn refuse_at(&self, target: &Target, error: &Error) -> Answer {
        let answer = self.refuse(error);
        if answer.status != 405 {
            return answer;
        }
        let options = Options::parse(&self.head.query).unwrap_or_default();
        answer.with("Allow", allow::methods(&target.resource, &options))
    }

    /// The one door that errors of the table layer leave through.
    fn refuse(&self, error: &Error) -> Answer {
        let options = Options::parse(&self.head.query).unwrap_or_default();
        if options.any_case("comp").is_some() {
            return Answer::xml_refusal(error, &self.occasion);
        }
        let format = Format::negotiate(self.head, &options);
        let prefer = Prefer::of(self.head).filter(|_| self.head.method == "POST");
        Answer::refusal(error, format.for_errors(), prefer, &self.occasion)
    }
}

/// Reads a body, refusing it while it streams once it is too long.
async fn read_body(head: &Head, mut payload: Payload) -> Result<Bytes> {
    let declared = head.header("content-length").and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > MAX_BODY as u64) {
        return Err(Code::RequestBodyTooLarge.into());
    }
    let mut body = BytesMut::with_capacity(declared.map_or(0, |length| length as usize));
    loop {
        match tokio::time::timeout(MAX_BODY_PAUSE, payload.next()).await {
            Err(_) => return Err(Code::OperationTimedOut.into()),
            Ok(None) => return Ok(body.freeze()),
            Ok(Some(Err(_))) => return Err(Code::InvalidInput.into()),
            Ok(Some(Ok(piece))) if body.len() + piece.len() > MAX_BODY => {
                return Err(Code::RequestBodyTooLarge.into());
            }
            Ok(Some(Ok(piece))) => body.extend_from_slice(&piece),
        }
    }
}

fn head_of(http: &HttpRequest) -> Head {
    let uri = http.uri();
    let mut headers: Vec<(String, String)> =
        http.headers().iter().map(|(name, value)| (name.as_str().to_owned(), text_of(value))).collect();
    if http.version() == Version::HTTP_2
        && let Some(authority) = uri.authority()
    {
        headers.push(("host".to_owned(), authority.to_string()));
    }
    Head {
        method: http.method().as_str().to_owned(),
        path: uri.path().to_owned(),
        query: uri.query().unwrap_or_default().to_owned(),
        headers,
        secure: http.app_config().secure(),
        peer: http.peer_addr().map(|address| address.ip()),
    }
}

/// A header's value; bytes that are not UTF-8 are taken as Latin-1, so that
/// they cannot match anything by accident.
fn text_of(value: &HeaderValue) -> String {
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().map(|b| char::from(*b)).collect(),
    }
}

fn log(head: &Head, answer: &Answer, request_id: &str, started: Instant) {
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (method, status) = (head.method.as_str(), answer.status);
    if status >= 500 {
        tracing::warn!(method, status, request_id, micros, "request failed");
    } else {
        tracing::debug!(method, status, request_id, micros, "request");
    }
}

/// Turns an answer into a response with the headers that all of them carry.
fn respond(answer: Answer, rules: &[CorsRule], head: &Head, request_id: &str) -> HttpResponse {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let cors = cors::actual(head, rules, &names_sent(&answer, head));
    let mut response = HttpResponse::new(status).set_body(actix_web::body::BoxBody::new(answer.body));
    if let Some(reason) = answer.reason {
        response.head_mut().reason = Some(reason);
    }
    response.head_mut().set_camel_case_headers(announces_body(&head.method));
    let headers = response.headers_mut();
    for (name, value) in answer.headers.iter().chain(&cors) {
        insert(headers, name, value);
    }
    insert(headers, "x-ms-request-id", request_id);
    let version = head.version();
    insert(headers, "x-ms-version", version.as_ref().map_or(DEFAULT, |version| version.echo()));
    insert(headers, "Server", concat!("Windows-Azure-Table/1.0 Rowhouse/", env!("CARGO_PKG_VERSION")));
    if let Some(id) = head.header("x-ms-client-request-id").filter(|id| id.len() <= MAX_CLIENT_REQUEST_ID) {
        insert(headers, "x-ms-client-request-id", id);
    }
    response
}

/// The names of all headers that an answer will carry.
fn names_sent<'a>(answer: &'a Answer, head: &Head) -> Vec<&'a str> {
    let client_id = head.header("x-ms-client-request-id").map(|_| "x-ms-client-request-id");
    ["x-ms-request-id"]
        .into_iter()
        .chain(client_id)
        .chain(["Server", "x-ms-version"])
        .chain(answer.headers.iter().map(|(name, _)| *name))
        .chain(["Content-Length", "Date"])
        .collect()
}

/// Adds a header. What cannot stand in one is left out rather than altered.
fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    let pair = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
    if let (Ok(name), Ok(value)) = pair {
        headers.insert(name, value);
    } else {
        tracing::warn!(name, "a header could not be sent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_may_shorten_the_time_but_not_lengthen_it() {
        let allowed = |query: &str| time_allowed(&Head { query: query.into(), ..Head::default() }).as_secs();
        assert_eq!(allowed(""), 30);
        assert_eq!(allowed("timeout=5"), 5);
        assert_eq!(allowed("Timeout=900"), 30);
        assert_eq!(allowed("timeout=0"), 30);
        assert_eq!(allowed("timeout=x"), 30);
    }
}
