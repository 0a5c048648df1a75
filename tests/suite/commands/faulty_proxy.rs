//! A proxy before a server that throttles, times out, resets connections and cuts answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::promises::chance::Chance;
use crate::support::scripted::{answer, exchange, scripted, target};

/// A proxy that fails about half of all requests, in turn in each of its ways.
pub struct FaultyProxy {
    pub address: String,
    pub faults: Arc<AtomicU64>,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Answered,
    /// Answered by the proxy; the server does not see it.
    Refused(&'static str),
    /// The connection ends before the server sees it.
    Reset,
    /// The server does it, and the answer is lost.
    AnswerLost,
    /// The server does it, and half of the answer arrives.
    AnswerCut,
    /// The page ends before its first row.
    EmptyPage,
}

const FAULTS: [Fate; 7] = [
    Fate::Refused("503 Service Unavailable"),
    Fate::Refused("429 Too Many Requests"),
    Fate::Refused("500 Internal Server Error"),
    Fate::Reset,
    Fate::AnswerLost,
    Fate::AnswerCut,
    Fate::EmptyPage,
];

/// Faults of one request at most: fewer than the attempts of a client whose server has never answered.
const MAX_FAULTS_OF_REQUEST: u32 = 5;

/// Calls `meddle` before the first request with these words reaches the server.
pub fn meddling(server: &str, words: &'static str, meddle: impl FnOnce() + Send + 'static) -> String {
    let (server, meddle) = (server.to_owned(), Mutex::new(Some(meddle)));
    scripted(move |request| {
        let mut meddle = meddle.lock().expect("no panic");
        if String::from_utf8_lossy(request).contains(words)
            && let Some(meddle) = meddle.take()
        {
            meddle();
        }
        exchange(&server, request).ok()
    })
}

impl FaultyProxy {
    pub fn before(server: &str, seed: &str) -> Self {
        let faults = Arc::new(AtomicU64::new(0));
        let (server, counted, chance) = (server.to_owned(), faults.clone(), Chance::of(seed));
        let (number, faults_of_requests) = (AtomicUsize::new(0), Mutex::new(HashMap::new()));
        let address = scripted(move |request| {
            let mut chance = chance.fork(number.fetch_add(1, Ordering::Relaxed));
            let drawn = usize::try_from(chance.below(2 * FAULTS.len() as u64)).expect("small");
            let mut faults_of_requests = faults_of_requests.lock().expect("no panic");
            let faults_of_request: &mut u32 = faults_of_requests.entry(identity(request)).or_default();
            let fault = FAULTS.get(drawn).filter(|_| *faults_of_request < MAX_FAULTS_OF_REQUEST);
            *faults_of_request += u32::from(fault.is_some());
            drop(faults_of_requests);
            counted.fetch_add(u64::from(fault.is_some()), Ordering::Relaxed);
            answered(&server, request, fault.copied().unwrap_or(Fate::Answered))
        });
        Self { address, faults }
    }
}

/// The parts of a request that its repetitions have too: its first line and its body.
fn identity(request: &[u8]) -> Vec<u8> {
    let line = request.iter().take_while(|byte| **byte != b'\r').copied();
    let body = request.windows(4).position(|window| window == b"\r\n\r\n").map_or(request.len(), |at| at + 4);
    line.chain(request[body..].iter().copied()).collect()
}

/// What a client gets of the answer to a request.
fn answered(server: &str, request: &[u8], fate: Fate) -> Option<Vec<u8>> {
    let of_server = || exchange(server, request).ok();
    match (fate, token(request)) {
        (Fate::Reset, _) => None,
        (Fate::Refused(status), _) => {
            let body =
                r#"{"odata.error":{"code":"OperationTimedOut","message":{"lang":"en-US","value":"Later."}}}"#;
            Some(answer(&format!("{status}\r\nContent-Type: application/json"), body))
        }
        (Fate::EmptyPage, Some(token)) => {
            Some(answer(&format!("200 OK\r\nContent-Type: application/json\r\n{token}"), r#"{"value":[]}"#))
        }
        (Fate::AnswerLost, _) => of_server().and(None),
        (Fate::AnswerCut, _) => of_server().map(|answer| answer[..answer.len() / 2].to_vec()),
        _ => of_server(),
    }
}

/// The continuation token of a query, as headers of an answer.
fn token(request: &[u8]) -> Option<String> {
    let target = target(request);
    let query = target.split_once('?')?.1;
    let part = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let (partition, row) = (part("NextPartitionKey")?, part("NextRowKey")?);
    let plain = |text: &str| text.replace("%21", "!");
    Some(format!(
        "x-ms-continuation-NextPartitionKey: {}\r\nx-ms-continuation-NextRowKey: {}",
        plain(partition),
        plain(row)
    ))
}
