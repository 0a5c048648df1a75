//! What failed starts and copies say: the place, the value, and what to do next.

use std::net::TcpListener;

use super::copying::{Served, connection_string};
use super::*;
use crate::support::postgres::{server_url, with_database};
use crate::support::server::account;

/// A command line, its variables, and the words of the only line that it prints.
type Failing<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], &'a [&'a str]);

#[test]
fn a_start_that_fails_names_the_setting_its_value_and_what_to_do() {
    let folder = fresh_folder();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("an address").to_string();
    let missing = with_database(server_url(), "rowhouse_has_no_such_database");
    let tls = |name: &str| format!("{}/tests/fixtures/tls/{name}", env!("CARGO_MANIFEST_DIR"));
    let (certificate, other_key) = (tls("first.pem"), tls("second.key.pem"));
    let memory = ["--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    let cases: &[Failing<'_>] = &[
        (
            &["--listen", &taken, "--database-url", "sqlite::memory:"],
            &[],
            &[&format!("cannot listen on {taken}"), "another program", "stop it, or", "--listen"],
        ),
        (
            &["--database-url", "postgres://someone:secret@127.0.0.1:1/none"],
            &[],
            &["postgres://someone@127.0.0.1:1/none", "refused", "see that PostgreSQL runs there"],
        ),
        (
            &["--database-url", &missing],
            &[],
            &["\"rowhouse_has_no_such_database\" does not exist", "createdb"],
        ),
        (
            &["--database-url", "sqlite://"],
            &[],
            &["--database-url sqlite://: names no file", "sqlite://rowhouse.db"],
        ),
        (&["--database-url", "foo.db"], &[], &["--database-url foo.db:", "did you mean sqlite://foo.db?"]),
        (
            &memory,
            &[("ROWHOUSE_MAX_CONNECTIONS", "abc")],
            &["ROWHOUSE_MAX_CONNECTIONS=abc: not a whole number"],
        ),
        (&memory, &[("ROWHOUSE_TABLE_SPREAD", "65")], &["ROWHOUSE_TABLE_SPREAD=65: ", "1..=64"]),
        (&["--max-connections", "abc"], &[], &["'abc'", "--max-connections", "not a whole number"]),
        (&["serve", "--lisen", "127.0.0.1:0"], &[], &["'--lisen'", "'--listen'", "try --help"]),
        (
            &["--tls-cert", &certificate, "--tls-key", &other_key, "--database-url", "sqlite::memory:"],
            &[],
            &["second.key.pem is not the key of the certificate", "first.pem", "rowhouse check"],
        ),
    ];
    for (arguments, variables, words) in cases {
        let output = run(&folder, arguments, variables);
        failed(&output, words);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("secret"), "{output:?}");
    }
    std::fs::write(folder.join(".env"), "# one\nROWHOUSE_LOG=info\nROWHOUSE_ACCOUNTS=a b$c'\n")
        .expect("a file");
    failed(&run(&folder, &memory, &[]), &[".env, line 3:", "single quotes"]);
    std::fs::remove_dir_all(folder).expect("the folder can go");
}

#[test]
fn a_copy_that_fails_names_the_side_the_place_and_what_to_do() {
    let served = Served::new(Site::sqlite());
    served.client().create_table("People").expect(201);
    let address = served.server.address();
    let (right, wrong) = (served.connection_string(), connection_string(address, &account(2)));
    let stranger = right.replace(&format!("/{}", served.account.name), "/nobody");
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let closed = connection_string(&closed.to_string(), &account(1));
    let (wrong, local) = (wrong.replace(&account(2).name, &account(1).name), served.site.url.as_str());
    let cases: &[(&str, &str, &[&str])] = &[
        (&wrong, "sqlite://new.db", &["FROM: GET http://", address, "403", "see that the key"]),
        (&stranger, "sqlite://new.db", &["FROM: GET http://", "/nobody", "404", "the name of the account"]),
        (&closed, "sqlite://new.db", &["FROM: GET http://", "see that the server runs"]),
        (&right, &stranger, &["TO: ", "/nobody", "404", "the name of the account"]),
        (&right, "dump:/proc/none/dump", &["TO: ", "/proc/none/dump"]),
        (&right, "sqlite:///proc/none/t.db", &["TO: ", "/proc/none"]),
        (
            local,
            "sqlite://new.db",
            &["FROM: sqlite://", "tables.db", "devstoreaccount1 has no tables", &account(1).name],
        ),
    ];
    for (from, to, words) in cases {
        // Nothing was copied, so the second run need not continue the first.
        for _ in 0..2 {
            served.site.fails(&["copy", from, to], words);
        }
    }
    served.site.ends(&["copy", &right, "sqlite::memory:"], 2, &["TO: ", "memory", "name a file"]);
    let counted = ["count", local];
    served
        .site
        .fails(&counted, &["sqlite://", "devstoreaccount1 has no tables", &account(1).name, "as in #"]);
    let place = format!("{local}#{}", account(1).name);
    assert_eq!(served.site.json(&["count", &place])["tables"]["People"], 0);
}
