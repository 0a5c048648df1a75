//! Too many, too slow, too large: those who behave go on being answered, memory
//! stays within its bound, and what is past a bound is told so.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use super::line::{Fate, Line, read};
use super::site::{End, Site};
use crate::support::http::Raw;
use crate::support::*;

/// Clients that send slowly, and that send without end.
const SLOW: usize = 500;
const ENDLESS: usize = 10;
/// MiB for bodies, too few for the slow ones.
const BODY_MEMORY: &str = "16";
/// How long the server waits for the rest of a body.
const BODY_SECONDS: &str = "5";
/// KiB that the server may take at any time: what idle connections and the first
/// bytes of bodies take, the bodies' memory, and room for the answers.
const MAX_RESIDENT: u64 = 400 * 1024;
/// The server closes connections that were idle for longer.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// Idle connections: as many as a quarter of the files that we may open, since
/// other tests run beside us.
fn idle_connections() -> usize {
    let said = std::process::Command::new("sh").args(["-c", "ulimit -n"]).output().expect("a shell").stdout;
    let limit = String::from_utf8_lossy(&said).trim().parse().unwrap_or(usize::MAX);
    (limit / 4).min(2000)
}

/// KiB of memory that a process has, where the system says so.
pub fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The head of an insert of a body of this length, or of one in chunks.
fn head(table: &Table, length: Option<usize>) -> String {
    let request = table.inserting(&json!({}));
    let request = match length {
        Some(length) => request.header("Content-Length", length.to_string()),
        None => request.header("Transfer-Encoding", "chunked"),
    };
    let text = String::from_utf8(request.bytes()).expect("plain text");
    format!("{}\r\n\r\n", text.split_once("\r\n\r\n").expect("a head").0)
}

/// Opens connections that have each been answered once and stay open.
fn idle(site: &Site, table: &Table, count: usize) -> Vec<Line> {
    let request = table.on("GET", "p", "r").bytes();
    let ask = |_| {
        let mut line = Line::new(&site.address);
        assert_eq!(answer(line.ask_bytes(&request)).status, 200);
        line
    };
    (0..count).map(ask).collect()
}

fn answer(fate: Fate) -> Raw {
    match fate {
        Fate::Answered(raw) => raw,
        other => panic!("no answer: {other:?}"),
    }
}

/// Sends a body without end, again and again; how often it was refused.
fn endless(table: &Table, over: &AtomicBool) -> usize {
    let head = head(table, None);
    let chunk = [b"8000\r\n".as_slice(), &[b' '; 0x8000], b"\r\n"].concat();
    let mut refused = 0;
    while !over.load(Ordering::Relaxed) {
        let mut stream = table.client.wire().connect();
        stream.write_all(head.as_bytes()).expect("the server listens");
        let mut sent = 0;
        while sent < 6 << 20 && stream.write_all(&chunk).is_ok() {
            sent += 0x8000;
        }
        let raw = read(&mut stream).expect("an answer");
        assert!(matches!(raw.status, 408 | 413 | 503), "{raw:?}");
        refused += 1;
    }
    refused
}

/// Sends a little of a large body and then nothing more.
fn slow(table: &Table) -> Vec<TcpStream> {
    let head = head(table, Some(1 << 20));
    let begin = || {
        let mut stream = table.client.wire().connect();
        stream.write_all(head.as_bytes()).expect("the server listens");
        stream.write_all(&[b' '; 200 * 1024]).expect("the system takes this much");
        stream
    };
    (0..SLOW).map(|_| begin()).collect()
}

/// Writes and reads as anyone would; every answer must be a success.
fn behave(site: &Site, table: &Table, client: usize, over: &AtomicBool) -> usize {
    let mut line = Line::new(&site.address);
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        let row = format!("{count:06}");
        let entity = with_keys(&format!("healthy{client}"), &row, json!({ "A": "x".repeat(1000) }));
        let inserted = answer(line.ask(&table.inserting(&entity)));
        assert_eq!(inserted.status, 201, "{inserted:?}");
        let found = answer(line.ask(&table.on("GET", &format!("healthy{client}"), &row)));
        assert_eq!(found.status, 200, "{found:?}");
        count += 1;
    }
    count
}

/// One wave of everything at once. Returns the most memory that was seen.
fn wave(site: &Site, table: &Table) -> u64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let over = &over;
        let end = End(over);
        let healthy: Vec<_> = (0..4).map(|n| scope.spawn(move || behave(site, table, n, over))).collect();
        let endless: Vec<_> = (0..ENDLESS).map(|_| scope.spawn(move || endless(table, over))).collect();
        let slow = slow(table);
        let mut most = 0;
        let observed = Instant::now();
        let time = BODY_SECONDS.parse().map(Duration::from_secs).expect("a number");
        while observed.elapsed() < time {
            most = most.max(resident(site.pid()).unwrap_or(0));
            work_for(Duration::from_millis(100));
        }
        let mut statuses = std::collections::BTreeMap::<u16, usize>::new();
        for mut stream in slow {
            let raw = read(&mut stream).expect("an answer to a slow body");
            assert!(raw.status != 503 || raw.header("Retry-After").is_some(), "{raw:?}");
            *statuses.entry(raw.status).or_default() += 1;
        }
        drop(end);
        let healthy: Vec<_> = healthy.into_iter().map(|t| t.join().expect("a healthy client")).collect();
        let refused: Vec<_> = endless.into_iter().map(|t| t.join().expect("an endless client")).collect();
        println!("slow bodies were answered {statuses:?}, endless ones {refused:?} times");
        println!("healthy clients had {healthy:?} rounds; {most} KiB at most");
        assert!(statuses.keys().all(|status| matches!(status, 408 | 503)), "{statuses:?}");
        assert!(statuses.contains_key(&503), "the memory for bodies has no bound: {statuses:?}");
        assert!(healthy.iter().chain(&refused).all(|count| *count > 0));
        most
    })
}

#[test]
fn an_overloaded_server_answers_those_who_behave() {
    let options = ["--max-body-memory", BODY_MEMORY, "--body-seconds", BODY_SECONDS];
    let site = Site::start("sqlite://data.db", &options);
    let client = site.client();
    let table = client.table();
    table.seed_one(json!({ "A": 1 }));
    let count = idle_connections();
    let opened = Instant::now();
    let mut idle = idle(&site, &table, count);
    println!("{count} idle connections: {:?} KiB", resident(site.pid()));
    let [first, second] = [(); 2].map(|()| wave(&site, &client.table()));
    assert!(first.max(second) < MAX_RESIDENT, "{first} and {second} KiB");
    assert!(second < first + first / 2, "memory does not return: {first}, then {second} KiB");
    // Those who waited all the while, and a body that needs memory.
    for line in idle.iter_mut().step_by(100) {
        match line.ask(&table.on("GET", "p", "r")) {
            Fate::Lost if opened.elapsed() > KEEP_ALIVE => {}
            fate => assert_eq!(answer(fate).status, 200),
        }
    }
    table
        .insert(&with_keys(
            "p",
            "large",
            json!({ "A": "x".repeat(30_000), "B": "x".repeat(30_000), "C": "x".repeat(30_000) }),
        ))
        .expect(201);
    assert!(!site.log().contains("panicked"), "{}", site.log());
}

#[test]
fn connections_past_the_bound_wait_for_their_turn() {
    let site = Site::start("sqlite::memory:", &["--workers", "1", "--max-clients", "20"]);
    let client = site.client();
    let table = client.table();
    table.seed_one(json!({ "A": 1 }));
    let request = table.on("GET", "p", "r").bytes();
    let mut waiting: Vec<TcpStream> = (0..60).map(|_| table.client.wire().connect()).collect();
    for stream in &mut waiting {
        stream.write_all(&request).expect("the system takes this much");
    }
    // Each that is answered leaves, and makes room for another.
    for mut stream in waiting {
        assert_eq!(read(&mut stream).expect("an answer").status, 200);
    }
}
