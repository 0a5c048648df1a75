//! `rowhouse index`.

use serde_json::json;

use super::*;
use crate::operators::{TOKEN, admin_of, read_by_index};
use crate::support::postgres::{Writer, execute, text, try_execute};
use crate::support::server::account;

const ROWS: usize = 40;

pub(super) fn filled<'a>(client: &'a Client, rows: usize) -> Table<'a> {
    let table = client.table();
    for number in 0..rows {
        let properties = json!({ "N": number, "S": format!("s{number}"), "Größe": number % 5 });
        table.seed(with_keys("p", &format!("{number:04}"), properties));
    }
    table
}

/// Two servers on PostgreSQL; one on a SQLite file, which can have no other.
fn servers(site: &Site) -> Vec<Process> {
    let server = || site.served(&["--admin-listen", "127.0.0.1:0", "--admin-token", TOKEN]).0;
    (0..if site.is_sqlite() { 1 } else { 2 }).map(|_| server()).collect()
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
                assert_eq!(table.matching_rows("S eq 's7'"), "0007");
                read_by_index(&admin_of(server)) > 0.0
            });
            assert_eq!(table.matching_rows("Größe ge 4 and N lt 10"), "0004,0009");
        }
        let listed = index("list", &[]);
        assert_eq!(listed.as_array().map(Vec::len), Some(2), "{listed}");
        assert!(listed[0]["bytes"].as_u64().is_some_and(|bytes| bytes > 0), "{listed}");
        assert_eq!(index("drop", &["S"])["removed"], true);
        assert_eq!(index("list", &[])[0]["property"], "Größe");
        assert_eq!(table.matching_rows("S eq 's7'"), "0007");
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
fn an_index_that_cannot_be_made_or_would_keep_writes_waiting_is_refused_with_its_reason() {
    let [file, owner] = Site::both();
    let [(held, in_file), (server, in_database)] = [&file, &owner].map(|site| site.served(&[]));
    let [one, other] = [&in_file, &in_database].map(|client| filled(client, 1).name);
    drop(server);
    let writer = Writer::of(&owner.url);
    let limited = Site { folder: fresh_folder(), url: writer.url.clone() };
    for (site, table, words) in [
        (&limited, &other, ["refuses to make the index", "must be owner of table entities"]),
        // A server has this file.
        (&file, &one, ["all writes wait", "--yes"]),
    ] {
        site.fails(&["index", "create", table, "N", "--account", &account(1).name], &words);
        assert_eq!(site.json(&["index", "list"]), json!([]));
    }
    drop(held);
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
        let told = || String::from_utf8_lossy(&site.run(&["check", "--json"]).stdout).into_owned();
        assert!(!told().contains("not in the database"), "{}", told());
        let number = &site.json(&["index", "list"])[0]["id"];
        let bucket = if site.is_sqlite() { "" } else { "_0" };
        site.execute(&format!("DROP INDEX property_index_{number}{bucket}"));
        until("the index is not asked", || {
            let before = read_by_index(&admin_of(&server));
            assert_eq!(table.matching_rows("N eq 7"), "0007");
            read_by_index(&admin_of(&server)) == before
        });
        let lost = format!("{} over N (number)", table.name.to_lowercase());
        assert!(told().contains(&lost), "{}", told());
    }
}
