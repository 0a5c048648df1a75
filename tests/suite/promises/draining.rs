//! A server that drains answers everything, and asks its clients to connect
//! elsewhere, so that a restart behind a balancer fails no request at all.

use std::io::Read as _;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::line::{Address, Fate, Line};
use super::site::{End, Site};
use crate::operators::{server, turns};
use crate::support::http::{Raw, read_answer};
use crate::support::postgres::fresh_database;
use crate::support::proxy::pump;
use crate::support::*;

const CLIENTS: usize = 6;
/// Requests of a rolling restart, in which each server is replaced twice or more.
const REQUESTS: usize = 2_000;
/// How often the balancer asks whether servers are ready.
const PROBES: Duration = Duration::from_millis(100);

fn closes(raw: &Raw) -> bool {
    raw.header("connection") == Some("close")
}

#[test]
fn a_draining_server_answers_and_asks_its_clients_to_leave() {
    for second in ["TERM", "INT"] {
        let (server, admin) = server("sqlite::memory:", &["--drain-seconds", "3600"]);
        let client = server.client();
        let table = client.table();
        let request = client.request("GET", "/Tables").bytes();
        let mut kept = Line::new(&Address::of(server.address()));
        let Fate::Answered(before) = kept.ask_bytes(&request) else { panic!("no answer") };
        assert!(!closes(&before), "{before:?}");
        server.signal("TERM");
        let probe = turns(&admin, 503);
        assert!(String::from_utf8_lossy(&probe.body).contains("Stopping"), "{probe:?}");
        let Fate::Answered(last) = kept.ask_bytes(&request) else { panic!("no answer") };
        assert!(last.status == 200 && closes(&last), "{last:?}");
        // A connection that was opened after the signal.
        let mut fresh = client.wire().connect();
        let insert = table.inserting(&with_keys("p", "r", json!({ "A": 1 }))).bytes();
        std::io::Write::write_all(&mut fresh, &insert).expect("the server listens");
        let (answer, _) = read_answer(&mut fresh, "POST").expect("an answer");
        assert!(answer.status == 201 && closes(&answer), "{answer:?}");
        assert_eq!(fresh.read(&mut [0]).expect("an end"), 0, "nothing follows");
        assert_eq!(table.count(), 1);
        server.signal(second);
        server.ends_well();
        assert!(TcpStream::connect(server.address()).is_err());
    }
}

#[test]
fn draining_ends_by_itself_and_sigint_ends_a_server_without_it() {
    for (signal, seconds, drains) in [("TERM", "1", true), ("INT", "3600", false)] {
        let (server, _) = server("sqlite::memory:", &["--drain-seconds", seconds]);
        server.client().table();
        server.signal(signal);
        server.ends_well();
        assert_eq!(server.log().contains("draining"), drains, "{}", server.log());
    }
}

/// A server as its balancer knows it.
#[derive(Clone, Default)]
struct Member {
    address: Address,
    admin: Address,
    ready: Arc<AtomicBool>,
}

impl Member {
    fn start(url: &str, drain: &str) -> (Site, Self) {
        let site = Site::start(url, &["--admin-listen", "127.0.0.1:0", "--drain-seconds", drain]);
        let member = Self { address: site.address.clone(), ..Self::default() };
        member.admin.set(site.admin().address());
        (site, member)
    }

    /// Asks the server whether it is ready.
    fn probe(&self) {
        let request = format!("GET /readyz HTTP/1.1\r\nHost: {}\r\n\r\n", self.admin.get());
        let fate = Line::new(&self.admin).ask_bytes(request.as_bytes());
        let is_ready = matches!(fate, Fate::Answered(raw) if raw.status == 200);
        self.ready.store(is_ready, Ordering::Relaxed);
    }

    fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
}

/// Gives each connection to the next server that was ready when it was asked
/// last, and tries no other one.
fn balance(listener: &TcpListener, members: &[Member; 2]) {
    for (turn, from) in listener.incoming().flatten().enumerate() {
        let chosen = [turn % 2, 1 - turn % 2].map(|n| &members[n]).into_iter().find(|m| m.is_ready());
        let Some(to) = chosen.and_then(|member| TcpStream::connect(member.address.get()).ok()) else {
            let _ = from.shutdown(Shutdown::Both);
            continue;
        };
        let back = (to.try_clone().expect("a socket"), from.try_clone().expect("a socket"));
        std::thread::spawn(move || pump(from, to, |_| true));
        std::thread::spawn(move || pump(back.0, back.1, |_| true));
    }
}

/// Inserts and reads until told to stop, and never asks twice; the failures.
fn work(table: &Table, balancer: &Address, client: usize, done: &AtomicUsize, over: &AtomicBool) -> usize {
    let mut line = Line::new(balancer);
    let mut failed = 0;
    for row in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let (pk, rk) = (client.to_string(), (row / 2).to_string());
        let request = if row % 2 == 0 {
            table.inserting(&with_keys(&pk, &rk, json!({})))
        } else {
            table.on("GET", &pk, &rk)
        };
        let fate = line.ask(&request);
        // What was not inserted cannot be read.
        let succeeded = matches!(&fate, Fate::Answered(raw) if [200, 201, 404].contains(&raw.status));
        failed += usize::from(!succeeded);
        done.fetch_add(1, Ordering::Relaxed);
    }
    failed
}

/// Replaces two servers in turns, each once the other is ready, until there were
/// so many requests; how many were asked, and how many failed. A server that drains
/// is told a second time once nobody uses it, so that no time matters.
fn restart_in_turns(drain: Option<&str>, requests: usize) -> (usize, usize) {
    let url = fresh_database();
    let [(first, one), (second, other)] = [(); 2].map(|()| Member::start(&url, drain.unwrap_or("0")));
    let (mut sites, members) = ([first, second], [one, other]);
    let there = sites[0].client();
    let table = there.table();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let balancer = Address::of(&listener.local_addr().expect("it listens").to_string());
    let (probed, balanced) = (members.clone(), members.clone());
    let done = [const { AtomicUsize::new(0) }; CLIENTS];
    let all = || done.iter().map(|done| done.load(Ordering::Relaxed)).sum::<usize>();
    let over = Arc::new(AtomicBool::new(false));
    members.iter().for_each(Member::probe);
    let stopped = Arc::clone(&over);
    std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            probed.iter().for_each(Member::probe);
            pace(PROBES);
        }
    });
    // Ends with the tests.
    std::thread::spawn(move || balance(&listener, &balanced));
    let failed = std::thread::scope(|scope| {
        let (table, balancer, done, over) = (&table, &balancer, &done, &*over);
        let end = End(over);
        let clients: Vec<_> =
            (0..CLIENTS).map(|n| scope.spawn(move || work(table, balancer, n, &done[n], over))).collect();
        for turn in 0.. {
            if turn >= 4 && all() >= requests {
                break;
            }
            if drain.is_some() {
                sites[turn % 2].signal("TERM");
                until("it is not ready", || !members[turn % 2].is_ready());
                wait_for_others(done);
            }
            sites[turn % 2].restart();
            members[turn % 2].admin.set(sites[turn % 2].admin().address());
            until("all are ready", || members.iter().all(Member::is_ready));
        }
        drop(end);
        clients.into_iter().map(|client| client.join().expect("a client")).sum()
    });
    (all(), failed)
}

/// Waits until no client has a connection to a server that drains and gets no new
/// ones: the answer to the request that is under way now asks it to leave, and the
/// one after it is of another server.
fn wait_for_others(done: &[AtomicUsize; CLIENTS]) {
    let before = done.each_ref().map(|done| done.load(Ordering::Relaxed));
    until("other connections", || {
        done.iter().zip(before).all(|(done, before)| done.load(Ordering::Relaxed) >= before + 2)
    });
}

#[test]
fn a_restart_in_turns_fails_no_request_if_servers_drain() {
    let (requests, failed) = restart_in_turns(Some("3600"), REQUESTS);
    println!("draining: {failed} of {requests} requests failed");
    assert_eq!(failed, 0, "of {requests}");
}

#[test]
fn a_restart_in_turns_fails_requests_if_servers_do_not_drain() {
    let (requests, failed) = restart_in_turns(None, 0);
    println!("not draining: {failed} of {requests} requests failed");
    assert!(failed > 0, "of {requests}: then the test of draining proves nothing");
}
