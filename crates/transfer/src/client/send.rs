//! Sends requests, and retries them with back-off and jitter.

use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use ureq::http::{HeaderMap, Request, Response};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body, Proxy};

use crate::client::address::Address;
use crate::client::change_set::ChangeSetBody;
use crate::client::{ClientAnswer, ClientCall, ServiceError};
use crate::error::{TransferError, TransferResult, failed, fatal, pause};
use crate::protocol::model::Ticks;

/// Timeout of one request until its whole answer has arrived. No page takes longer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ATTEMPTS: u32 = 12;
/// Maximum attempts of a request to a server that has never answered, because its address or certificate may be wrong.
const FIRST_ATTEMPTS: u32 = 6;
/// Maximum attempts of a change set that fails with 500. The writer then tries its halves separately.
const SET_ATTEMPTS: u32 = 6;
/// The pause after the first failure; it doubles with each further failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Maximum bytes of an answer, more than any page of Azure. Pages of Azurite have no limit.
pub(crate) const MAX_ANSWER_BYTES: u64 = 32 << 20;

/// Maximum bytes of the head of an answer, many times Azure's.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Bytes of the buffers of a connection. The input buffer must have room for more than the maximum head.
const INPUT_BUFFER_BYTES: usize = MAX_HEAD_BYTES + (16 << 10);
const OUTPUT_BUFFER_BYTES: usize = 32 << 10;
/// Initial capacity for the body of an answer whose length is unknown. Most pages fit in it, so that the body is not
/// moved while it grows; unused capacity occupies no memory.
const BODY_CAPACITY: usize = 1 << 20;

/// The result of a request: its answer, or the refusal of the server.
type ClientResult<T> = TransferResult<Result<T, ServiceError>>;

struct Received {
    answer: ClientAnswer,
    retry_after: Option<Duration>,
    /// The target of a redirect.
    location: Option<String>,
}

enum Unanswered {
    /// The request may be repeated.
    Lost(String),
    TooLarge,
    HalfToken,
}

impl From<ureq::Error> for Unanswered {
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::BodyExceedsLimit(_) => Unanswered::TooLarge,
            other => Unanswered::Lost(other.to_string()),
        }
    }
}

/// The meaning of an answer: success or a refusal, or the reason why the answer is invalid, as from a gateway.
type Judged<T> = Result<Result<T, ServiceError>, String>;

impl Received {
    fn judge<T>(
        &self,
        call: &ClientCall,
        request: &str,
        read: impl Fn(&ClientAnswer) -> Judged<T>,
    ) -> TransferResult<Judged<T>> {
        match self.answer.status {
            status if call.success.contains(&status) => Ok(read(&self.answer)),
            status @ 300..400 => {
                let location = self.location.as_deref().unwrap_or("no address");
                // The query string may have a signature.
                let location = location.split(['?', '#']).next().unwrap_or_default();
                // Following the redirect would alter the request, and send it elsewhere.
                Err(fatal!(
                    "{request}: {status}, a redirect to {location}, which is not followed; give the address \
                     of the endpoint itself"
                ))
            }
            400.. => Ok(self.answer.parse_error().map(Err)),
            status => Ok(Err(format!("{status} is not a valid answer to this request"))),
        }
    }
}

/// A client of one account, shared by threads.
pub(crate) struct Client {
    pub address: Address,
    agent: Agent,
    gate: Gate,
    stop: Arc<AtomicBool>,
    throttled: AtomicU64,
    retried: AtomicU64,
    has_answered: AtomicBool,
    /// The time that the last answer with a time states.
    date: Mutex<Option<Ticks>>,
    /// Whether an answer had a continuation token, so that nothing on the way removes tokens.
    has_sent_token: AtomicBool,
}

impl Client {
    /// Returns a client with at most `concurrency` requests in flight. Setting `stop` ends its pauses.
    pub(crate) fn new(address: Address, concurrency: usize, stop: Arc<AtomicBool>) -> Self {
        Self::with_timeout(address, concurrency, stop, REQUEST_TIMEOUT)
    }

    fn with_timeout(address: Address, concurrency: usize, stop: Arc<AtomicBool>, timeout: Duration) -> Self {
        let roots = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .allow_non_standard_methods(true)
            .timeout_global(Some(timeout))
            .max_response_header_size(MAX_HEAD_BYTES)
            .input_buffer_size(INPUT_BUFFER_BYTES)
            .output_buffer_size(OUTPUT_BUFFER_BYTES)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .max_idle_connections_per_host(concurrency)
            .max_idle_connections(concurrency)
            // Requests to this machine do not use a proxy.
            .proxy(if address.is_local() { None } else { Proxy::try_from_env() })
            .user_agent(concat!("rowhouse/", env!("CARGO_PKG_VERSION")))
            .tls_config(roots);
        Self {
            address,
            agent: config.build().new_agent(),
            gate: Gate::new(concurrency),
            stop,
            throttled: AtomicU64::new(0),
            retried: AtomicU64::new(0),
            has_answered: AtomicBool::new(false),
            date: Mutex::default(),
            has_sent_token: AtomicBool::new(false),
        }
    }

    pub(crate) const fn concurrency(&self) -> usize {
        self.gate.most
    }

    /// Returns the number of throttled answers and of retried requests.
    pub(crate) fn retries(&self) -> (u64, u64) {
        (self.throttled.load(Ordering::Relaxed), self.retried.load(Ordering::Relaxed))
    }

    /// Returns the time that the last answer with a time states.
    pub(crate) fn date(&self) -> Option<Ticks> {
        *self.date.lock()
    }

    pub(crate) fn has_sent_token(&self) -> bool {
        self.has_sent_token.load(Ordering::Relaxed)
    }

    /// Sends a write, and reads only the status of its answer.
    pub(crate) fn send(&self, call: &ClientCall) -> ClientResult<()> {
        self.send_until(call, Some(ATTEMPTS), |_| Ok(Ok(())))
    }

    /// Sends a request, and reads its answer. Throttling, timeouts, server errors, lost connections and
    /// answers that cannot be read are retried, so an earlier attempt may already have made the write that
    /// the answer reports.
    pub(crate) fn read<T>(
        &self,
        call: &ClientCall,
        read: impl Fn(&ClientAnswer) -> Result<T, String>,
    ) -> ClientResult<T> {
        self.send_until(call, None, |answer| read(answer).map(Ok))
    }

    /// Sends a change set. If it was throttled, the answer is 202 with an error inside, and the whole change set is
    /// repeated.
    pub(crate) fn send_change_set(&self, call: &ClientCall) -> ClientResult<()> {
        self.send_until(call, Some(SET_ATTEMPTS), ChangeSetBody::read)
    }

    /// Repeats a request until it has an answer. With `failures`, an answer of 500 is final after that many
    /// attempts.
    fn send_until<T>(
        &self,
        call: &ClientCall,
        failures: Option<u32>,
        read: impl Fn(&ClientAnswer) -> Judged<T>,
    ) -> ClientResult<T> {
        let mut attempt = 0;
        let request = format!("{} {}{}", call.method, self.address.tables, call.path);
        let with_request = |refused| ServiceError { request: request.clone(), ..refused };
        loop {
            attempt += 1;
            // A server that is away, or refuses work, does so for every table.
            let (problem, is_away, retry_after) = match self.attempt(call) {
                Err(Unanswered::Lost(problem)) => (problem, true, None),
                Err(Unanswered::TooLarge) => {
                    let text = format!("{request}: the answer has more than {MAX_ANSWER_BYTES} bytes");
                    return Err(TransferError::TooLarge(text));
                }
                Err(Unanswered::HalfToken) => {
                    return Err(failed!("{request}: the answer has only half a continuation token"));
                }
                Ok(received) => match received.judge(call, &request, &read)? {
                    Ok(Err(refused)) if is_transient(refused.status) => {
                        let is_failure = refused.status == 500 && !is_throttling(&refused);
                        if is_failure && failures.is_some_and(|most| attempt >= most) {
                            return Ok(Err(with_request(refused)));
                        }
                        self.note_refusal(&refused);
                        (refused.to_string(), refused.status != 500, received.retry_after)
                    }
                    Ok(done) => {
                        self.has_answered.store(true, Ordering::Relaxed);
                        self.gate.succeeded();
                        return Ok(done.map_err(with_request));
                    }
                    Err(problem) => (problem, false, received.retry_after),
                },
            };
            let has_answered = self.has_answered.load(Ordering::Relaxed);
            let most = if has_answered { ATTEMPTS } else { FIRST_ATTEMPTS };
            if attempt >= most {
                let failed = failed!("{request}: {problem}{}", hint(&problem));
                return Err(if is_away || !has_answered { failed.of_place() } else { failed });
            }
            self.retried.fetch_add(1, Ordering::Relaxed);
            pause(retry_after.unwrap_or_else(|| back_off(attempt)), &self.stop)?;
        }
    }

    fn note_refusal(&self, refused: &ServiceError) {
        if !refused.code.is_empty() {
            self.has_answered.store(true, Ordering::Relaxed);
        }
        if is_throttling(refused) {
            self.throttled.fetch_add(1, Ordering::Relaxed);
            self.gate.throttled();
        }
    }

    fn attempt(&self, call: &ClientCall) -> Result<Received, Unanswered> {
        let _place = self.gate.enter();
        let now = Ticks::now();
        let mut request = Request::builder().method(call.method).uri(call.url(&self.address));
        for (name, value) in call.signed(&self.address, now) {
            request = request.header(name, value);
        }
        let response = match call.method {
            "GET" => self.agent.run(request.body(()).map_err(ureq::Error::from)?)?,
            _ => self.agent.run(request.body(call.body.as_slice()).map_err(ureq::Error::from)?)?,
        };
        let retry_after = retry_after(&response);
        let header =
            |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let location = header("location");
        let continuation = continuation(response.headers()).ok_or(Unanswered::HalfToken)?;
        self.has_sent_token.fetch_or(!continuation.is_empty(), Ordering::Relaxed);
        let date = header("date").and_then(|date| Ticks::parse_http_date(&date));
        if date.is_some() {
            *self.date.lock() = date;
        }
        let (status, content_type) = (response.status().as_u16(), header("content-type").unwrap_or_default());
        let body = read_body(response)?;
        let answer = ClientAnswer { status, continuation, content_type, date, body };
        Ok(Received { answer, retry_after, location })
    }
}

fn read_body(response: Response<Body>) -> Result<Vec<u8>, ureq::Error> {
    let body = response.into_body();
    let length = body.content_length().map(|length| length.min(MAX_ANSWER_BYTES) as usize);
    let mut bytes = Vec::with_capacity(length.unwrap_or(BODY_CAPACITY));
    body.into_with_config().limit(MAX_ANSWER_BYTES).reader().read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns advice on a problem that retries do not solve.
fn hint(problem: &str) -> &'static str {
    if problem.contains("CaUsedAsEndEntity") {
        "; the server uses the certificate of an authority: make a certificate with -addext \
         basicConstraints=critical,CA:FALSE"
    } else if problem.contains("failed to lookup address") || problem.contains("host not found") {
        "; the host name cannot be resolved: see that the account and the address are right"
    } else if problem.contains("onnection refused") {
        "; see that the server runs, and that the port is right"
    } else {
        ""
    }
}

/// Whether a status reports a transient failure.
const fn is_transient(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

fn is_throttling(refused: &ServiceError) -> bool {
    matches!(refused.status, 429 | 503) || (refused.status == 500 && refused.code == "OperationTimedOut")
}

/// Returns the headers of the continuation token, without their prefix; `None` if it is incomplete.
fn continuation(headers: &HeaderMap) -> Option<Vec<(String, String)>> {
    let mut token = Vec::new();
    for (name, value) in headers {
        if let Some(name) = name.as_str().strip_prefix("x-ms-continuation-") {
            token.push((name.to_owned(), value.to_str().ok()?.to_owned()));
        }
    }
    let has = |wanted: &str| token.iter().any(|(name, _)| name == wanted);
    (has("nextpartitionkey") || !has("nextrowkey")).then_some(token)
}

fn retry_after<B>(response: &Response<B>) -> Option<Duration> {
    let number =
        |name: &str| -> Option<u64> { response.headers().get(name)?.to_str().ok()?.trim().parse().ok() };
    let pause = number("x-ms-retry-after-ms").map(Duration::from_millis);
    pause.or_else(|| number("retry-after").map(Duration::from_secs)).map(|pause| pause.min(LONGEST_PAUSE))
}

/// Returns a random pause before the next attempt, between half of the back-off and all of it, so that threads do not
/// retry together.
fn back_off(attempt: u32) -> Duration {
    let longest = FIRST_PAUSE.saturating_mul(1 << (attempt - 1).min(16)).min(LONGEST_PAUSE);
    let random = getrandom::u32().unwrap_or(u32::MAX / 2);
    longest / 2 + (longest / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
}

/// Limits the requests in flight. Throttling halves the limit; successes raise it by one each time their number reaches
/// the limit.
#[derive(Debug)]
struct Gate {
    state: Mutex<GateState>,
    freed: Condvar,
    most: usize,
}

#[derive(Debug)]
struct GateState {
    limit: usize,
    in_flight: usize,
    successes: usize,
}

/// Permission for one request in flight, until it is dropped.
struct FlightPermit<'a>(&'a Gate);

impl Gate {
    /// Returns a gate whose initial and maximum limit is `most`.
    fn new(most: usize) -> Self {
        let state = GateState { limit: most.max(1), in_flight: 0, successes: 0 };
        Self { state: Mutex::new(state), freed: Condvar::new(), most: most.max(1) }
    }

    /// Waits for a permit for one request, whose timeout limits the wait.
    fn enter(&self) -> FlightPermit<'_> {
        let mut state = self.state.lock();
        while state.in_flight >= state.limit {
            self.freed.wait(&mut state);
        }
        state.in_flight += 1;
        FlightPermit(self)
    }

    fn succeeded(&self) {
        let mut state = self.state.lock();
        state.successes += 1;
        if state.successes >= state.limit && state.limit < self.most {
            state.limit += 1;
            state.successes = 0;
            self.freed.notify_one();
        }
    }

    fn throttled(&self) {
        let mut state = self.state.lock();
        state.limit = (state.limit / 2).max(1);
        state.successes = 0;
    }
}

impl Drop for FlightPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.in_flight -= 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::net::TcpListener;

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2000\r\n\r\n";
    /// Bytes after which a slow server has sent all.
    const SLOW: usize = 2000;

    /// A client with a short timeout, of a server that answers one request with `at_once` and then, byte by byte,
    /// `slowly`.
    fn client(at_once: String, slowly: String) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a request");
            stream.set_read_timeout(Some(Duration::from_millis(10))).expect("a socket");
            let mut unread = [0; 4096];
            let _ = stream.read(&mut unread).and_then(|_| stream.write_all(at_once.as_bytes()));
            for byte in slowly.bytes() {
                // Each read waits for its timeout, since the client sends no more.
                if stream.write_all(&[byte]).is_err() || stream.read(&mut unread).is_ok_and(|read| read == 0)
                {
                    return;
                }
            }
        });
        let connection = format!("AccountName=a;AccountKey=AA==;TableEndpoint=http://{endpoint}/a");
        let address = Address::parse(&connection).expect("a connection string");
        Client::with_timeout(address, 1, Arc::default(), Duration::from_millis(300))
    }

    fn failure(client: &Client) -> String {
        match client.attempt(&ClientCall::get("/Tables")) {
            Err(Unanswered::Lost(why)) => why,
            Err(_) => "another error".into(),
            Ok(_) => "an answer".into(),
        }
    }

    #[test]
    fn an_answer_that_arrives_byte_by_byte_ends_with_the_time_of_its_request() {
        let slow_head = format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "x".repeat(SLOW));
        for (at_once, slowly) in [(HEAD.into(), "x".repeat(SLOW)), (String::new(), slow_head)] {
            let why = failure(&client(at_once, slowly));
            assert!(why.contains("timeout"), "{why}");
        }
    }

    #[test]
    fn a_head_of_more_than_64_kib_is_no_answer() {
        let padding = "x".repeat(120 << 10);
        let head = format!("HTTP/1.1 200 OK\r\nX: {padding}\r\nContent-Length: 0\r\n\r\n");
        let why = failure(&client(head, String::new()));
        assert!(why.contains("header"), "{why}");
    }

    #[test]
    fn pauses_grow_to_a_limit() {
        for attempt in 1..40 {
            let pause = back_off(attempt);
            assert!(pause >= FIRST_PAUSE / 2 && pause <= LONGEST_PAUSE, "{attempt}: {pause:?}");
        }
        assert!(back_off(20) >= LONGEST_PAUSE / 2);
    }

    #[test]
    fn the_limit_halves_when_throttled_and_grows_back() {
        let gate = Gate::new(8);
        let limit = || gate.state.lock().limit;
        gate.throttled();
        gate.throttled();
        assert_eq!(limit(), 2);
        gate.succeeded();
        assert_eq!(limit(), 2);
        gate.succeeded();
        assert_eq!(limit(), 3);
        (0..100).for_each(|_| gate.succeeded());
        assert_eq!(limit(), 8);
        (0..10).for_each(|_| gate.throttled());
        assert_eq!(limit(), 1);
        drop(gate.enter());
        assert_eq!(gate.state.lock().in_flight, 0);
    }
}
