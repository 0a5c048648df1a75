//! What clients are told when the database does not do its part (protocol §2.3,
//! §14.3).

use std::time::Duration;

use serde_json::json;
use sqlx::{Connection, Executor, PgConnection};

use crate::support::postgres::{execute, fresh_database, server_url};
use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;

fn server(url: &str) -> Process {
    let accounts = account(1).setting();
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--database-url", url, "--accounts", accounts.as_str()];
    Process::spawn(fresh_folder(), &arguments, &[])
}

fn client(server: &Process) -> Client {
    Client::path_style(server.address(), account(1))
}

#[test]
fn a_row_that_nobody_can_have_written_is_an_internal_error() {
    let url = fresh_database();
    let server = server(&url);
    let client = client(&server);
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
    let server = server(&url);
    let client = client(&server);
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

#[test]
fn a_database_that_is_away_makes_the_server_busy() {
    let url = fresh_database();
    let name = url.split('?').next().and_then(|url| url.rsplit('/').next()).expect("a name").to_owned();
    let server = server(&url);
    let client = client(&server);
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
    let failed = batch().send(&client);
    failed.refused(0, BUSY);
    allow(true);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(t.properties(), json!({ "A": 1 }));
    batch().commit(&client);
}
