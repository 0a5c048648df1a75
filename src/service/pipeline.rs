//! Processes the head and body of a request into a response. Read it top to bottom: address, version,
//! credentials, body, request, permission, plan, store, response.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::access::authorize;
use super::answer::Answer;
use super::batch::BatchRunner;
use super::body::ReceiveBody;
use super::fault_rules::{FaultRules, FaultSubject};
use super::operations::{self, Printer};
use super::telemetry::{self, Observed};
use super::{Issuer, Served, Service, cors};
use crate::error::{Code, Error, Result};
use crate::observe::metrics::{METRICS, database_time};
use crate::protocol::auth::{self, AccountSet, Identity};
use crate::protocol::codec::failure::ErrorContext;
use crate::protocol::codec::properties::CorsRule;
use crate::protocol::model::{TableName, Ticks};
use crate::protocol::odata::Grammar;
use crate::protocol::plan::batch::Batch;
use crate::protocol::plan::operation::{Context, allowed_methods, may_have_order};
use crate::protocol::plan::{self, Plan, RequestKind};
use crate::protocol::request::options::Options;
use crate::protocol::request::target::{self, Resource, Target};
use crate::protocol::request::{Format, Head, OperationLabel, Prefer};
use crate::store::Store;

/// Maximum time of an operation (protocol §2.3).
pub(crate) const MAX_OPERATION_TIME: Duration = Duration::from_secs(30);

impl Service {
    /// Answers one request, counts it, and writes it to the log and the traces. `observed` receives the facts about the
    /// request. `operator` is set if the admin listener has authenticated an operator. A request of an operator passes
    /// the same checks as that of a client, except that account limits do not apply and disabled accounts are served.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        head: &Head<'_>,
        body: &mut impl ReceiveBody,
        operator: Option<&Identity>,
        observed: &Observed,
    ) -> Served {
        let record = METRICS.requests.begin();
        let (options, deferred_error) = Options::read(&head.query);
        observed.version.set(head.version().ok());
        let error_context = ErrorContext { request_id: &observed.request_id, now: Ticks::now() };
        let accounts = self.follower.accounts();
        let pipeline = Pipeline {
            service: self,
            accounts: &accounts,
            head,
            options,
            deferred_error,
            error_context,
            operator,
            observed,
        };
        let trace = self.tracer.as_ref().and_then(|tracer| tracer.begin(head.header("traceparent")));
        let ((answer, cors_rules), spent) = {
            let answering = std::pin::pin!(pipeline.answer(body));
            database_time::measured(answering, trace.is_some()).await
        };
        observed.finish(record, &answer, spent.total(), self.slow_threshold, self.recent.as_ref());
        if let (Some(tracer), Some(trace)) = (&self.tracer, trace) {
            tracer.finish(trace, observed.span_fields(head, &answer, spent));
        }
        Served { answer, cors_rules }
    }
}

/// The context in which one request is answered.
struct Pipeline<'a> {
    service: &'a Arc<Service>,
    accounts: &'a AccountSet,
    head: &'a Head<'a>,
    /// The query parameters that could be decoded.
    options: Options<'a>,
    /// The error of the other query parameters, which is reported after authentication.
    deferred_error: Option<Error>,
    error_context: ErrorContext<'a>,
    /// The identity of the sender, if it is an operator.
    operator: Option<&'a Identity>,
    observed: &'a Observed,
}

impl Pipeline<'_> {
    /// Returns the response, and the CORS rules that apply to it.
    async fn answer(&self, body: &mut impl ReceiveBody) -> (Answer, Arc<[CorsRule]>) {
        let head = self.head;
        let target = match target::resolve(head, self.accounts) {
            Ok(target) => target,
            Err(error) => return (self.refuse(&error), Arc::default()),
        };
        if self.observed.version.get().is_none()
            && let Err(error) = head.version()
        {
            return (self.front_end_refusal(&error), Arc::default());
        }
        let target = self.observed.target.get_or_init(|| target);
        if head.method == "OPTIONS" {
            self.observed.record_preflight();
            return (self.preflight(target), Arc::default());
        }
        let answered_in_time = timeout(self.time_allowed(), self.authenticate_and_answer(target, body)).await;
        let answer = answered_in_time.unwrap_or_else(|_| self.refuse(&Code::OperationTimedOut.into()));
        if self.observed.has_set_properties(&answer) {
            // This runs outside the timeout, because a completed change must not be reported as a failure.
            Box::pin(self.service.follower.follow_own_change(&self.service.primary)).await;
        }
        // CORS rules may apply to requests of pages from other origins, and to any GET.
        let may_need_cors = head.method == "GET" || head.header("origin").is_some();
        (answer, if may_need_cors { self.cors_rules_of(target) } else { Arc::default() })
    }

    fn cors_rules_of(&self, target: &Target) -> Arc<[CorsRule]> {
        self.service.follower_of(target).accounts().cors(&target.account)
    }

    fn preflight(&self, target: &Target) -> Answer {
        match cors::preflight(self.head, &self.cors_rules_of(target)) {
            Ok(headers) => headers
                .into_iter()
                .fold(Answer::status_only(200), |answer, (name, value)| answer.with(name, value)),
            Err(error) => self.front_end_refusal(&error),
        }
    }

    async fn authenticate_and_answer(&self, target: &Target, body: &mut impl ReceiveBody) -> Answer {
        let (head, now) = (self.head, self.error_context.now);
        if let Some(operator) = self.operator {
            // Boxed, because only operators take this path.
            let answer = Box::pin(self.receive_and_run(target, operator, body)).await;
            return answer.unwrap_or_else(|error| self.refuse_at(target, &error));
        }
        let identity = match self.service.authenticate(head, &self.options, target, self.accounts, now).await
        {
            Ok(identity) => identity,
            Err(error) => {
                telemetry::count_failed_authentication(head, &error);
                return self.front_end_refusal(&error);
            }
        };
        let answer = self.receive_and_run(target, &identity, body).await;
        answer.unwrap_or_else(|error| self.refuse_at(target, &error))
    }

    async fn receive_and_run(
        &self,
        target: &Target,
        identity: &Identity,
        body: &mut impl ReceiveBody,
    ) -> Result<Answer> {
        let (service, head) = (self.service, self.head);
        // The limit applies after authentication, so that unauthenticated clients cannot use it up.
        if self.operator.is_none() {
            service.admit(self.accounts, target)?;
        }
        // The body is held until the response is complete, because parsed values may borrow from it.
        let body = body.receive(&service.body_memory, service.limits.body).await?;
        self.observed.record_body(body.bytes.len());
        if let Some(deferred_error) = &self.deferred_error {
            return Err(deferred_error.clone());
        }
        let grammar = self.grammar(target);
        self.options.check(may_have_order(grammar.extended, head, &target.resource))?;
        let (mut planned, printer) = self.parse_and_plan(target, identity, &body.bytes, grammar)?;
        let store = service.store_of(target);
        let plan = match planned {
            Planned::One(ref mut plan) => plan,
            Planned::Batch(batch) => {
                let version = head.version()?;
                let (error_context, now) = (self.error_context, printer.now);
                let page_time = self.page_time();
                let (observed, fault_rules) = (self.observed, self.fault_rules());
                let indexes = service.follower_of(target).indexes();
                let runner = BatchRunner {
                    store,
                    indexes,
                    target,
                    identity,
                    version,
                    error_context,
                    observed,
                    fault_rules,
                    page_time,
                    now,
                };
                return Box::pin(runner.run(batch)).await;
            }
            Planned::BelowTable(error) => {
                return Err(Box::pin(error_below_table(store, target, identity, error)).await?);
            }
        };
        let injection = self.fault_rules().and_then(|rules| {
            let table = plan.table();
            rules.next_injection([FaultSubject { operation: self.observed.label(), table, index: None }])
        });
        // Each arm creates its future where it awaits it, because moving a future copies it.
        match injection {
            None => operations::run(store, plan, service.keep_deleted, printer).await,
            // Boxed, because only tests inject faults.
            Some(injection) => {
                injection.shorten_page(plan);
                let answer = operations::run(store, plan, service.keep_deleted, printer);
                Box::pin(injection.run(answer)).await
            }
        }
    }

    /// Returns the faults that tests inject. They apply only to clients, so that operators see the stored data.
    fn fault_rules(&self) -> Option<&FaultRules> {
        self.operator.is_none().then_some(&self.service.fault_rules)
    }

    /// Parses, authorizes and plans a request.
    fn parse_and_plan<'t>(
        &self,
        target: &'t Target,
        identity: &Identity,
        body: &[u8],
        grammar: Grammar,
    ) -> Result<(Planned, Printer<'t>)> {
        let (head, options) = (self.head, &self.options);
        let request = plan::read(&Context { head, options, body, grammar }, target)?;
        self.observed.record_request(&request.kind);
        let (format, prefer, now) = (request.format, request.prefer, self.error_context.now);
        let mut printer = Printer { target, format, prefer, now };
        let operation = match request.kind {
            RequestKind::One(operation) => operation,
            RequestKind::Batch(batch) => {
                printer.now = self.service.version_clock.next_version();
                return Ok((Planned::Batch(batch), printer));
            }
        };
        let plan = match operation.plan {
            Err(error) if matches!(target.resource, Resource::BelowTable { .. }) => {
                return Ok((Planned::BelowTable(error), printer));
            }
            plan => plan?,
        };
        let (operation, table, _) = plan.authorization_scope();
        if let Some(table) = table {
            self.observed.record_table(table);
        }
        if operation.is_change() {
            printer.now = self.service.version_clock.next_version();
        }
        let mut plan = authorize(identity, target, plan)?;
        plan.limit_page_time(self.page_time());
        if matches!(plan, Plan::QueryEntities { .. }) {
            self.service.follower_of(target).indexes().apply_to(&target.account, &mut plan)?;
        }
        Ok((Planned::One(plan), printer))
    }

    /// Returns the filter grammar. Operators may always use extended queries. Programs cannot come to rely
    /// on this, because they do not connect as operators.
    fn grammar(&self, target: &Target) -> Grammar {
        let extended = self.operator.is_some() || self.accounts.has_extended_queries(&target.account);
        Grammar { max_comparisons: self.service.max_comparisons, extended }
    }

    fn time_allowed(&self) -> Duration {
        time_allowed(self.options.any_case("timeout"))
    }

    fn page_time(&self) -> Duration {
        page_time(self.time_allowed())
    }

    fn front_end_refusal(&self, error: &Error) -> Answer {
        self.observed.explain_error(error);
        let challenge = self.service.issuer.as_ref().map(Issuer::challenge);
        Answer::front_end_refusal(error, self.head, challenge, &self.error_context)
    }

    /// Returns the response to an error of a known resource. A 405 lists the methods that the resource supports.
    fn refuse_at(&self, target: &Target, error: &Error) -> Answer {
        // Authentication has succeeded, so a test has injected this error.
        if matches!(error.code, Code::AuthenticationFailed | Code::AccountIsDisabled) {
            return self.front_end_refusal(error);
        }
        let answer = self.refuse(error);
        if answer.status != 405 {
            return answer;
        }
        answer.with("Allow", allowed_methods(&target.resource, &self.options))
    }

    /// Returns the response to a table-layer error.
    fn refuse(&self, error: &Error) -> Answer {
        let is_xml_operation = self.options.any_case("comp").is_some();
        // As recorded, the front end refuses a body that is too large, unless the operation has XML documents.
        if error.code == Code::RequestBodyTooLarge && !is_xml_operation {
            return self.front_end_refusal(error);
        }
        self.observed.explain_error(error);
        if is_xml_operation {
            return Answer::xml_refusal(error, &self.error_context);
        }
        let format = Format::negotiate(self.head, &self.options);
        Answer::refusal(error, format.for_errors(), Prefer::of(self.head), &self.error_context)
    }
}

/// A parsed and permitted request.
enum Planned {
    One(Plan),
    /// A batch, whose parts are planned one by one.
    Batch(Batch),
    /// An operation on an invalid path below a table. The error of a missing table takes precedence.
    BelowTable(Error),
}

/// Returns the error of an insert on a path below a table. A client sends such a request if it mistakes the table's
/// address for that of the service. As recorded, the error of a missing table takes precedence.
async fn error_below_table(
    store: &Store,
    target: &Target,
    identity: &Identity,
    error: Error,
) -> Result<Error> {
    let table = TableName::parse(target.resource.table().unwrap_or_default())?;
    auth::allows(identity, OperationLabel::InsertEntity, Some(&table), None)?;
    Ok(match store.get_table(table.in_account(&target.account)).await? {
        None => Code::TableNotFound.into(),
        Some(_) => error,
    })
}

/// Returns the timeout that the client requests, at most [`MAX_OPERATION_TIME`].
fn time_allowed(requested: Option<&str>) -> Duration {
    match requested.and_then(|seconds| seconds.parse().ok()) {
        Some(seconds) if seconds > 0 => Duration::from_secs(seconds).min(MAX_OPERATION_TIME),
        _ => MAX_OPERATION_TIME,
    }
}

/// Returns the part of the timeout in which a page may be read. The remaining time is for the work before and
/// after.
fn page_time(allowed: Duration) -> Duration {
    allowed.mul_f32(0.75)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::operator::accounts::Follower;
    use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
    use crate::protocol::auth::issue::{Grant, SasSubject};
    use crate::protocol::model::Ticks;
    use crate::protocol::plan::TableScan;
    use crate::protocol::plan::scan::MAX_TIME;
    use crate::service::{BodyMemory, Limits, Throttle, VersionClock};
    use crate::store::sqlite::{Location, SqliteOptions, SqliteStore};

    const HOUR: Duration = Duration::from_secs(3600);

    async fn service_with_clock_that_was_ahead() -> Arc<Service> {
        let store = Store::Sqlite(SqliteStore::open(&SqliteOptions::new(Location::Memory)).unwrap());
        let accounts = AccountSet::development(Vec::new());
        Arc::new(Service {
            follower: Follower::start(&store, None, accounts).await.unwrap(),
            secondary_follower: Follower::for_replica(),
            primary: store,
            secondary: None,
            version_clock: VersionClock::ahead(HOUR),
            issuer: None,
            limits: Limits { head: HOUR, body: HOUR },
            body_memory: BodyMemory::new(1 << 20),
            max_requests_per_second: None,
            throttle: Throttle::default(),
            max_comparisons: 1,
            fault_rules: FaultRules::default(),
            keep_deleted: 0,
            slow_threshold: HOUR,
            tracer: None,
            recent: None,
        })
    }

    /// Returns a signature that is valid for the next ten minutes.
    fn signature(accounts: &AccountSet) -> String {
        let subject = SasSubject::Account { services: "t".into(), resources: "sco".into() };
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

    #[tokio::test]
    async fn versions_are_correct_after_the_clock_was_ahead_and_set_back() {
        let service = service_with_clock_that_was_ahead().await;
        let signature = signature(&service.follower.accounts());
        let post = async |path: &str, body: &'static str| {
            let headers =
                [("content-type", "application/json"), ("host", "localhost"), ("x-ms-version", "2019-02-02")];
            let head = Head {
                method: "POST".into(),
                path: format!("/{DEVELOPMENT_ACCOUNT}/{path}").into(),
                query: signature.as_str().into(),
                headers: headers.map(|(name, value)| (name.into(), value.into())).into(),
                ..Head::default()
            };
            let observed = Observed::new(String::new(), false);
            service.serve(&head, &mut Bytes::from_static(body.as_bytes()), None, &observed).await.answer
        };
        assert_eq!(post("Tables", r#"{"TableName":"People"}"#).await.status, 201);
        let inserted = post("People", r#"{"PartitionKey":"p","RowKey":"r"}"#).await;
        assert_eq!(inserted.status, 201);
        // The version is correct, although the clock assigned later versions while it was ahead.
        let etag = inserted.headers.iter().find(|(name, _)| *name == "ETag").unwrap().1.replace("%3A", ":");
        let version = etag.trim_start_matches("W/\"datetime'").trim_end_matches("'\"");
        assert!(Ticks::parse(version).unwrap() <= Ticks::now(), "{version}");
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
            let mut plan = Plan::QueryTables { scan, select: None };
            plan.limit_page_time(page_time(time_allowed(timeout)));
            let Plan::QueryTables { scan, .. } = plan else { unreachable!() };
            scan.time
        };
        for unlimited in [None, Some("30"), Some("7"), Some("900")] {
            assert_eq!(page(unlimited), MAX_TIME, "{unlimited:?}");
        }
        assert_eq!(page(Some("4")), Duration::from_secs(3));
        assert_eq!(page(Some("1")), Duration::from_millis(750));
    }
}
