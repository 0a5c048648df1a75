//! `rowhouse view`: tables as programs see them that speak SQL.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::*;
use crate::commands::indexing::HeldTransaction;
use crate::operators::TOKEN;
use crate::operators::accounts::{call, done};
use crate::operators::admin_of;
use crate::support::postgres::{as_role, execute, migrate, psql, text};
use crate::support::server::account;

struct Viewed {
    site: Site,
    server: Process,
    client: Client,
}

impl Viewed {
    fn new(site: Site, more: &[&str]) -> Self {
        let accounts = ["--accounts", &account(1).setting()];
        let admin = ["--admin-listen", "127.0.0.1:0", "--admin-token", TOKEN];
        let server = site.server(&[&accounts[..], &admin, more].concat());
        let client = Client::path_style(server.address(), account(1));
        Self { site, server, client }
    }

    /// SQLite, PostgreSQL, and PostgreSQL with spread tables.
    fn all() -> [Self; 3] {
        let [sqlite, postgres] = Site::both();
        let spread = &["--table-spread", "16"];
        [Self::new(sqlite, &[]), Self::new(postgres, &[]), Self::new(Site::postgres(), spread)]
    }

    fn is_sqlite(&self) -> bool {
        self.site.url.starts_with("sqlite")
    }

    fn view(&self, arguments: &[&str]) -> Value {
        self.site.json(&[&["view"], arguments, &["--account", "acct0001"]].concat())
    }

    /// The name of a table's view in SQL.
    fn name(&self, table: &Table<'_>) -> String {
        match self.is_sqlite() {
            true => format!("\"acct0001__{}\"", table.name),
            false => format!("acct0001.\"{}\"", table.name),
        }
    }

    /// What the database's own program prints for a query: rows of values between bars.
    fn printed(&self, query: &str) -> String {
        let output = if self.is_sqlite() {
            let file = self.site.url.trim_start_matches("sqlite://");
            Command::new("sqlite3").args(["-readonly", "-nullvalue", "null", file, query]).output()
        } else {
            let settings = ["--no-psqlrc", "-At", "-P", "null=null", "-v", "ON_ERROR_STOP=1", "-c"];
            let utc = format!("SET TIME ZONE 'UTC'; {query}");
            psql().arg(&self.site.url).args(settings).arg(utc).output()
        };
        let output = output.unwrap_or_else(|error| panic!("the program of the database: {error}"));
        assert!(output.status.success(), "{query}: {output:?}");
        let printed = String::from_utf8(output.stdout).expect("text");
        printed.trim_start_matches("SET\n").trim_end_matches('\n').to_owned()
    }

    /// The same, read in this process.
    fn number(&self, query: &str) -> i64 {
        if self.is_sqlite() {
            let file = self.site.url.trim_start_matches("sqlite://");
            let db = rusqlite::Connection::open(file).expect("the database opens");
            db.query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{query}: {error}"))
        } else {
            text(&self.site.url, &format!("SELECT ({query})::text")).parse().expect("a number")
        }
    }
}

fn role() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    format!("viewer_{}_{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn entities_are_rows_with_typed_columns() {
    for viewed in Viewed::all() {
        let t = viewed.client.table();
        t.seed(json!({
            "PartitionKey": "it's", "RowKey": "a",
            "S": "x'\"\u{1}é", "B": true, "I": -5, "D@odata.type": "Edm.Double", "D": 1.5,
            "L@odata.type": "Edm.Int64", "L": "9223372036854775807",
            "T@odata.type": "Edm.DateTime", "T": "2020-01-02T03:04:05.1234567Z",
            "G@odata.type": "Edm.Guid", "G": "0f8fad5b-d9cb-469f-a165-70867728950e",
            "X@odata.type": "Edm.Binary", "X": "AAEC/w==", "Mixed": 5, "Wide": 7, "Z": "a\u{0}\u{1}b",
        }));
        t.seed(json!({
            "PartitionKey": "it's", "RowKey": "b", "D@odata.type": "Edm.Double", "D": "Infinity",
            "Mixed": "text", "Wide@odata.type": "Edm.Int64", "Wide": "5000000000", "B": false,
            "T@odata.type": "Edm.DateTime", "T": "9999-12-31T23:59:59.9999999Z",
        }));
        t.seed(json!({
            "PartitionKey": "other", "RowKey": "", "D@odata.type": "Edm.Double", "D": "NaN", "Mixed": true,
        }));
        let made = viewed.view(&["create", &t.name]);
        let kinds: Vec<(&str, &str)> = made["columns"]
            .as_array()
            .expect("columns")
            .iter()
            .filter_map(|column| Some((column["name"].as_str()?, column["kind"].as_str()?)))
            .collect();
        let expected = [
            ("B", "boolean"),
            ("D", "double"),
            ("G", "guid"),
            ("I", "int32"),
            ("L", "int64"),
            ("Mixed", "mixed"),
            ("S", "text"),
            ("T", "dateTime"),
            ("Wide", "int64"),
            ("X", "binary"),
            ("Z", "text"),
        ];
        assert_eq!(kinds, expected);
        let name = viewed.name(&t);
        let read =
            |columns: &str, rest: &str| viewed.printed(&format!("SELECT {columns} FROM {name} {rest}"));
        let order = "ORDER BY \"PartitionKey\", \"RowKey\"";
        assert_eq!(
            read("\"PartitionKey\", \"RowKey\", \"I\", \"L\", \"Mixed\", \"Wide\"", order),
            "it's|a|-5|9223372036854775807|5|7\nit's|b|null|null|text|5000000000\nother||null|null|true|null"
        );
        let (g, x, b, d, t2) = match viewed.is_sqlite() {
            true => ("", "AAEC/w==", "1", "1.5\nInf\nnull", "2020-01-02T03:04:05.1234567Z"),
            false => ("", "\\x000102ff", "t", "1.5\nInfinity\nNaN", "2020-01-02 03:04:05.123456+00"),
        };
        assert_eq!(
            read("\"B\", \"G\", \"X\", \"T\", \"S\"", "WHERE \"I\" < 0"),
            format!("{b}|0f8fad5b-d9cb-469f-a165-70867728950e{g}|{x}|{t2}|x'\"\u{1}é")
        );
        assert_eq!(read("\"Z\"", "WHERE \"I\" < 0"), "a\u{2400}\u{1}b");
        assert_eq!(read("\"D\"", order), d);
        // Columns have types: sums are sums, and dates compare as dates.
        assert_eq!(read("sum(\"Wide\")", ""), "5000000007");
        assert_eq!(viewed.number(&format!("SELECT count(*) FROM {name} WHERE \"L\" > 5")), 1);
        let stamp = t.entity("it's", "a")["Timestamp"].as_str().expect("a timestamp").to_owned();
        let second = read("\"Timestamp\"", "WHERE \"I\" < 0").replace(' ', "T");
        assert_eq!(second[..19], stamp[..19]);
        if !viewed.is_sqlite() {
            let noted = "SELECT col_description($$NAME$$::regclass, attnum) FROM pg_attribute WHERE attname = 'Mixed' \
                         AND attrelid = $$NAME$$::regclass";
            let note = text(&viewed.site.url, &noted.replace("NAME", &name));
            assert!(note.contains("Edm.Boolean in 1, Edm.Int32 in 1, Edm.String in 1"), "{note}");
        }
        let listed = viewed.view(&["list"]);
        assert_eq!((&listed[0]["table"], &listed[0]["columns"]), (&json!(t.name), &made["columns"]));
    }
}

#[test]
fn names_of_properties_cannot_do_harm() {
    for viewed in Viewed::all() {
        let t = viewed.client.table();
        let long = "ü".repeat(120);
        let mut entity = with_keys("p", "r", json!({}));
        for n in 0..100 {
            entity[format!("{long}{n}")] = n.into();
            entity[format!("P{n}")] = n.into();
        }
        for name in ["rowkey", "select", "a", "A", "_", "from", "timestamp", "bucket", "pk"] {
            entity[name] = name.into();
        }
        for n in 0..43 {
            entity[format!("Q{n}")] = n.into();
        }
        t.seed(entity);
        let made = viewed.view(&["create", &t.name, "--full"]);
        let columns = made["columns"].as_array().expect("columns");
        assert_eq!((columns.len(), &made["leftOut"], &made["full"]), (252, &json!(0), &json!(true)));
        assert!(columns.iter().all(|column| column["name"].as_str().is_some_and(|name| name.len() <= 63)));
        let name = viewed.name(&t);
        for column in columns {
            let value = viewed.number(&format!(
                "SELECT count(*) FROM {name} WHERE \"{}\" IS NOT NULL",
                column["name"].as_str().expect("a name")
            ));
            assert_eq!(value, 1, "{column}");
        }
        let renamed = |property: &str| {
            columns.iter().find(|column| column["property"] == property).expect("a column")["name"].clone()
        };
        assert_eq!(
            (renamed("A"), renamed("a"), renamed("rowkey")),
            (json!("A"), json!("a_2"), json!("rowkey_2"))
        );
    }
}

#[test]
fn a_view_gets_new_columns_and_goes_with_its_table() {
    for viewed in Viewed::all() {
        let (t, other) = (viewed.client.table(), viewed.client.table());
        t.seed(with_keys("p", "r", json!({ "N": 1 })));
        other.seed(with_keys("p", "r", json!({ "N": 1 })));
        viewed.view(&["create", &t.name]);
        viewed.view(&["create", &other.name]);
        let name = viewed.name(&t);
        if !viewed.is_sqlite() {
            execute(&viewed.site.url, &format!("CREATE VIEW depends AS SELECT \"N\" FROM {name}"));
        }
        // What was written since is there, and its columns come with a refresh.
        t.seed(with_keys("p", "s", json!({ "N": 2, "A": "new" })));
        assert_eq!(viewed.number(&format!("SELECT sum(\"N\") FROM {name}")), 3);
        let refreshed = viewed.view(&["refresh"]);
        assert_eq!(refreshed.as_array().map(Vec::len), Some(2));
        assert_eq!(viewed.printed(&format!("SELECT \"A\" FROM {name} WHERE \"N\" = 2")), "new");
        // An entity of another type does not break what reads the view.
        t.seed(with_keys("p", "t", json!({ "N": "three" })));
        assert_eq!(viewed.number(&format!("SELECT sum(\"N\") FROM {name}")), 3);
        if viewed.is_sqlite() {
            viewed.view(&["refresh", &t.name]);
        } else {
            let refused = ["view", "refresh", &t.name, "--account", "acct0001"];
            viewed.site.fails(&refused, &["the database says", "depend"]);
            assert_eq!(viewed.number(&format!("SELECT sum(\"N\") FROM {name}")), 3);
            execute(&viewed.site.url, "DROP VIEW depends");
            viewed.view(&["refresh", &t.name]);
        }
        assert_eq!(viewed.printed(&format!("SELECT \"N\" FROM {name} ORDER BY \"RowKey\"")), "1\n2\nthree");
        // With the table, the view is empty at once and gone soon.
        viewed.client.delete_table(&t.name).expect(204);
        assert_eq!(viewed.view(&["list"]).as_array().map(Vec::len), Some(1));
        let exists = match viewed.is_sqlite() {
            true => format!("SELECT count(*) FROM sqlite_schema WHERE name = 'acct0001__{}'", t.name),
            false => format!("SELECT count(*) FROM pg_views WHERE viewname = '{}'", t.name),
        };
        if viewed.number(&exists) == 1 {
            assert_eq!(viewed.number(&format!("SELECT count(*) FROM {name}")), 0);
        }
        soon("the end of the view", || viewed.number(&exists) == 0);
        viewed.client.create_table(&t.name).expect(201);
        let again = ["view", "refresh", &t.name, "--account", "acct0001"];
        viewed.site.fails(&again, &[&t.name, "view"]);
        viewed.view(&["create", &t.name]);
        assert_eq!(viewed.number(&format!("SELECT count(*) FROM {name}")), 0);
        viewed.view(&["drop", &t.name]);
        viewed.view(&["drop", &other.name]);
        assert_eq!(viewed.number(&exists), 0);
        assert_eq!(viewed.view(&["list"]), json!([]));
    }
}

#[test]
fn a_sample_looks_into_many_partitions_and_a_full_pass_at_everything() {
    for viewed in Viewed::all() {
        let t = viewed.client.table();
        let rows = |partition: &str, count: usize, property: &str| {
            for start in (0..count).step_by(100) {
                let mut batch = Batch::new();
                for row in start..count.min(start + 100) {
                    batch = batch
                        .insert(&t, &with_keys(partition, &format!("{row:05}"), json!({ property: row })));
                }
                batch.commit(&viewed.client);
            }
        };
        rows("a", 1100, "First");
        rows("b", 1, "Second");
        rows("c", 40, "Third");
        t.seed(with_keys("c", "1", json!({ "Hidden": 1 })));
        rows("d", 1, "Fourth");
        let columns = |made: &Value| -> Vec<String> {
            let columns = made["columns"].as_array().expect("columns");
            columns.iter().filter_map(|column| Some(column["name"].as_str()?.to_owned())).collect()
        };
        let sampled = viewed.view(&["create", &t.name]);
        assert_eq!(columns(&sampled), ["First", "Fourth", "Second", "Third"]);
        assert_eq!(sampled["entitiesLookedAt"], 1000 + 20 + 20 + 20 + 1);
        let full = viewed.view(&["refresh", &t.name, "--full"]);
        assert_eq!(columns(&full[0]), ["First", "Fourth", "Second", "Third", "Hidden"]);
        assert_eq!(full[0]["entitiesLookedAt"], 1143);
        assert_eq!(
            viewed.number(&format!("SELECT \"Hidden\" FROM {} WHERE \"Hidden\" = 1", viewed.name(&t))),
            1
        );
    }
}

#[test]
fn a_role_that_may_read_a_view_reads_nothing_else() {
    let viewed = Viewed::new(Site::postgres(), &[]);
    let (t, secret) = (viewed.client.table(), viewed.client.table());
    t.seed(with_keys("p", "r", json!({ "N": 1 })));
    secret.seed(with_keys("p", "r", json!({ "N": 2 })));
    let role = role();
    let url = &viewed.site.url;
    execute(url, &format!("CREATE ROLE {role} LOGIN PASSWORD 'p'"));
    viewed.view(&["create", &t.name, "--grant", &role]);
    viewed.view(&["create", &secret.name, "--schema", "hidden"]);
    // A refresh that makes the view anew keeps who may read it.
    t.seed(with_keys("p", "s", json!({ "N": "text" })));
    assert_eq!(viewed.view(&["refresh", &t.name])[0]["grants"], json!([role]));
    let limited = as_role(url, &role);
    let count = |from: &str| {
        let query = format!("SELECT count(*) FROM {from}");
        psql().args([&limited, "--no-psqlrc", "-At", "-c", &query]).output().expect("psql")
    };
    let read = count(&viewed.name(&t));
    assert_eq!(String::from_utf8_lossy(&read.stdout), "2\n", "{read:?}");
    for closed in ["entities", "tables", "sql_views", "accounts", &format!("hidden.\"{}\"", secret.name)] {
        let refused = count(closed);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("permission denied"), "{closed}: {refused:?}");
    }
    let nobody = ["view", "create", &t.name, "--account", "acct0001", "--grant", "no such role"];
    viewed.site.fails(&nobody, &["the database says", "no such role"]);
    let taken = viewed.client.create_table("entities");
    taken.expect(201);
    viewed.site.fails(
        &["view", "create", "entities", "--account", "acct0001", "--schema", "public"],
        &["the database says", "entities"],
    );
    assert_eq!(viewed.client.get("/Tables").expect(200).status, 200);
    execute(url, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    // A role that is gone does not keep the view from being refreshed.
    assert_eq!(viewed.view(&["refresh", &t.name])[0]["grants"], json!([]));
}

#[test]
fn the_admin_listener_makes_views_too() {
    for viewed in Viewed::all() {
        let t = viewed.client.table();
        t.seed(with_keys("p", "r", json!({ "N": 1 })));
        let admin = admin_of(&viewed.server);
        let path = format!("/accounts/acct0001/tables/{}/view", t.name);
        let made = done(&call(&admin, "PUT", &path, ""), 200);
        assert_eq!((&made["columns"][0]["kind"], &made["full"]), (&json!("int32"), &json!(false)));
        assert_eq!(viewed.number(&format!("SELECT \"N\" FROM {}", viewed.name(&t))), 1);
        let listed = done(&call(&admin, "GET", "/views?account=acct0001", ""), 200);
        assert_eq!(listed[0]["view"], made["view"]);
        let code = |verb: &str, path: &str, body: &str, status| {
            done(&call(&admin, verb, path, body), status)["error"]["code"].clone()
        };
        let nowhere = "/accounts/acct0001/tables/Nowhere/view";
        assert_eq!(code("PUT", nowhere, "", 404), "TableNotFound");
        assert_eq!(code("PUT", "/accounts/nobody/tables/Nowhere/view", "", 404), "AccountNotFound");
        assert_eq!(code("PUT", &path, r#"{"grants":[]}"#, 400), "BadRequest");
        let (status, refused) =
            if viewed.is_sqlite() { (400, "BadRequest") } else { (409, "DefinitionRefused") };
        assert_eq!(code("PUT", &path, r#"{"grant":["no such role"]}"#, status), refused);
        done(&call(&admin, "DELETE", &path, ""), 200);
        assert_eq!(code("DELETE", &path, "", 404), "NotSet");
    }
}

/// Prints what a role reads of a view, and what a function of its own sees meanwhile.
fn leaked(url: &str, view: &str) -> (String, String) {
    let script = format!(
        "CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS \
         $$BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END$$; SET enable_indexscan = off; \
         SET enable_indexonlyscan = off; SET enable_bitmapscan = off; \
         SELECT count(*) FROM {view} WHERE pg_temp.leak(\"PartitionKey\")"
    );
    let output = psql().args([url, "--no-psqlrc", "-qAt", "-c", &script]).output().expect("psql");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_function_of_a_role_sees_only_the_rows_of_its_view() {
    let viewed = Viewed::new(Site::postgres(), &[]);
    let (t, secret) = (viewed.client.table(), viewed.client.table());
    t.seed(with_keys("open", "r", json!({ "N": 1 })));
    secret.seed(with_keys("secret", "r", json!({ "N": 2 })));
    let (role, url) = (role(), &viewed.site.url);
    execute(url, &format!("CREATE ROLE {role} LOGIN PASSWORD 'p'"));
    viewed.view(&["create", &t.name, "--grant", &role]);
    let (limited, name) = (as_role(url, &role), viewed.name(&t));
    let (count, seen) = leaked(&limited, &name);
    assert!(count == "1\n" && seen.contains("saw open") && !seen.contains("secret"), "{count}{seen}");
    // A view of an older version has no barrier until a server mends it.
    execute(url, &format!("ALTER VIEW {name} RESET (security_barrier)"));
    let barred = "SELECT (reloptions IS NOT NULL)::text FROM pg_class WHERE oid = $$NAME$$::regclass";
    soon("the view is mended", || text(url, &barred.replace("NAME", &name)) == "true");
    let (count, seen) = leaked(&limited, &name);
    assert!(count == "1\n" && seen.contains("saw open") && !seen.contains("secret"), "{count}{seen}");
    execute(url, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn grants_that_were_made_by_hand_outlive_a_view_that_is_made_anew() {
    let viewed = Viewed::new(Site::postgres(), &[]);
    let t = viewed.client.table();
    t.seed(with_keys("p", "r", json!({ "N": 1, "M": 1 })));
    let (whole, part, url) = (role(), role(), &viewed.site.url);
    viewed.view(&["create", &t.name]);
    let name = viewed.name(&t);
    execute(
        url,
        &format!(
            "CREATE ROLE {whole}; CREATE ROLE {part}; GRANT SELECT ON {name} TO {whole} WITH GRANT OPTION; \
             GRANT SELECT (\"M\") ON {name} TO {part}"
        ),
    );
    // The column of another type makes the view anew.
    t.seed(with_keys("p", "s", json!({ "N": "text" })));
    viewed.view(&["refresh", &t.name]);
    let may = |role: &str, what: &str| {
        text(url, &format!("SELECT has_{what}'SELECT')::text").replace("ROLE", role).replace("NAME", &name))
    };
    assert_eq!(may(&whole, "table_privilege('ROLE', $$NAME$$, "), "true");
    assert_eq!(may(&part, "column_privilege('ROLE', $$NAME$$, 'M', "), "true");
    assert_eq!(may(&part, "table_privilege('ROLE', $$NAME$$, "), "false");
    execute(url, &format!("DROP OWNED BY {whole}, {part}; DROP ROLE {whole}, {part}"));
}

#[test]
fn a_view_that_somebody_else_has_made_since_is_left_alone() {
    for viewed in Viewed::all() {
        let t = viewed.client.table();
        t.seed(with_keys("p", "r", json!({ "N": 1 })));
        viewed.view(&["create", &t.name]);
        let name = viewed.name(&t);
        let own = format!("DROP VIEW {name}; CREATE VIEW {name} AS SELECT 77 AS own");
        if let Some(file) = viewed.site.url.strip_prefix("sqlite://") {
            rusqlite::Connection::open(file).and_then(|db| db.execute_batch(&own)).expect("a view");
        } else {
            execute(&viewed.site.url, &own);
        }
        let place = [t.name.as_str(), "--account", "acct0001"];
        for verb in ["refresh", "create"] {
            viewed.site.fails(&[&["view", verb][..], &place].concat(), &["already exists"]);
        }
        viewed.view(&["drop", &t.name]);
        assert_eq!(viewed.number(&format!("SELECT own FROM {name}")), 77);
        assert_eq!(viewed.view(&["list"]), json!([]));
    }
}

/// A report that has read the view of a table that is then deleted.
#[test]
fn a_view_in_use_stops_neither_expiry_nor_other_views() {
    let viewed = Viewed::new(Site::postgres(), &[]);
    let (t, other, expiring) = (viewed.client.table(), viewed.client.table(), viewed.client.table());
    for table in [&t, &other, &expiring] {
        table.seed(with_keys("p", "r", json!({ "N": 1 })));
    }
    viewed.view(&["create", &t.name]);
    viewed.view(&["create", &other.name]);
    let held = HeldTransaction::after(&viewed.site.url, &format!("SELECT count(*) FROM {}", viewed.name(&t)));
    viewed.client.delete_table(&t.name).expect(204);
    viewed.client.delete_table(&other.name).expect(204);
    viewed.site.json(&[
        "expire",
        "set",
        &expiring.name,
        "--account",
        "acct0001",
        "--after",
        "1s",
        "--every",
        "1s",
    ]);
    soon("the entity expires", || expiring.count() == 0);
    let views = |table: &Table<'_>| {
        viewed.number(&format!("SELECT count(*) FROM pg_views WHERE viewname = '{}'", table.name))
    };
    soon("the other view goes", || views(&other) == 0);
    soon("the view and its reader are named", || {
        let log = viewed.server.log();
        log.contains(&t.name) && log.contains("in use by the session")
    });
    assert_eq!(views(&t), 1);
    drop(held);
    let patience = Instant::now() + Duration::from_secs(180);
    while views(&t) == 1 {
        assert!(Instant::now() < patience, "the view stays: {}", viewed.server.log());
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A role that owns its database, and searches a schema of its own name first, as PostgreSQL has it.
fn owned() -> (Site, String) {
    let mut site = Site::postgres();
    let role = role();
    let owner = format!(
        "CREATE ROLE {role}; ALTER SCHEMA public OWNER TO {role}; \
         DO $$BEGIN EXECUTE format('ALTER DATABASE %I OWNER TO {role}', current_database()); END$$"
    );
    execute(&site.url, &owner);
    site.url = as_role(&site.url, &role);
    (site, role)
}

#[test]
fn a_schema_that_comes_first_on_the_search_path_hides_nothing() {
    let (site, role) = owned();
    let viewed = Viewed::new(site, &[]);
    let t = viewed.client.table();
    t.seed(with_keys("p", "r", json!({ "N": 1 })));
    let create = ["view", "create", &t.name, "--account", "acct0001", "--schema"];
    viewed.site.fails(&[&create[..], &[&role]].concat(), &[&role, "before public", "search_path"]);
    let admin = admin_of(&viewed.server);
    let path = format!("/accounts/acct0001/tables/{}/view", t.name);
    let refused = done(&call(&admin, "PUT", &path, &json!({ "schema": role }).to_string()), 409);
    assert_eq!(refused["error"]["code"], "DefinitionRefused", "{refused}");
    viewed.view(&["create", &t.name, "--schema", "reports"]);
    // Somebody makes the schema all the same.
    execute(&viewed.site.url, &format!("CREATE SCHEMA {role}"));
    assert_eq!(viewed.site.json(&["index", "list"]), json!([]));
    viewed.site.json(&["migrate"]);
    assert_eq!(viewed.number("SELECT count(*) FROM pg_class WHERE relname = '_sqlx_migrations'"), 1);
    let again = Viewed::new(Site { folder: fresh_folder(), url: viewed.site.url.clone() }, &[]);
    assert_eq!(Table::new(&again.client, &t.name).entity("p", "r")["N"], 1);
    Table::new(&again.client, &t.name).seed(with_keys("p", "s", json!({ "N": 2 })));
    assert_eq!(t.entity("p", "s")["N"], 2);
    let told = check_of(&again.site);
    assert!(!told.contains("another schema"), "{told}");
}

fn check_of(site: &Site) -> String {
    String::from_utf8_lossy(&site.run(&["check", "--json"]).stdout).into_owned()
}

#[test]
fn a_second_set_of_tables_is_told_and_used_only_if_it_is_the_only_one_with_data() {
    let (site, role) = owned();
    let viewed = Viewed::new(site, &[]);
    let t = viewed.client.table();
    t.seed(with_keys("p", "r", json!({ "N": 1 })));
    // What a server of an older version has made when a schema came first.
    execute(&viewed.site.url, &format!("CREATE SCHEMA {role}"));
    let second = format!("{}%20-c%20search_path%3D{role}", viewed.site.url);
    migrate(&second);
    assert_eq!(viewed.number("SELECT count(*) FROM pg_class WHERE relname = '_sqlx_migrations'"), 2);
    let told = check_of(&viewed.site);
    assert!(told.contains("another schema too") && told.contains(&role), "{told}");
    let site = || Site { folder: fresh_folder(), url: viewed.site.url.clone() };
    let again = Viewed::new(site(), &[]);
    assert_eq!(Table::new(&again.client, &t.name).entity("p", "r")["N"], 1);
    let other = Viewed::new(Site { folder: fresh_folder(), url: second }, &[]);
    other.client.table().seed(with_keys("p", "r", json!({ "N": 2 })));
    site().fails(&["index", "list"], &[&role, "public", "search_path"]);
    let told = check_of(&viewed.site);
    assert!(told.contains("ALTER ROLE"), "{told}");
}
