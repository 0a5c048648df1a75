//! `rowhouse check` and `rowhouse migrate`.

use serde_json::json;

use super::*;
use crate::support::postgres::{as_role, execute};
use crate::support::server::account;
use crate::tls::fixture;

/// What a check has found. Its text has as many problems as its JSON, and its status tells whether it has any.
#[track_caller]
pub fn check_with(site: &Site, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let output = site.run_with(&[&["check", "--json"], arguments].concat(), variables);
    let told: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(output.status.code(), Some(if told["ok"] == true { 0 } else { 1 }), "{output:?}");
    let text = site.run_with(&[&["check"], arguments].concat(), variables);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let problems = text.lines().filter(|line| line.starts_with("problem ")).count();
    assert_eq!(problems, all(&told).iter().filter(|found| found["ok"] == false).count(), "{text}");
    told
}

#[track_caller]
pub fn check(site: &Site, arguments: &[&str]) -> Value {
    check_with(site, arguments, &[])
}

pub fn all(told: &Value) -> &Vec<Value> {
    told["checks"].as_array().expect("findings")
}

/// Demands a finding of this name, which is `ok`, a `warning` or a `problem`, with words of its text and advice.
#[track_caller]
pub fn finds(told: &Value, name: &str, verdict: &str, words: &[&str]) {
    let found = all(told).iter().find(|found| found["name"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name} in {told}"));
    let is = (&found["ok"], &found["warning"]);
    assert_eq!(is, (&json!(verdict != "problem"), &json!(verdict == "warning")), "{found}");
    assert!(verdict != "problem" || told["ok"] == false, "{told}");
    let said =
        format!("{}\n{}", found["found"].as_str().expect("a text"), found["advice"].as_str().unwrap_or(""));
    words.iter().for_each(|word| assert!(said.contains(word), "{word:?} in {said}"));
}

/// Demands a line of a server's log that is a warning with these words.
#[track_caller]
fn warns(server: &Process, words: &str) {
    let log = server.log();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains(words)), "{log}");
}

#[test]
fn connections_are_added_up_against_what_the_database_allows() {
    let site = Site::postgres();
    let enough = check(&site, &["--max-connections", "10", "--workers", "3"]);
    finds(&enough, "connections", "ok", &["opens up to 21 connections"]);
    // A server works with fewer.
    let too_few = check(&site, &["--max-connections", "10000"]);
    finds(&too_few, "connections", "warning", &["too few for one server"]);
}

#[test]
fn settings_that_do_nothing_are_warnings_of_checks_and_servers() {
    let site = Site::sqlite();
    let orchestrated = ("ROWHOUSE_SERVICE_HOST", "10.0.0.1");
    let content = check_with(&site, &[], &[orchestrated, ("ROWHOUSE_ACCOUNTS", &account(1).setting())]);
    finds(&content, "configuration", "ok", &[]);
    let misspelt = [orchestrated, ("ROWHOUSE_ACCOUNT", "mine:a2V5")];
    finds(
        &check_with(&site, &[], &misspelt),
        "configuration",
        "warning",
        &["ROWHOUSE_ACCOUNT: not a setting"],
    );
    let idle = [
        ["--admin-token", "0123456789abcdef"],
        ["--table-spread", "4"],
        ["--oidc-roles", "a=reader"],
        ["--max-connections", "200"],
        ["--trace-ratio", "0.5"],
    ];
    let given = [&["--console", "off"][..], &idle.concat()].concat();
    let told = check(&site, &given);
    assert_eq!(told["ok"], true, "{told}");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    let server = Process::spawn(fresh_folder(), &[&arguments[..], &given].concat(), &misspelt);
    warns(&server, "ROWHOUSE_ACCOUNT: not a setting");
    assert!(!server.log().contains("SERVICE_HOST"), "{}", server.log());
    for [flag, _] in idle {
        let line = format!("{flag}: does nothing");
        let is_told = |found: &Value| found["found"].as_str().is_some_and(|text| text.starts_with(&line));
        assert!(all(&told).iter().any(|found| found["warning"] == true && is_told(found)), "{told}");
        warns(&server, &line);
    }
}

#[test]
fn a_database_is_migrated_once_and_checked() {
    for site in Site::both() {
        for _ in 0..2 {
            let before = check(&site, &[]);
            assert_eq!(before["ok"], true, "{before}");
            finds(&before, "schema", "ok", &["none yet"]);
        }
        let first = site.json(&["migrate"]);
        assert_eq!(first["schema"], migrations());
        assert_eq!(site.json(&["migrate"]), first);
        let after = check(&site, &[]);
        assert_eq!(after["ok"], true, "{after}");
        finds(&after, "schema", "ok", &[&format!("version {}, the same as", migrations())]);
        finds(&after, "privileges", "ok", &[]);
        let (server, _) = site.served(&[]);
        assert_eq!(status(&server, &account(1), 0), 200);
        assert_eq!(check(&site, &[])["ok"], true, "also while a server runs");
    }
}

#[test]
fn mistakes_in_the_settings_are_findings() {
    let site = Site::sqlite();
    let told = check(&site, &["--listen", "nowhere", "--accounts", "x"]);
    assert_eq!(all(&told).len(), 2, "{told}");
    finds(&told, "configuration", "problem", &["--listen nowhere", "--help"]);
    let output = site.run_with(&["check", "--listen", "nowhere", "--workers", "0"], &[]);
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 2, "{output:?}");
    let wanted = "postgres://a,b/d?target_session_attrs=writable";
    for (flag, url, why) in [
        ("--database-url", "mysql://x", ""),
        ("--database-url", "sqlite::memory:", "memory"),
        ("--database-url", "postgres://a,b/d?port=1,2,3", "3 ports"),
        ("--database-url", wanted, "read-write"),
        ("--migrate-url", wanted, "read-write"),
        // Or it would be a new file of that name.
        ("--database-url", "sqlite://x.db?mode=ro", ""),
    ] {
        site.fails(&["migrate", flag, url], &[flag, why]);
    }
}

#[test]
fn certificates_are_opened() {
    let site = Site::sqlite();
    let pem = |name: &str| fixture(name).to_str().expect("a path").to_owned();
    for (certificate, key, verdict, words) in [
        ("first.pem", "first.key.pem", "ok", &[][..]),
        ("none.pem", "first.key.pem", "problem", &["--tls-cert", "none.pem", "PEM"]),
        ("first.pem", "second.key.pem", "problem", &["--tls-key", "belong together"]),
        ("first.pem", "first.pem", "problem", &["no private key", "PEM"]),
    ] {
        let told = check(&site, &["--tls-cert", &pem(certificate), "--tls-key", &pem(key)]);
        finds(&told, "certificate", verdict, words);
    }
}

#[test]
fn addresses_are_tried() {
    let site = Site::sqlite();
    let told = check(&site, &["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    let addresses = all(&told).iter().filter(|found| found["name"] == "address");
    assert_eq!(addresses.filter(|f| f["ok"] == true && f["warning"] == false).count(), 2, "{told}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("an address").to_string();
    let told = check(&site, &["--listen", &taken]);
    assert_eq!(told["ok"], true, "{told}");
    finds(&told, "address", "warning", &[&taken]);
    drop(listener);
    // Kept for documentation: no machine has it.
    let told = check(&site, &["--listen", "192.0.2.1:10002", "--allow-development-account"]);
    finds(&told, "address", "problem", &["--listen 192.0.2.1:10002", "this machine"]);
}

#[test]
fn a_database_that_is_away_is_found() {
    let mut site = Site::sqlite();
    site.write("text", "this is no database, but long enough to be read as one".repeat(40));
    let file = format!("sqlite://{}", site.folder.join("text").display());
    let away = "postgres://someone:secret@127.0.0.1:1/none";
    for (url, name, words) in [
        (away, "database", ["postgres://someone@127.0.0.1:1/none: cannot connect", "PostgreSQL runs there"]),
        ("sqlite:///nonexistent/folder/x.db", "schema", ["does not exist", "make the folder"]),
        (&file, "database", ["not a database", "is a database"]),
    ] {
        site.url = url.to_owned();
        let told = check(&site, &[]);
        finds(&told, name, "problem", &words);
        assert!(!told.to_string().contains("secret"));
    }
    let (site, other) = (Site::postgres(), Site::postgres());
    for (secondary, words) in [
        (other.url.as_str(), ["no read replica", "standby"]),
        ("postgres://x@127.0.0.1:1/x", ["cannot connect", "503"]),
    ] {
        let told = check(&site, &["--secondary-database-url", secondary]);
        finds(&told, "secondary", "problem", &words);
    }
}

#[test]
fn the_master_key_is_tried() {
    for site in Site::both() {
        site.json(&["migrate"]);
        let tried = |key: &str| check_with(&site, &[], &[("ROWHOUSE_MASTER_KEY", key)]);
        finds(&tried(MASTER), "accounts", "problem", &["no account", "account add"]);
        site.json(&["account", "add", "myaccount"]);
        finds(&tried(MASTER), "accounts", "ok", &["1 in the database"]);
        finds(&tried(OTHER_MASTER), "accounts", "problem", &["does not open", "myaccount"]);
        let setting = account(1).setting();
        finds(&check(&site, &["--accounts", &setting]), "accounts", "warning", &["no --master-key"]);
        let arguments = ["--listen", "127.0.0.1:0", "--database-url", &site.url, "--accounts", &setting];
        warns(&Process::spawn(fresh_folder(), &arguments, &[]), "no --master-key");
    }
}

#[test]
fn missing_privileges_are_named() {
    let site = Site::postgres();
    site.json(&["migrate"]);
    let role = format!("checked_{}", std::process::id());
    let create = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'p'; REVOKE CREATE ON SCHEMA public FROM public; \
         GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}; GRANT INSERT ON entities TO {role}"
    );
    execute(&site.url, &create);
    let limited = Site { folder: fresh_folder(), url: as_role(&site.url, &role) };
    let told = check(&limited, &[]);
    let missing = ["DELETE on entities", "INSERT on tables", "UPDATE on accounts", "GRANT"];
    finds(&told, "privileges", "problem", &missing);
    assert!(!told.to_string().contains("INSERT on entities"), "{told}");
    // Nothing is to be created.
    finds(&told, "schema", "ok", &[]);
    execute(&site.url, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn a_role_whose_sessions_only_read_is_a_problem() {
    let site = Site::postgres();
    site.json(&["migrate"]);
    execute(
        &site.url,
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); \
         END $$",
    );
    let told = check(&site, &[]);
    finds(&told, "role", "problem", &["read-only", "default_transaction_read_only = off"]);
    finds(&told, "privileges", "ok", &[]);
}
