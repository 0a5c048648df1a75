//! What happens to property indexes, and to their builds, when something else happens meanwhile.

use std::process::{Child, Command, Stdio};

use rusqlite::Connection;
use serde_json::json;

use super::copying::batch_rows;
use super::indexing::{HeldTransaction, filled};
use super::*;
use crate::operators::{TOKEN, admin_of, call, done, read_by_index};
use crate::support::http::Wire;
use crate::support::postgres::{Writer, text};
use crate::support::server::account;

/// So many that SQLite needs many slices for an index.
const MANY: i64 = 300_000;
/// How long a server on SQLite goes on before it is stopped again, to see what it is at.
const SLICE: Duration = Duration::from_millis(20);

/// A server whose builds of indexes take as long as the test wants.
struct SlowBuilds {
    site: Site,
    server: Process,
    table: String,
    /// On PostgreSQL, what builds wait for.
    held: Option<HeldTransaction>,
}

impl SlowBuilds {
    fn both() -> [Self; 2] {
        Site::both().map(Self::new)
    }

    fn new(site: Site) -> Self {
        let server = serve(&site);
        let table = fresh_name();
        server.client().create_table(&table).expect(201);
        let Some(file) = file_of(&site) else {
            let client = server.client();
            batch_rows(&Table::new(&client, &table), "p", 10);
            let held = Some(HeldTransaction::begin(&site.url));
            return Self { site, server, table, held };
        };
        drop(server);
        let rows = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?1)
            INSERT INTO entities SELECT (SELECT table_no << 16 FROM tables), 'p', printf('%06d', i), 638000000000000000,
            printf('{\"N\":%d,\"S\":\"%s\"}', i, hex(zeroblob(60))) FROM n";
        let db = Connection::open(&file).expect("the database");
        db.execute(rows, [MANY]).expect("many rows");
        drop(db);
        Self { server: serve(&site), site, table, held: None }
    }

    fn admin(&self) -> Wire {
        admin_of(&self.server)
    }

    /// Asks for an index, and waits until its build is under way. Returns its number.
    fn begin_build(&self) -> i64 {
        let number = self.ask_for_index();
        self.stop_in_build();
        self.server.signal("CONT");
        number
    }

    /// Waits until the build is under way, and stops the process there. On PostgreSQL the build itself
    /// waits.
    fn stop_in_build(&self) {
        let Some(file) = file_of(&self.site) else { return until("the build", || self.is_building()) };
        let db = Connection::open(file).expect("the database");
        db.busy_timeout(Duration::ZERO).expect("a setting");
        until("the build", || {
            self.server.signal("CONT");
            work_for(SLICE);
            self.server.signal("STOP");
            // Of a server at rest, only a build has the lock and no index yet.
            indexes_in(&self.site) == 0 && db.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
        });
    }

    fn ask_for_index(&self) -> i64 {
        let wanted =
            json!({ "account": account(1).name, "table": self.table, "property": "N", "kind": "number" });
        let added = done(&call(&self.admin(), "POST", "/indexes", &wanted.to_string()), 201);
        added["id"].as_i64().expect("a number")
    }

    fn drop_index(&self, number: i64) {
        done(&call(&self.admin(), "DELETE", &format!("/indexes/{number}"), ""), 200);
    }

    /// On PostgreSQL.
    fn is_building(&self) -> bool {
        let incomplete = "SELECT count(*)::text FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid \
                          WHERE relname ~ '^property_index_[0-9]' AND NOT indisvalid";
        text(&self.site.url, incomplete) == "1"
    }

    /// Kills the server, in whose build nothing is complete, and starts another.
    fn killed_and_started(self) -> Self {
        let Self { site, server, table, held } = self;
        let _ = std::fs::remove_dir_all(server.kill());
        assert_eq!(indexes_in(&site), 0, "the build was under way");
        Self { server: serve(&site), site, table, held }
    }

    /// Whether the database has neither an index nor a row about one.
    fn is_clean(&self) -> bool {
        indexes_in(&self.site) == 0 && rows_about_indexes(&self.site) == 0
    }

    fn list(&self) -> Value {
        done(&call(&self.admin(), "GET", "/indexes", ""), 200)
    }

    fn found(&self, filter: &str) -> String {
        found(&self.server, &self.table, filter)
    }

    /// Runs `rowhouse index`, in the background.
    fn index_command(&self, verb: &str, more: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
        command.args(["index", verb, &self.table, "N", "--account", &account(1).name]).args(more);
        command.env_clear().env("DATABASE_URL", &self.site.url);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
    }

    /// Lets the server go on once a command waits to drop the index, and returns how the command has ended.
    fn cancelled_by(&self, command: Child) -> Output {
        until("the cancellation", || self.cancellations() == 1);
        // It looks whether it is cancelled once it has gone on for a while.
        pace(Duration::from_secs(2));
        self.server.signal("CONT");
        let ended = command.wait_with_output().expect("it ends");
        assert_eq!((self.list(), self.cancellations()), (json!([]), 0));
        let log = self.server.log();
        assert!(!log.contains("built an index"), "{log}");
        self.log_is_calm();
        ended
    }

    /// Files by which processes cancel builds.
    fn cancellations(&self) -> usize {
        let names = std::fs::read_dir(&self.site.folder).expect("a folder").flatten();
        names.filter(|file| file.file_name().to_string_lossy().contains(".db.drop-")).count()
    }

    fn log_is_calm(&self) {
        let log = self.server.log();
        assert!(!log.contains("could not be built") && !log.contains("ERROR"), "{log}");
    }
}

fn serve(site: &Site) -> Process {
    serve_with(site, &[])
}

fn serve_with(site: &Site, more: &[&str]) -> Process {
    site.served(&[&["--admin-listen", "127.0.0.1:0", "--admin-token", TOKEN], more].concat()).0
}

fn found(server: &Process, table: &str, filter: &str) -> String {
    let client = server.client();
    // A busy machine reads the whole table in several pages.
    row_keys(&Table::new(&client, table).pages(&format!("$filter={}", escape(filter))).concat())
}

fn file_of(site: &Site) -> Option<PathBuf> {
    site.url.strip_prefix("sqlite://").map(PathBuf::from)
}

/// A number that a query returns, of either database.
fn number(site: &Site, on_sqlite: &str, on_postgres: &str) -> i64 {
    match file_of(site) {
        Some(file) => {
            let db = Connection::open(file).expect("the database");
            db.query_row(on_sqlite, [], |row| row.get(0)).expect("a number")
        }
        None => text(&site.url, &format!("SELECT ({on_postgres})::text")).parse().expect("a number"),
    }
}

/// How many property indexes the database has, complete or not.
fn indexes_in(site: &Site) -> i64 {
    number(
        site,
        "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND name GLOB 'property_index_[0-9]*'",
        "SELECT count(*) FROM pg_class WHERE relkind = 'i' AND relname ~ '^property_index_[0-9]'",
    )
}

fn rows_about_indexes(site: &Site) -> i64 {
    let all = "SELECT count(*) FROM property_indexes";
    number(site, all, all)
}

#[test]
fn a_build_whose_table_is_deleted_leaves_nothing() {
    for mut slow in SlowBuilds::both() {
        slow.begin_build();
        slow.server.client().delete_table(&slow.table).expect(204);
        assert_eq!(slow.list(), json!([]));
        drop(slow.held.take());
        until("the removal", || slow.is_clean());
        slow.log_is_calm();
        slow.server.client().create_table(&slow.table).expect(201);
        assert_eq!((slow.list(), slow.found("N eq 7")), (json!([]), String::new()));
    }
}

/// The server stands still in its build until a command has asked for the end of it, and for longer than a build
/// goes on without a look.
#[test]
fn a_command_cancels_the_build_of_a_server_on_sqlite() {
    let slow = SlowBuilds::new(Site::sqlite());
    let creating = slow.index_command("create", &["--kind", "number", "--yes"]);
    until("the index", || rows_about_indexes(&slow.site) == 1);
    slow.stop_in_build();
    signal(&creating, "INT");
    let ended = slow.cancelled_by(creating);
    failed(&ended, &["interrupted; the index is dropped"]);
    until("the removal", || slow.is_clean());
    slow.ask_for_index();
    slow.stop_in_build();
    let ended = slow.cancelled_by(slow.index_command("drop", &["--json"]));
    assert_eq!(printed(&ended)["removed"], true);
    Table::new(&slow.server.client(), &slow.table).seed(with_keys("q", "r", json!({ "N": 7 })));
    // It may begin again.
    let again = slow.ask_for_index();
    until("the index", || slow.list()[0]["state"] == "ready");
    assert_eq!((slow.list()[0]["id"].as_i64(), indexes_in(&slow.site)), (Some(again), 1));
    assert_eq!(slow.found("N eq 7"), "000007,r");
    assert!(read_by_index(&slow.admin()) > 0.0);
}

/// Whether a session is at a build, asked of PostgreSQL as a role that sees all sessions.
fn has_builder(url: &str) -> bool {
    let sessions = "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() \
                    AND query LIKE 'CREATE INDEX CONCURRENTLY%' AND state = 'active'";
    text(url, sessions) != "0"
}

/// A server that writes with one role and builds with another, whose build waits for a transaction.
fn built_by_another_role(owner: &Site, writer: &Writer, waits_for: &str) -> SlowBuilds {
    let site = Site { folder: fresh_folder(), url: writer.url.clone() };
    let server = serve_with(&site, &["--migrate-url", &owner.url]);
    let table = fresh_name();
    let client = server.client();
    client.create_table(&table).expect(201);
    // Of several pages: the progress counts those before the last.
    let long = "x".repeat(1500);
    let filled = Table::new(&client, &table);
    (0..10).for_each(|row| {
        drop(filled.seed(with_keys("p", &format!("{row:06}"), json!({ "N": row, "S": long }))))
    });
    let held = Some(HeldTransaction::after(&owner.url, waits_for));
    SlowBuilds { site, server, table, held }
}

#[test]
fn a_build_by_the_role_of_the_migrations_is_seen_and_cancelled_by_the_others() {
    let owner = Site::postgres();
    owner.json(&["migrate"]);
    let writer = Writer::of(&owner.url);
    // A snapshot only lets the build read the table first.
    for (waits_for, is_begun) in
        [("INSERT INTO entities VALUES (-1, 'p', 'r', 0, '{}')", false), ("SELECT 1", true)]
    {
        let mut slow = built_by_another_role(&owner, &writer, waits_for);
        let number = slow.begin_build();
        if is_begun {
            until("the progress", || slow.list()[0]["progress"].as_f64().is_some_and(|part| part > 0.0));
        }
        assert!(has_builder(&owner.url));
        slow.drop_index(number);
        until("the end of the build", || !has_builder(&owner.url));
        drop(slow.held.take());
        until("the removal", || slow.is_clean());
        slow.log_is_calm();
    }
}

#[test]
fn the_build_of_a_server_that_was_killed_ends_though_it_waits() {
    let slow = SlowBuilds::new(Site::postgres());
    slow.begin_build();
    let SlowBuilds { site, server, table, held } = slow;
    assert!(has_builder(&site.url));
    let _ = std::fs::remove_dir_all(server.kill());
    until("the end of the build", || !has_builder(&site.url));
    assert_eq!(indexes_in(&site), 1, "an incomplete one is left behind");
    let slow = SlowBuilds { server: serve(&site), site, table, held: None };
    drop(held);
    until("the index", || slow.list()[0]["state"] == "ready");
    assert_eq!(slow.found("N eq 7"), "000007");
}

#[test]
fn a_server_that_was_killed_in_a_build_on_sqlite_builds_the_index_after_its_restart() {
    let mut slow = SlowBuilds::new(Site::sqlite());
    let number = slow.ask_for_index();
    for _ in 0..2 {
        slow.stop_in_build();
        slow = slow.killed_and_started();
        assert_eq!(rows_about_indexes(&slow.site), 1);
    }
    until("the index", || slow.list()[0]["state"] == "ready");
    assert_eq!((slow.list()[0]["id"].as_i64(), indexes_in(&slow.site)), (Some(number), 1));
    assert_eq!(slow.found("N eq 299999"), "299999");
    assert!(read_by_index(&slow.admin()) > 0.0);
    let SlowBuilds { site, server, .. } = slow;
    drop(server);
    let db = Connection::open(file_of(&site).expect("a file")).expect("the database");
    let sound: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("an answer");
    assert_eq!(sound, "ok");
}

#[test]
fn a_backup_has_the_indexes_and_finishes_those_that_were_not_complete() {
    let site = Site::sqlite();
    let server = serve(&site);
    let table = filled(&server.client(), 20).name;
    let made = site.json(&["index", "create", &table, "N", "--account", &account(1).name, "--yes"]);
    assert_eq!(made["state"], "ready");
    drop(server);
    // As if the server had been stopped before it built this one.
    site.execute("INSERT INTO property_indexes SELECT 77, table_no, 'S', 'text', 0, created FROM tables");
    site.json(&["backup", "copy.db"]);
    let url = format!("sqlite://{}", site.folder.join("copy.db").display());
    let restored = Site { folder: fresh_folder(), url };
    assert_eq!((indexes_in(&restored), rows_about_indexes(&restored)), (1, 2));
    let server = serve(&restored);
    let admin = admin_of(&server);
    assert_eq!(found(&server, &table, "N eq 7"), "0007");
    let by_first = read_by_index(&admin);
    assert!(by_first > 0.0, "it is used at once");
    until("the other", || {
        let listed = done(&call(&admin, "GET", "/indexes", ""), 200);
        (0..2).all(|at: usize| listed[at]["state"] == "ready")
    });
    assert_eq!(found(&server, &table, "S eq 's7'"), "0007");
    assert!(read_by_index(&admin) > by_first);
}

#[test]
fn the_secondary_uses_the_indexes_of_the_replica() {
    let (here, there) = (Site::postgres(), Site::postgres());
    let behind = serve(&there);
    let front = serve_with(&here, &["--secondary-database-url", &there.url]);
    let (primary, replica) = (front.client(), behind.client());
    let secondary = primary.secondary();
    let (indexed_there, indexed_here) = (fresh_name(), fresh_name());
    for name in [&indexed_there, &indexed_here] {
        for client in [&primary, &replica] {
            client.create_table(name).expect(201);
            batch_rows(&Table::new(client, name), "p", 20);
        }
    }
    for (site, name) in [(&there, &indexed_there), (&here, &indexed_here)] {
        site.json(&["index", "create", name, "N", "--account", &account(1).name]);
    }
    // Whether a query of a table reads an index.
    let is_narrowed = |client: &Client, name: &str| {
        let before = read_by_index(&admin_of(&front));
        assert_eq!(Table::new(client, name).matching_rows("N eq 7"), "000007");
        read_by_index(&admin_of(&front)) > before
    };
    // Each has the index of the one table, and not of the other.
    for (client, with, without) in
        [(&secondary, &indexed_there, &indexed_here), (&primary, &indexed_here, &indexed_there)]
    {
        until("the index is used", || is_narrowed(client, with));
        assert!(!is_narrowed(client, without));
    }
    // It is dropped there.
    there.json(&["index", "drop", &indexed_there, "N", "--account", &account(1).name]);
    until("the index is not used", || !is_narrowed(&secondary, &indexed_there));
}
