//! `rowhouse check` and `rowhouse migrate`.

use serde_json::json;

use super::*;
use crate::support::postgres::{as_role, execute};
use crate::support::server::account;
use crate::tls::fixture;

/// The findings of a check, and whether it was content.
#[track_caller]
fn check(site: &Site, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
    let output = site.run_with(&[&["check", "--json"], arguments].concat(), variables);
    let told: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(output.status.code(), Some(if told["ok"] == true { 0 } else { 1 }), "{output:?}");
    let text = site.run_with(&[&["check"], arguments].concat(), variables);
    let problems =
        String::from_utf8_lossy(&text.stdout).lines().filter(|l| l.starts_with("problem ")).count();
    let counted = told["checks"].as_array().expect("findings").iter().filter(|f| f["ok"] == false).count();
    assert_eq!(problems, counted, "{text:?}");
    told
}

/// The finding of this name.
#[track_caller]
fn finding<'a>(told: &'a Value, name: &str) -> &'a Value {
    let found = told["checks"].as_array().expect("findings").iter().find(|finding| finding["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {told}"))
}

/// Demands that a check finds this wrong and says what to do.
#[track_caller]
fn finds(told: &Value, name: &str, words: &[&str], advice: &str) {
    let finding = finding(told, name);
    let said = finding["found"].as_str().expect("what was found");
    assert_eq!((&told["ok"], &finding["ok"]), (&json!(false), &json!(false)), "{told}");
    assert!(words.iter().all(|word| said.contains(word)), "{words:?} in {said}");
    assert!(finding["advice"].as_str().is_some_and(|text| text.contains(advice)), "{finding}");
}

#[test]
fn connections_are_added_up_against_what_the_database_allows() {
    let site = Site::postgres();
    let enough = check(&site, &["--max-connections", "10", "--workers", "3"], &[]);
    let found = finding(&enough, "connections");
    assert!(found["found"].as_str().expect("text").contains("opens up to 21 connections"), "{found}");
    assert_eq!(found["warning"], false, "{found}");
    let too_few = check(&site, &["--max-connections", "10000"], &[]);
    let found = finding(&too_few, "connections");
    assert!(found["found"].as_str().expect("text").contains("too few for one server"), "{found}");
    assert_eq!((&found["ok"], &found["warning"]), (&json!(true), &json!(true)), "a server works with fewer");
}

#[test]
fn variables_that_are_no_settings_are_named() {
    let site = Site::sqlite();
    let orchestrated = ("ROWHOUSE_SERVICE_HOST", "10.0.0.1");
    let content = check(&site, &[], &[orchestrated, ("ROWHOUSE_ACCOUNTS", &account(1).setting())]);
    assert_eq!(finding(&content, "configuration")["warning"], false, "{content}");
    let misspelt = [orchestrated, ("ROWHOUSE_ACCOUNT", "mine:a2V5")];
    let told = check(&site, &[], &misspelt);
    let found = finding(&told, "configuration");
    assert!(found["found"].as_str().expect("text").starts_with("ROWHOUSE_ACCOUNT: not a setting"), "{found}");
    assert_eq!((&found["ok"], &found["warning"]), (&json!(true), &json!(true)), "servers start all the same");
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    let server = Process::spawn(fresh_folder(), &arguments, &misspelt);
    let log = server.log();
    assert!(log.contains("ROWHOUSE_ACCOUNT: not a setting") && !log.contains("SERVICE_HOST"), "{log}");
}

#[test]
fn a_database_is_migrated_once_and_checked() {
    for site in Site::both() {
        let before = check(&site, &[], &[]);
        assert_eq!(before["ok"], true, "{before}");
        assert!(finding(&before, "schema")["found"].as_str().expect("text").contains("none yet"));
        let again = check(&site, &[], &[]);
        assert!(
            finding(&again, "schema")["found"].as_str().expect("text").contains("none yet"),
            "nothing was changed"
        );
        let first = site.json(&["migrate"]);
        assert_eq!(first["schema"], migrations());
        assert_eq!(site.json(&["migrate"]), first);
        let after = check(&site, &[], &[]);
        assert_eq!(after["ok"], true, "{after}");
        assert!(
            finding(&after, "schema")["found"]
                .as_str()
                .expect("text")
                .contains(&format!("version {}, the same as", migrations()))
        );
        assert_eq!(finding(&after, "privileges")["ok"], true);
        let server = site.server(&["--accounts", &account(1).setting()]);
        assert_eq!(status(&server, &account(1), 0), 200);
        assert_eq!(check(&site, &[], &[])["ok"], true, "also while a server runs");
    }
}

#[test]
fn mistakes_in_the_settings_are_findings() {
    let site = Site::sqlite();
    let told = check(&site, &["--listen", "nowhere", "--accounts", "x"], &[]);
    let all = told["checks"].as_array().expect("findings");
    assert_eq!(all.len(), 2, "{told}");
    finds(&told, "configuration", &["--listen nowhere"], "--help");
    let output = site.run_with(&["check", "--listen", "nowhere", "--workers", "0"], &[]);
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 2, "{output:?}");
    site.fails(&["migrate", "--database-url", "mysql://x"], &["--database-url"]);
    site.fails(&["migrate", "--database-url", "sqlite::memory:"], &["memory"]);
    for (hosts, why) in [("a,,b/d", "empty"), ("a,b/d?port=1,2,3", "3 ports"), ("a,[::1/d", "has no ]")] {
        site.fails(&["migrate", "--database-url", &format!("postgres://{hosts}")], &["--database-url", why]);
    }
    let wanted = "postgres://a,b/d?target_session_attrs=writable";
    site.fails(&["migrate", "--database-url", wanted], &["--database-url", "read-write"]);
    site.fails(&["migrate", "--migrate-url", wanted], &["--migrate-url", "read-write"]);
    // Or it would be a new file of that name.
    site.fails(&["migrate", "--database-url", "sqlite://x.db?mode=ro"], &["--database-url"]);
}

#[test]
fn certificates_are_opened() {
    let site = Site::sqlite();
    let pem = |name: &str| fixture(name).to_str().expect("a path").to_owned();
    let checked = |certificate: &str, key: &str| {
        check(&site, &["--tls-cert", &pem(certificate), "--tls-key", &pem(key)], &[])
    };
    assert_eq!(finding(&checked("first.pem", "first.key.pem"), "certificate")["ok"], true);
    finds(&checked("none.pem", "first.key.pem"), "certificate", &["--tls-cert", "none.pem"], "PEM");
    finds(&checked("first.pem", "second.key.pem"), "certificate", &["--tls-key"], "belong together");
    finds(&checked("first.pem", "first.pem"), "certificate", &["no private key"], "PEM");
}

#[test]
fn addresses_are_tried() {
    let site = Site::sqlite();
    let free = ["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"];
    let told = check(&site, &free, &[]);
    let of_addresses = told["checks"].as_array().expect("findings").iter().filter(|f| f["name"] == "address");
    assert_eq!(of_addresses.filter(|f| f["ok"] == true && f["warning"] == false).count(), 2, "{told}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = listener.local_addr().expect("an address").to_string();
    let told = check(&site, &["--listen", &taken], &[]);
    let found = finding(&told, "address");
    assert_eq!((&told["ok"], &found["warning"]), (&json!(true), &json!(true)), "{told}");
    assert!(found["found"].as_str().expect("text").contains(&taken), "{told}");
    drop(listener);
    // Kept for documentation: no machine has it.
    let foreign = ["--listen", "192.0.2.1:10002", "--allow-development-account"];
    finds(&check(&site, &foreign, &[]), "address", &["--listen 192.0.2.1:10002"], "this machine");
}

#[test]
fn settings_that_do_nothing_are_warnings() {
    let site = Site::sqlite();
    let roles = [
        "--console",
        "off",
        "--admin-token",
        "0123456789abcdef",
        "--table-spread",
        "4",
        "--oidc-roles",
        "a=reader",
    ];
    let given = [&roles[..], &["--max-connections", "200", "--trace-ratio", "0.5"]].concat();
    let flags = ["--admin-token", "--table-spread", "--oidc-roles", "--max-connections", "--trace-ratio"];
    let told = check(&site, &given, &[]);
    assert_eq!(told["ok"], true, "{told}");
    let findings = told["checks"].as_array().expect("findings").iter();
    let warned: Vec<&str> =
        findings.filter(|f| f["warning"] == true).filter_map(|f| f["found"].as_str()).collect();
    for flag in flags {
        assert!(warned.iter().any(|line| line.starts_with(&format!("{flag}: does nothing"))), "{told}");
    }
    let server = site.server(&given);
    for flag in flags {
        let line = format!("{flag}: does nothing");
        assert!(server.log().lines().any(|l| l.contains("WARN") && l.contains(&line)), "{}", server.log());
    }
}

#[test]
fn a_database_that_is_away_is_found() {
    let mut site = Site::sqlite();
    site.url = "postgres://someone:secret@127.0.0.1:1/none".into();
    let told = check(&site, &[], &[]);
    finds(
        &told,
        "database",
        &["postgres://someone@127.0.0.1:1/none: cannot connect"],
        "PostgreSQL runs there",
    );
    assert!(!told.to_string().contains("secret"));
    site.url = "sqlite:///nonexistent/folder/x.db".into();
    finds(&check(&site, &[], &[]), "schema", &["does not exist"], "make the folder");
    let file = site.folder.join("text");
    std::fs::write(&file, "this is no database, but long enough to be read as one".repeat(40))
        .expect("writable");
    site.url = format!("sqlite://{}", file.display());
    finds(&check(&site, &[], &[]), "database", &["not a database"], "is a database");
}

#[test]
fn the_master_key_is_tried() {
    for site in Site::both() {
        let master = [("ROWHOUSE_MASTER_KEY", MASTER)];
        site.json(&["migrate"]);
        finds(&check(&site, &[], &master), "accounts", &["no account"], "account add");
        site.json(&["account", "add", "myaccount"]);
        let told = check(&site, &[], &master);
        assert!(finding(&told, "accounts")["found"].as_str().expect("text").contains("1 in the database"));
        let other = [("ROWHOUSE_MASTER_KEY", OTHER_MASTER)];
        finds(&check(&site, &[], &other), "accounts", &["does not open"], "myaccount");
        let without = check(&site, &["--accounts", &account(1).setting()], &[]);
        let found = finding(&without, "accounts");
        assert_eq!((&found["ok"], &found["warning"]), (&json!(true), &json!(true)), "{without}");
        assert!(found["found"].as_str().is_some_and(|text| text.contains("no --master-key")), "{without}");
        let server = Process::spawn(
            fresh_folder(),
            &["--listen", "127.0.0.1:0", "--database-url", &site.url, "--accounts", &account(1).setting()],
            &[],
        );
        let is_warning = |line: &str| line.contains("WARN") && line.contains("no --master-key");
        assert!(server.log().lines().any(is_warning), "{}", server.log());
    }
}

#[test]
fn missing_privileges_are_named() {
    let site = Site::postgres();
    site.json(&["migrate"]);
    let role = format!("checked_{}", std::process::id());
    execute(
        &site.url,
        &format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'p'; REVOKE CREATE ON SCHEMA public FROM public; \
             GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}; GRANT INSERT ON entities TO {role}"
        ),
    );
    let mut limited = Site::sqlite();
    limited.url = as_role(&site.url, &role);
    let told = check(&limited, &[], &[]);
    finds(&told, "privileges", &["DELETE on entities", "INSERT on tables", "UPDATE on accounts"], "GRANT");
    assert!(!finding(&told, "privileges")["found"].as_str().expect("text").contains("INSERT on entities"));
    assert_eq!(finding(&told, "schema")["ok"], true, "nothing is to be created: {told}");
    execute(
        &site.url,
        "DELETE FROM _sqlx_migrations WHERE version = (SELECT max(version) FROM _sqlx_migrations)",
    );
    let told = check(&limited, &[], &[]);
    finds(&told, "schema", &["may not create tables", &role], "--migrate-url");
    let told = check(&limited, &["--migrate-url", &site.url], &[]);
    assert_eq!(finding(&told, "schema")["ok"], true, "{told}");
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
    let told = check(&site, &[], &[]);
    finds(&told, "role", &["read-only"], "default_transaction_read_only = off");
    assert_eq!(finding(&told, "privileges")["ok"], true, "{told}");
}

#[test]
fn a_primary_is_no_replica() {
    let (site, other) = (Site::postgres(), Site::postgres());
    let told = check(&site, &["--secondary-database-url", &other.url], &[]);
    finds(&told, "secondary", &["no read replica"], "standby");
    let away = ["--secondary-database-url", "postgres://x@127.0.0.1:1/x"];
    finds(&check(&site, &away, &[]), "secondary", &["cannot connect"], "503");
}
