//! What clients are told when the database does not do its part (protocol §2.3,
//! §14.3).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};

use crate::promises::site::End;
use crate::support::batch::{post, query_batch};
use crate::support::client::Request;
use crate::support::postgres::{LOCK_WAITERS, execute, fresh_database, server_url, text};
use crate::support::server::{Process, fresh_folder};
use crate::support::*;

#[test]
fn a_row_that_nobody_can_have_written_is_an_internal_error() {
    let url = fresh_database();
    let server = Process::serve(&url, &[]);
    let client = server.client();
    let t = client.table();
    t.seed_one(json!({ "Secret": 1 }));
    for broken in ["[]", "5", "{\"A\":{\"B\":1}}"] {
        execute(&url, &format!("UPDATE entities SET properties = '{broken}'"));
        for answer in [t.get("p", "r"), t.query("")] {
            answer.refused(INTERNAL);
        }
    }
    execute(&url, "UPDATE entities SET properties = '{\"A\":1}'");
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

#[tokio::test]
async fn a_write_that_takes_longer_than_the_client_allows_is_timed_out() {
    let url = fresh_database();
    let server = Process::serve(&url, &[]);
    let client = server.client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let mut other = PgConnection::connect(&url).await.expect("a session");
    other.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.expect("a lock");
    let write = |rest: &str| {
        let path = format!("{}?timeout={rest}", t.path("p", "r"));
        client.request("PUT", &path).json(&json!({ "A": 2 })).send()
    };
    write("1").refused(TIMED_OUT);
    t.get("p", "r").expect(200);
    other.execute("ROLLBACK").await.expect("the lock goes");
    write("20").expect(204);
    assert_eq!(t.properties(), json!({ "A": 2 }));
}

/// Has a change set that waits for a held row take a server's only connection for what
/// is not a point read or a single write, and looks on.
async fn while_no_connection_is_free(url: &str, server: &Process, t: &Table<'_>, look: impl FnOnce()) {
    let mut other = PgConnection::connect(url).await.expect("a session");
    other.execute("BEGIN; SELECT * FROM entities FOR UPDATE").await.expect("a lock");
    let is_free = AtomicBool::new(false);
    // After a first attempt, which is short, a change set gives its connection back once more.
    let waits = format!("{LOCK_WAITERS} AND query_start < clock_timestamp() - interval '200ms'");
    std::thread::scope(|scope| {
        let end = End(&is_free);
        scope.spawn(|| {
            let client = server.client();
            let t = Table::new(&client, t.name.clone());
            let write = Batch::new().write("PUT", &t, ("p", "r"), &json!({ "A": 2 }), None);
            // It may be refused while the row is held, but goes on.
            loop {
                let was_free = is_free.load(Ordering::Relaxed);
                let answer = post(&client, write.body()).send();
                if answer.status == 202 && BatchAnswer::of(answer.clone()).parts[0].status == 204 {
                    break;
                }
                assert!(!was_free, "{answer}");
            }
        });
        tokio::task::block_in_place(|| {
            until("the change set waits", || text(url, &waits) != "0");
            look();
            tokio::runtime::Handle::current().block_on(other.execute("ROLLBACK")).expect("the lock goes");
        });
        drop(end);
    });
}

/// The server has one connection for what is not a point read or a single write.
#[tokio::test(flavor = "multi_thread")]
async fn pages_see_what_they_may_while_no_connection_is_free() {
    let url = fresh_database();
    let server = Process::serve(&url, &["--max-connections", "1"]);
    let client = server.client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    client.allow_origin("*");
    let allowed = || {
        let answer = t.on("GET", "p", "r").header("Origin", "http://a.example").send().expect(200);
        answer.header("Access-Control-Allow-Origin").map(str::to_owned)
    };
    assert_eq!(allowed().as_deref(), Some("*"));
    while_no_connection_is_free(&url, &server, &t, || {
        // Until the rules are old, and then some.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(7) {
            pace(Duration::from_millis(500));
            assert_eq!(allowed().as_deref(), Some("*"));
        }
    })
    .await;
    assert_eq!(t.properties(), json!({ "A": 2 }));
}

/// A write that was done is not called a failure because the rules for its answer
/// cannot be had.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_s_write_succeeds_though_no_cors_rules_can_be_read() {
    let url = fresh_database();
    let server = Process::serve(&url, &["--max-connections", "1"]);
    let client = server.client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    while_no_connection_is_free(&url, &server, &t, || {
        for row in ["a", "b"] {
            let insert = client.request("POST", &format!("/{}?timeout=4", t.name));
            let insert = insert.header("Origin", "http://a.example").json(&with_keys("p", row, json!({})));
            insert.send().expect(201);
        }
    })
    .await;
    assert_eq!(t.count(), 3);
}

#[test]
fn a_database_that_is_away_makes_the_server_busy() {
    let url = fresh_database();
    let name = url.split('?').next().and_then(|url| url.rsplit('/').next()).expect("a name").to_owned();
    let server = Process::serve(&url, &[]);
    let client = server.client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let allow = |allowed: bool| {
        execute(server_url(), &format!("ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}"));
    };
    allow(false);
    let cut = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    execute(server_url(), &cut);
    let batch = || Batch::new().insert(&t, &with_keys("p", "b", json!({})));
    let answers = [t.get("p", "r"), t.query(""), t.insert(&with_keys("p", "s", json!({})))];
    for (at, answer) in answers.into_iter().enumerate() {
        // A write on a connection that was cut may have been done.
        if at < 2 || answer.status == 503 {
            assert_eq!(answer.need("Retry-After"), "1", "{answer}");
            answer.refused(BUSY);
        } else {
            answer.refused(TIMED_OUT);
        }
    }
    refused_before_it_began(post(&client, batch().body()));
    refused_before_it_began(post(&client, query_batch(&client.url(&t.path("p", "r")))));
    allow(true);
    until("the database is back", || t.get("p", "r").status == 200);
    assert_eq!(t.properties(), json!({ "A": 1 }));
    batch().commit(&client);
}

/// Sends a batch of which nothing may be begun: it is refused as a whole, as SDKs
/// repeat requests.
#[track_caller]
fn refused_before_it_began(batch: Request<'_>) {
    let answer = batch.send();
    assert_eq!(answer.need("Retry-After"), "1", "{answer}");
    answer.refused(BUSY);
}

/// Two inserts: each fails if it has been done before.
fn inserts(t: &Table, row: &str) -> Batch {
    let insert = |end: &str| with_keys("q", &format!("{row}{end}"), json!({}));
    Batch::new().insert(t, &insert("x")).insert(t, &insert("y"))
}

/// The second server knows nothing of the table, which it would have to ask first.
#[tokio::test(flavor = "multi_thread")]
async fn groups_without_a_connection_are_repeated_as_a_whole_and_done_once() {
    const ROUNDS: usize = 3;
    let url = fresh_database();
    let only = ["--max-connections", "1"];
    let (server, other) = (Process::serve(&url, &only), Process::serve(&url, &only));
    let (first, second) = (server.client(), other.client());
    let t = first.table();
    t.seed_one(json!({ "A": 1 }));
    let away = second.table();
    Batch::new().insert(&away, &with_keys("p", "r", json!({}))).commit(&second);
    let unknown = Table::new(&first, away.name.clone());
    while_no_connection_is_free(&url, &server, &t, || {
        let page = first.url(&format!("/{}()?$filter=PartitionKey%20eq%20'q'", t.name));
        let of_round = |round: usize| {
            let groups = [&t, &unknown].map(|table| inserts(table, &round.to_string()).body());
            groups.into_iter().chain([query_batch(&page)])
        };
        std::thread::scope(|scope| {
            for body in (0..ROUNDS).flat_map(of_round) {
                let client = first.same();
                scope.spawn(move || refused_before_it_began(post(&client, body)));
            }
        });
    })
    .await;
    for table in [&t, &unknown] {
        assert_eq!(table.count(), 1, "nothing of what was refused is done");
        for round in 0..ROUNDS {
            inserts(table, &round.to_string()).commit(&first);
        }
        assert_eq!(table.count(), 1 + 2 * ROUNDS);
    }
}

/// Another process holds the file for longer than SQLite waits for it.
#[test]
fn groups_that_sqlite_never_began_are_repeated_as_a_whole_and_done_once() {
    let folder = fresh_folder();
    let file = folder.join("data.db");
    let server = Process::serve(&format!("sqlite://{}", file.display()), &[]);
    let client = server.client();
    let t = client.table();
    let other = rusqlite::Connection::open(&file).expect("the database opens");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    refused_before_it_began(post(&client, inserts(&t, "a").body()));
    other.execute_batch("ROLLBACK").expect("the lock goes");
    assert_eq!(t.count(), 0);
    inserts(&t, "a").commit(&client);
    assert_eq!(t.count(), 2);
}

/// As recorded, whatever became of a group that was begun stands inside.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_was_begun_fails_inside() {
    let url = fresh_database();
    let server = Process::serve(&url, &[]);
    let client = server.client();
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    execute(&url, "UPDATE entities SET properties = '[]'");
    let merge = Batch::new().write("MERGE", &t, ("p", "r"), &json!({ "B": 1 }), Some("*"));
    merge.send(&client).refused(0, INTERNAL);
    let read = BatchAnswer::of(post(&client, query_batch(&client.url(&t.path("p", "r")))).send());
    assert_eq!(read.parts[0].status, 500, "{}", read.outer);
}
