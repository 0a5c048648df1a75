//! `rowhouse index`.

use serde_json::json;

use super::*;
use crate::operators::{admin_of, ask};
use crate::support::postgres::{as_role, execute, text, try_execute};
use crate::support::server::account;

const ROWS: usize = 40;

fn filled<'a>(client: &'a Client, rows: usize) -> Table<'a> {
    let table = client.table();
    for number in 0..rows {
        let properties = json!({ "N": number, "S": format!("s{number}"), "Größe": number % 5 });
        table.seed(with_keys("p", &format!("{number:04}"), properties));
    }
    table
}

/// Row keys of a filtered query.
fn found(table: &Table<'_>, filter: &str) -> String {
    table.matching_rows(filter)
}

/// Rows that a server has looked up by index.
fn by_index(server: &Process) -> u64 {
    let metrics = String::from_utf8(ask(&admin_of(server), "GET", "/metrics", "").body).expect("text");
    let line =
        metrics.lines().find(|line| line.starts_with("rowhouse_filter_rows_examined_total{by=\"index\"}"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("a number")
}

/// Two servers on PostgreSQL; one on a SQLite file, which can have no other.
fn servers(site: &Site) -> Vec<Process> {
    let accounts = account(1).setting();
    let server = || site.server(&["--accounts", &accounts, "--admin-listen", "127.0.0.1:0"]);
    (0..if site.url.starts_with("sqlite") { 1 } else { 2 }).map(|_| server()).collect()
}

#[test]
fn every_server_follows_what_a_command_makes_and_drops() {
    for site in Site::both() {
        let servers = servers(&site);
        let clients: Vec<Client> = servers.iter().map(|server| server.client()).collect();
        let table = filled(&clients[0], ROWS);
        let name = table.name.clone();
        let index = |verb: &str, more: &[&str]| {
            let account = account(1).name;
            let fixed = ["index", verb, &name];
            site.json(&[&fixed[..], more, &["--account", &account]].concat())
        };
        let made = index("create", &["S", "--yes"]);
        assert_eq!((&made["kind"], &made["state"]), (&json!("text"), &json!("ready")), "{made}");
        assert_eq!(index("create", &["Größe", "--kind", "number", "--yes"])["property"], "Größe");
        for (server, client) in servers.iter().zip(&clients) {
            let table = Table::new(client, &name);
            until("the index is used", || {
                assert_eq!(found(&table, "S eq 's7'"), "0007");
                by_index(server) > 0
            });
            assert_eq!(found(&table, "Größe ge 4 and N lt 10"), "0004,0009");
        }
        let listed = index("list", &[]);
        assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
        assert!(listed[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{listed}");
        assert_eq!(index("drop", &["S"])["removed"], true);
        assert_eq!(index("list", &[])[0]["property"], "Größe");
        assert_eq!(found(&table, "S eq 's7'"), "0007");
    }
}

#[test]
fn a_database_without_a_server_gets_indexes_too() {
    for site in Site::both() {
        let (server, client) = site.served(&[]);
        let name = filled(&client, ROWS).name;
        drop(server);
        let account = account(1).name;
        let made = site.json(&["index", "create", &name, "N", "--account", &account]);
        assert_eq!((&made["kind"], &made["state"]), (&json!("number"), &json!("ready")), "{made}");
        let of =
            |more: &[&'static str]| [&["index", "create", &name], more, &["--account", &account]].concat();
        for (more, words) in [
            (&["N"][..], "already"),
            (&["Missing"][..], "give the kind"),
            (&["RowKey"][..], "needs no index"),
            (&["a' b", "--kind", "text"][..], "not valid"),
            (&["N", "--kind", "color"][..], "text, number"),
        ] {
            site.fails(&of(more), &[words]);
        }
        site.fails(&["index", "create", "Missing", "N", "--account", &account], &["no table"]);
        site.fails(&["index", "drop", &name, "S", "--account", &account], &["no such index"]);
        assert_eq!(site.json(&["index", "drop", &name, "N", "--account", &account])["removed"], true);
    }
}

#[test]
fn what_the_database_says_of_an_index_that_it_refuses_is_shown() {
    let site = Site::postgres();
    let (server, client) = site.served(&[]);
    let name = filled(&client, 1).name;
    drop(server);
    let role = format!("no_owner_{}", std::process::id());
    let create = format!(
        "CREATE ROLE {role} LOGIN PASSWORD 'p'; GRANT ALL ON SCHEMA public TO {role}; \
         GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}"
    );
    execute(&site.url, &create);
    let mut limited = Site::sqlite();
    limited.url = as_role(&site.url, &role);
    let account = account(1).name;
    let create = ["index", "create", &name, "N", "--account", &account];
    limited.fails(&create, &["refuses to make the index", "must be owner of table entities"]);
    assert_eq!(site.json(&["index", "list"]), json!([]));
    execute(&site.url, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn a_file_that_a_server_has_is_not_built_in_without_asking() {
    let site = Site::sqlite();
    let (_server, client) = site.served(&[]);
    let name = filled(&client, 1).name;
    site.fails(
        &["index", "create", &name, "N", "--account", &account(1).name],
        &["all writes wait", "--yes"],
    );
    assert_eq!(site.json(&["index", "list"]), json!([]));
}

/// A transaction on PostgreSQL that has written something: builds wait for it.
pub struct HeldTransaction {
    url: String,
    session: Option<std::thread::JoinHandle<()>>,
}

/// The session of such a transaction.
const HELD: &str = "query LIKE 'BEGIN; %' AND state = 'active' AND datname = current_database()";

impl HeldTransaction {
    pub fn begin(url: &str) -> Self {
        Self::after(url, "INSERT INTO entities VALUES (-1, 'p', 'r', 0, '{}')")
    }

    /// A transaction that has run a statement.
    pub fn after(url: &str, statement: &str) -> Self {
        let (own, script) = (url.to_owned(), format!("BEGIN; {statement}; SELECT pg_sleep(300); ROLLBACK"));
        // It ends with an error, as it is told to.
        let session = std::thread::spawn(move || drop(try_execute(&own, &script)));
        until("the transaction runs", || {
            text(url, &format!("SELECT count(*)::text FROM pg_stat_activity WHERE {HELD}")) == "1"
        });
        Self { url: url.to_owned(), session: Some(session) }
    }
}

/// The transaction is rolled back.
impl Drop for HeldTransaction {
    fn drop(&mut self) {
        let end = format!("SELECT count(pg_terminate_backend(pid))::text FROM pg_stat_activity WHERE {HELD}");
        text(&self.url, &end);
        let _ = self.session.take().map(std::thread::JoinHandle::join);
    }
}

/// A report that keeps its transaction open has the removal of an index wait: everything else goes on, and the
/// log names its session.
#[test]
fn a_report_keeps_an_index_in_the_database_and_nothing_else_waiting() {
    let site = Site::postgres();
    let server = servers(&site).remove(0);
    let client = server.client();
    let (table, doomed) = (filled(&client, ROWS), filled(&client, ROWS));
    site.json(&["index", "create", &table.name, "N", "--account", &account(1).name]);
    let held = HeldTransaction::after(&site.url, "SELECT count(*) FROM entities");
    execute(
        &site.url,
        "UPDATE property_indexes SET state = 2, changed = 0; \
         UPDATE property_index_changes SET changes = changes + 1",
    );
    let invalid = "SELECT count(*)::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid \
                   WHERE relname LIKE 'property_index_%' AND NOT indisvalid";
    until("the removal waits", || text(&site.url, invalid) == "1");
    client.delete_table(&doomed.name).expect(204);
    let rows = "SELECT count(*)::text FROM entities WHERE bucket >> 16 <> (SELECT table_no FROM tables)";
    until("the purge goes on", || text(&site.url, rows) == "0");
    until("the session is named", || {
        let log = server.log();
        log.contains("removing an index waits") && log.contains("the session ")
    });
    drop(held);
    let left = "SELECT count(*)::text FROM pg_class WHERE relname LIKE 'property_index_%_0'";
    until("the removal of the index", || text(&site.url, left) == "0");
}

/// Somebody has dropped an index, or restored the database without it.
#[test]
fn an_index_that_the_database_has_lost_is_told_and_does_no_harm() {
    for site in Site::both() {
        let server = servers(&site).remove(0);
        let client = server.client();
        let table = filled(&client, ROWS);
        site.json(&["index", "create", &table.name, "N", "--account", &account(1).name, "--yes"]);
        let fine = site.run(&["check", "--json"]);
        assert!(!String::from_utf8_lossy(&fine.stdout).contains("not in the database"), "{fine:?}");
        if let Some(file) = site.url.strip_prefix("sqlite://") {
            let db = rusqlite::Connection::open(file).expect("the file");
            let name: String = db
                .query_row(
                    "SELECT name FROM sqlite_schema WHERE name LIKE 'property_index_%' AND type = 'index'",
                    [],
                    |row| row.get(0),
                )
                .expect("an index");
            db.execute_batch(&format!("DROP INDEX {name}")).expect("it is there");
        } else {
            let name =
                text(&site.url, "SELECT relname::text FROM pg_class WHERE relname LIKE 'property_index_%_0'");
            execute(&site.url, &format!("DROP INDEX {name}"));
        }
        until("the index is not asked", || {
            let before = by_index(&server);
            assert_eq!(found(&table, "N eq 7"), "0007");
            by_index(&server) == before
        });
        let told = site.run(&["check", "--json"]);
        let told = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(told.contains(&format!("{} over N (number)", table.name.to_lowercase())), "{told}");
    }
}
