//! The pipeline, read top to bottom: address, version, credentials, body,
//! request, permission, plan, store, answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use arc_swap::ArcSwap;
use uuid::Uuid;

use super::answer::Answer;
use super::batch::Run;
use super::clock::Clock;
use super::cors::{self, CorsCache};
use super::execute::execute;
use super::issuer::Issuer;
use super::permit::permit;
use super::print::Printer;
use super::receive::{head_of, read_body};
use super::respond::respond;
use crate::auth::{self, AccountSet, Credentials, Identity, sas};
use crate::codec::failure::Occasion;
use crate::codec::properties::CorsRule;
use crate::codec::{policies, properties};
use crate::error::{Code, Error, Result};
use crate::plan;
use crate::request::allow;
use crate::request::operation::Context;
use crate::request::options::{NO_OPTIONS, Options};
use crate::request::target::{self, Target};
use crate::request::{self, Format, Head, Operation, Prefer, Wanted};
use crate::store::{Backend, Store};

/// Time that an operation may take in all (protocol §2.3).
pub const MAX_OPERATION_TIME: Duration = Duration::from_secs(30);
/// What answering requests takes; shared by all threads.
pub struct Service {
    pub primary: Place,
    /// The read replica that `{account}-secondary` reads from, if there is one;
    /// without it that is the primary.
    pub secondary: Option<Place>,
    /// The accounts of now; a request keeps those that it began with.
    pub accounts: ArcSwap<AccountSet>,
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
    let options = Options::parse(&head.query);
    let occasion = Occasion { request_id: &request_id, now };
    let accounts = service.accounts.load_full();
    let pipeline = Pipeline { service: &service, accounts: &accounts, head: &head, options, occasion };
    let timely = tokio::time::timeout(pipeline.time_allowed(), pipeline.answer(body));
    let (answer, rules) = timely.await.unwrap_or_else(|_| {
        let error = Error::from(Code::OperationTimedOut);
        (pipeline.refuse(&error), Arc::default())
    });
    log(&head, &answer, &request_id, started);
    respond(answer, &rules, &head, request_id)
}

struct Pipeline<'a> {
    service: &'a Service,
    accounts: &'a AccountSet,
    head: &'a Head<'a>,
    /// Why the query string was not understood is told once the sender is known.
    options: Result<Options<'a>>,
    occasion: Occasion<'a>,
}

impl Pipeline<'_> {
    fn options(&self) -> &Options<'_> {
        self.options.as_ref().unwrap_or(&NO_OPTIONS)
    }

    fn time_allowed(&self) -> Duration {
        time_allowed(self.options().any_case("timeout"))
    }

    /// The answer, and the CORS rules that apply to it.
    async fn answer(&self, body: Payload) -> (Answer, Arc<[CorsRule]>) {
        let head = self.head;
        let target = match target::resolve(head, self.accounts).and_then(|target| {
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
            let options = self.options.as_ref().map_err(Error::clone)?;
            let max_comparisons = service.max_comparisons;
            let context = Context { head, options, body: &body, max_comparisons };
            let request = request::read(&context, target)?;
            self.operate(target, &identity, &request).await
        };
        operate.await.unwrap_or_else(|error| self.refuse_at(target, &error))
    }

    /// Keys prove themselves; a signature may need the policies of its table.
    async fn authenticate(&self, target: &Target) -> Result<Identity> {
        let (service, now) = (self.service, self.occasion.now);
        let claim = match auth::credentials(self.head, self.options(), target, self.accounts, now)? {
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
        let keys = self.accounts.keys(&target.account).ok_or(Code::AuthenticationFailed)?;
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
        answer.with("Allow", allow::methods(&target.resource, self.options()))
    }

    /// The one door that errors of the table layer leave through.
    fn refuse(&self, error: &Error) -> Answer {
        let options = self.options();
        if options.any_case("comp").is_some() {
            return Answer::xml_refusal(error, &self.occasion);
        }
        let format = Format::negotiate(self.head, options);
        let prefer = Prefer::of(self.head).filter(|_| self.head.method == "POST");
        Answer::refusal(error, format.for_errors(), prefer, &self.occasion)
    }
}

/// The time that the client allows, up to ours.
fn time_allowed(asked: Option<&str>) -> Duration {
    match asked.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(MAX_OPERATION_TIME),
        _ => MAX_OPERATION_TIME,
    }
}

fn log(head: &Head, answer: &Answer, request_id: &str, started: Instant) {
    let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
    let (method, status) = (head.method.as_ref(), answer.status);
    if status >= 500 {
        tracing::warn!(method, status, request_id, micros, "request failed");
    } else {
        tracing::debug!(method, status, request_id, micros, "request");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_may_shorten_the_time_but_not_lengthen_it() {
        let allowed = |timeout| time_allowed(timeout).as_secs();
        assert_eq!(allowed(None), 30);
        assert_eq!(allowed(Some("5")), 5);
        assert_eq!(allowed(Some("900")), 30);
        assert_eq!(allowed(Some("0")), 30);
        assert_eq!(allowed(Some("x")), 30);
    }
}
