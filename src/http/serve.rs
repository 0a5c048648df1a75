//! The pipeline, read top to bottom: address, version, credentials, body,
//! request, permission, plan, store, answer.

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::rt::spawn;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use arc_swap::ArcSwap;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::answer::Answer;
use super::batch::Run;
use super::busy_poll;
use super::clock::{VersionClock, system_time};
use super::cors::{self, CorsCache, Memory};
use super::execute::execute;
use super::explain::explain;
use super::forwarded::Proxies;
use super::issuer::Issuer;
use super::limits::{BodyMemory, Limits};
use super::observe::{self, Observed};
use super::permit::permit;
use super::print::Printer;
use super::receive::{hang_up, head_of, is_endless, receive};
use super::respond::respond;
use super::throttle::Throttle;
use crate::auth::{self, AccountSet, Credentials, Identity, sas};
use crate::codec::failure::Occasion;
use crate::codec::properties::CorsRule;
use crate::codec::{policies, properties};
use crate::error::{Code, Error, Result};
use crate::metrics::{METRICS, spent};
use crate::model::TableName;
use crate::plan;
use crate::request::allow;
use crate::request::operation::Context;
use crate::request::options::Options;
use crate::request::target::{self, Resource, Target};
use crate::request::{self, Format, Head, Operation, Prefer, Wanted};
use crate::store::{Backend, Store};
use crate::trace::Tracer;

/// Time that an operation may take in all (protocol §2.3).
pub const MAX_OPERATION_TIME: Duration = Duration::from_secs(30);
/// How long an answer waits for rules that it can do without.
const PATIENCE: Duration = Duration::from_millis(250);

/// What answering requests takes; shared by all threads.
pub struct Service {
    pub primary: Place,
    /// The read replica that `{account}-secondary` reads from, if there is one;
    /// without it that is the primary.
    pub secondary: Option<Place>,
    /// The accounts of now; a request keeps those that it began with.
    pub accounts: ArcSwap<AccountSet>,
    /// What versions are made of: Timestamps and ETags.
    pub version_clock: VersionClock,
    /// Whose tokens are trusted, if any are.
    pub issuer: Option<Issuer>,
    pub limits: Limits,
    pub body_memory: BodyMemory,
    /// Proxies that are believed what they say of their clients.
    pub proxies: Proxies,
    /// What each account may ask for, if that is limited.
    pub throttle: Option<Throttle>,
    /// Comparisons that a filter may hold.
    pub max_comparisons: usize,
    /// Whether worker threads poll for a single client.
    pub busy_poll: bool,
    /// Requests that take longer are logged as slow.
    pub slow: Duration,
    /// Where traces go, if anywhere.
    pub tracer: Option<Tracer>,
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

    /// Reads an account's rules, and remembers them.
    async fn read_cors_rules(&self, target: &Target, age: cors::Age) -> Option<Arc<[CorsRule]>> {
        let Place { store, cors } = self.place(target);
        let Ok(stored) = store.properties(&target.account).await else {
            cors.failed(&target.account);
            return None;
        };
        let read = stored.and_then(|text| properties::from_stored(&text).ok()).unwrap_or_default();
        let rules: Arc<[CorsRule]> = read.cors.unwrap_or_default().into();
        cors.put(&target.account, Arc::clone(&rules), age);
        Some(rules)
    }
}

/// Answers one request.
pub async fn serve(service: Data<Service>, http: HttpRequest, mut body: Payload) -> HttpResponse {
    let record = METRICS.requests.begin();
    let _in_flight = service.busy_poll.then(busy_poll::begin);
    let request_id = Uuid::new_v4().to_string();
    let head = head_of(&http, &service.proxies);
    let (options, flaw) = Options::read(&head.query);
    let occasion = Occasion { request_id: &request_id, now: system_time() };
    let unread = Cell::new(is_endless(&head) || head.header("transfer-encoding").is_some());
    let observed = Observed::new();
    let accounts = service.accounts.load_full();
    let pipeline = Pipeline {
        service: &service,
        accounts: &accounts,
        head: &head,
        options,
        flaw,
        occasion,
        unread: &unread,
        observed: &observed,
    };
    let trace = service.tracer.as_ref().and_then(|tracer| tracer.begin(head.header("traceparent")));
    let ((answer, rules), spent) = {
        let answering = pin!(pipeline.answer(&mut body));
        spent::measured(answering, trace.is_some()).await
    };
    observed.finish(record, &answer, &request_id, spent.total(), service.slow);
    if let (Some(tracer), Some(trace)) = (&service.tracer, trace) {
        tracer.finish(trace, observed.facts(&head, &answer, &request_id, spent));
    }
    let response = respond(answer, &rules, &head, request_id);
    if unread.get() { response.map_body(|_, answer| hang_up(answer, body)) } else { response }
}

struct Pipeline<'a> {
    service: &'a Data<Service>,
    accounts: &'a AccountSet,
    head: &'a Head<'a>,
    /// What was understood of the query string.
    options: Options<'a>,
    /// Why the rest was not, which is told once the sender is known.
    flaw: Option<Error>,
    occasion: Occasion<'a>,
    /// Whether a body in chunks has not been read to its end.
    unread: &'a Cell<bool>,
    observed: &'a Observed,
}

impl Pipeline<'_> {
    /// The answer, and the CORS rules that apply to it.
    async fn answer(&self, body: &mut Payload) -> (Answer, Arc<[CorsRule]>) {
        let head = self.head;
        let target = match target::resolve(head, self.accounts).and_then(|target| {
            head.version()?;
            Ok(target)
        }) {
            Ok(target) => self.observed.target.get_or_init(|| target),
            Err(error) => return (self.refuse(&error), Arc::default()),
        };
        let until = Instant::now() + time_allowed(self.options.any_case("timeout"));
        if head.method == "OPTIONS" {
            self.observed.is_preflight();
            return (Box::pin(self.preflight(target, until)).await, Arc::default());
        }
        let timely = timeout_at(until, self.authenticated(target, body)).await;
        let answer = timely.unwrap_or_else(|_| self.refuse(&Code::OperationTimedOut.into()));
        // Not within that time: what has been done must not be called a failure for their sake.
        (answer, self.cors_rules(target, until).await)
    }

    async fn authenticated(&self, target: &Target, body: &mut Payload) -> Answer {
        let (service, head) = (self.service, self.head);
        let identity = match self.authenticate(target).await {
            Ok(identity) => identity,
            Err(error) => {
                observe::not_let_in(head, &error);
                return self.front_door(&error);
            }
        };
        let operate = async {
            // Not before: strangers must not use up what an account has.
            if let Some(throttle) = &service.throttle {
                throttle.admit(&target.account)?;
            }
            // Held until the answer is there: what was read from it may borrow.
            let body = receive(head, body, &service.body_memory, service.limits.body).await?;
            self.unread.set(is_endless(head));
            self.observed.received(body.bytes.len());
            if let Some(flaw) = &self.flaw {
                return Err(flaw.clone());
            }
            let options = &self.options;
            let max_comparisons = service.max_comparisons;
            let context = Context { head, options, body: &body.bytes, max_comparisons };
            let mut request = request::read(&context, target)?;
            self.observed.wants(&request.wanted);
            self.operate(target, &identity, &mut request).await
        };
        operate.await.unwrap_or_else(|error| self.refuse_at(target, &error))
    }

    /// Keys prove themselves; a signature may need the policies of its table.
    async fn authenticate(&self, target: &Target) -> Result<Identity> {
        let (service, now) = (self.service, self.occasion.now);
        let claim = match auth::credentials(self.head, &self.options, target, self.accounts, now)? {
            Credentials::Verified(identity) => return Ok(identity),
            Credentials::Signature(claim) => claim,
            Credentials::Token(token) => {
                let issuer = service.issuer.as_ref().ok_or(Code::TokenRefused)?;
                return Box::pin(issuer.identify(&token, &target.account, self.head.secure, now)).await;
            }
        };
        let policies = match claim.policy() {
            None => Vec::new(),
            Some((table, _)) => {
                match Box::pin(service.place(target).store.policies(&target.account, table))
                    .await
                    .map_err(Error::from)
                {
                    Ok(stored) => stored.map_or(Ok(Vec::new()), |text| policies::from_stored(&text))?,
                    Err(error) if error.code == Code::TableNotFound => Vec::new(),
                    Err(error) => return Err(error),
                }
            }
        };
        let usage = sas::Use { now, secure: self.head.secure, peer: self.head.peer };
        let keys = self.accounts.keys(&target.account).ok_or(Code::AuthenticationFailed)?;
        let identity = claim.verify(&target.account, keys, &policies, &usage)?;
        match target.resource.table() {
            Some(table) if !identity.is_of(table) => {
                Err(Error::from(Code::AuthenticationFailed)
                    .because("tn names another table than the address"))
            }
            _ => Ok(identity),
        }
    }

    async fn preflight(&self, target: &Target, until: Instant) -> Answer {
        // Nobody has proven anything here, so not every such request may cost a query.
        let rules = self.cors_rules(target, until).await;
        match cors::preflight(self.head, &rules) {
            Ok(headers) => {
                headers.into_iter().fold(Answer::bare(200), |answer, (name, value)| answer.with(name, value))
            }
            Err(error) => self.front_door(&error),
        }
    }

    /// The account's rules, remembered for a moment. They are never a reason to
    /// fail a request, and none to let it wait long unless a page wants to see it.
    async fn cors_rules(&self, target: &Target, until: Instant) -> Arc<[CorsRule]> {
        let relevant =
            matches!(self.head.method.as_ref(), "GET" | "OPTIONS") || self.head.header("origin").is_some();
        if !relevant {
            return Arc::default();
        }
        let soon = || Instant::now() + PATIENCE;
        let for_page = || if self.head.header("origin").is_some() { until.max(soon()) } else { soon() };
        let cors = &self.service.place(target).cors;
        loop {
            let (old, age, until) = match cors.get(&target.account) {
                Memory::Fresh(rules) => return rules,
                Memory::Old(rules, age) => (Some(rules), age, soon()),
                Memory::Unknown(age) => (None, age, for_page()),
                Memory::Asked => {
                    if Box::pin(timeout_at(for_page(), cors.told(&target.account))).await.is_err() {
                        return Arc::default();
                    }
                    continue;
                }
            };
            let (service, target) = (self.service.clone(), target.clone());
            // Goes on when nobody waits for it any more: a statement that is given up
            // costs a connection.
            let read = spawn(async move { service.read_cors_rules(&target, age).await });
            return match Box::pin(timeout_at(until, read)).await {
                Ok(Ok(Some(rules))) => rules,
                _ => old.unwrap_or_default(),
            };
        }
    }

    async fn operate(
        &self,
        target: &Target,
        identity: &Identity,
        request: &mut request::Request,
    ) -> Result<Answer> {
        let (Place { store, cors }, now) = (self.service.place(target), self.service.version_clock.now());
        let page_time = page_time(time_allowed(self.options.any_case("timeout")));
        let operation = match &mut request.wanted {
            Wanted::One(operation) => operation,
            Wanted::Batch(batch) => {
                let run = Run { store, target, identity, occasion: self.occasion, page_time, now };
                return Box::pin(run.batch(batch)).await;
            }
        };
        let planned = match plan::plan(operation) {
            Err(error) if matches!(target.resource, Resource::BelowTable { .. }) => {
                return Err(below_missing_table(store, target, identity, error).await?);
            }
            planned => planned?,
        };
        let mut plan = permit(identity, target, planned)?;
        plan.end_page_within(page_time);
        let printer = Printer { target, format: request.format, prefer: request.prefer, now };
        let answer = execute(store, &plan, operation, printer).await?;
        if matches!(operation, Operation::SetProperties(_)) {
            cors.forget(&target.account);
        }
        Ok(answer)
    }

    fn front_door(&self, error: &Error) -> Answer {
        explain(error, &self.occasion);
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
        answer.with("Allow", allow::methods(&target.resource, &self.options))
    }

    /// The one door that errors of the table layer leave through.
    fn refuse(&self, error: &Error) -> Answer {
        explain(error, &self.occasion);
        if self.options.any_case("comp").is_some() {
            return Answer::xml_refusal(error, &self.occasion);
        }
        let format = Format::negotiate(self.head, &self.options);
        Answer::refusal(error, format.for_errors(), Prefer::of(self.head), &self.occasion)
    }
}

/// The error of an insert below a table that has no keys, as that of a client that takes
/// the table's address for the service's: as recorded, a missing table comes first.
async fn below_missing_table(
    store: &Store,
    target: &Target,
    identity: &Identity,
    error: Error,
) -> Result<Error> {
    let table = TableName::parse(target.resource.table().unwrap_or_default())?;
    auth::allows(identity, auth::Action::InsertEntity, Some(&table), None)?;
    Ok(match store.get_table(&target.account, &table).await? {
        None => Code::TableNotFound.into(),
        Some(_) => error,
    })
}

/// The time that the client allows, up to ours.
fn time_allowed(asked: Option<&str>) -> Duration {
    match asked.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(MAX_OPERATION_TIME),
        _ => MAX_OPERATION_TIME,
    }
}

/// The part of that time which the rows of a page may take. The rest is for what comes
/// before and after.
fn page_time(allowed: Duration) -> Duration {
    allowed.mul_f32(0.75)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::ETAG;
    use actix_web::test::{TestRequest, call_service, init_service};
    use actix_web::{App, web};

    use super::*;
    use crate::auth::accounts::DEVELOPMENT_ACCOUNT;
    use crate::auth::issue::{Grant, Subject};
    use crate::model::Ticks;
    use crate::plan::scan::MAX_TIME;
    use crate::plan::{Plan, TableScan};
    use crate::store::sqlite::{Location, SqliteOptions, SqliteStore};

    const HOUR: Duration = Duration::from_secs(3600);

    fn service_whose_clock_was_ahead() -> Data<Service> {
        let store = SqliteStore::open(&SqliteOptions::new(Location::Memory)).unwrap();
        Data::new(Service {
            primary: Store::Sqlite(store).into(),
            secondary: None,
            accounts: ArcSwap::from_pointee(AccountSet::development(Vec::new())),
            version_clock: VersionClock::ahead(HOUR),
            issuer: None,
            limits: Limits { head: HOUR, body: HOUR, body_memory: 1 << 20 },
            body_memory: BodyMemory::new(1 << 20),
            proxies: Proxies::default(),
            throttle: None,
            max_comparisons: 1,
            busy_poll: false,
            slow: HOUR,
            tracer: None,
        })
    }

    /// A signature that holds for ten minutes from now on.
    fn signature(accounts: &AccountSet) -> String {
        let subject = Subject::Account { services: "t".into(), resources: "sco".into() };
        let until = chrono::Utc::now() + Duration::from_secs(600);
        let grant = Grant {
            subject,
            permissions: Some("rwdlacu".into()),
            start: None,
            expiry: Some(until.format("%Y-%m-%dT%H:%M:%SZ").to_string()),
            ip: None,
            protocol: None,
            version: "2019-02-02".into(),
        };
        grant.sign(DEVELOPMENT_ACCOUNT, &accounts.keys(DEVELOPMENT_ACCOUNT).unwrap()[0]).unwrap()
    }

    #[actix_web::test]
    async fn a_clock_that_was_ahead_and_was_set_right_locks_nobody_out() {
        let service = service_whose_clock_was_ahead();
        let signature = signature(&service.accounts.load());
        let app = init_service(App::new().app_data(service).default_service(web::to(serve))).await;
        let post = |path: &str, body: &'static str| {
            TestRequest::post()
                .uri(&format!("/{DEVELOPMENT_ACCOUNT}/{path}?{signature}"))
                .insert_header(("Content-Type", "application/json"))
                .insert_header(("Content-Length", body.len()))
                .insert_header(("Host", "localhost"))
                .insert_header(("x-ms-version", "2019-02-02"))
                .set_payload(body)
                .to_request()
        };
        let made = call_service(&app, post("Tables", r#"{"TableName":"People"}"#)).await;
        assert_eq!(made.status(), 201);
        let inserted = call_service(&app, post("People", r#"{"PartitionKey":"p","RowKey":"r"}"#)).await;
        assert_eq!(inserted.status(), 201);
        // The version is later than those that were given while the clock was ahead.
        let etag = inserted.headers().get(ETAG).unwrap().to_str().unwrap().replace("%3A", ":");
        let version = etag.trim_start_matches("W/\"datetime'").trim_end_matches("'\"");
        assert!(Ticks::parse(version).unwrap().raw() > system_time().raw() + 30 * 60 * 10_000_000);
    }

    fn size<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        std::mem::size_of::<F>()
    }

    /// Futures are copied several times on the way to where they run, with all
    /// that they may ever hold: what is large and rare is to be boxed.
    #[test]
    fn what_waits_for_an_answer_is_small() {
        let size = size(serve);
        assert!(size <= 3072, "{size} bytes");
    }

    #[test]
    fn clients_may_shorten_the_time_but_not_lengthen_it() {
        let allowed = |timeout| time_allowed(timeout).as_secs();
        assert_eq!(allowed(None), 30);
        assert_eq!(allowed(Some("5")), 5);
        assert_eq!(allowed(Some("900")), 30);
        assert_eq!(allowed(Some("0")), 30);
        assert_eq!(allowed(Some("x")), 30);
    }

    #[test]
    fn pages_end_within_the_time_that_the_client_gives() {
        let page = |timeout| {
            let scan = TableScan { spans: Vec::new(), residual: None, rows: 1, time: MAX_TIME };
            let mut plan = Plan::ListTables(scan);
            plan.end_page_within(page_time(time_allowed(timeout)));
            let Plan::ListTables(scan) = plan else { unreachable!() };
            scan.time
        };
        for unlimited in [None, Some("30"), Some("7"), Some("900")] {
            assert_eq!(page(unlimited), MAX_TIME, "{unlimited:?}");
        }
        assert_eq!(page(Some("4")), Duration::from_secs(3));
        assert_eq!(page(Some("1")), Duration::from_millis(750));
    }
}
