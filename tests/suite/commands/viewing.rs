//! `rowhouse view sql`: tables as programs see them that speak SQL.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;

use super::checking::all;
use super::copying::batch_rows;
use super::*;
use crate::support::postgres::{as_role, execute, migrate, psql, text};

struct Viewed {
    site: Site,
    _server: Process,
    client: Client,
}

impl Viewed {
    fn new(site: Site, more: &[&str]) -> Self {
        let (server, client) = site.served(more);
        Self { site, _server: server, client }
    }

    /// SQLite, PostgreSQL, and PostgreSQL with spread tables.
    fn all() -> [Self; 3] {
        let [sqlite, postgres] = Site::both();
        let spread = &["--table-spread", "16"];
        [Self::new(sqlite, &[]), Self::new(postgres, &[]), Self::new(Site::postgres(), spread)]
    }

    /// What the command prints of the view of a table.
    fn script(&self, table: &Table<'_>, more: &[&str]) -> Value {
        self.site.json(&[&["view", "sql", &table.name, "--account", "acct0001"], more].concat())
    }

    /// Runs the printed statements.
    fn create(&self, table: &Table<'_>, more: &[&str]) -> Value {
        let printed = self.script(table, more);
        run(&self.site, printed["sql"].as_str().expect("statements")).expect("the statements run");
        printed
    }

    /// The name of a table's view in SQL.
    fn name(&self, table: &Table<'_>) -> String {
        match self.site.is_sqlite() {
            true => format!("\"acct0001__{}\"", table.name),
            false => format!("acct0001.\"{}\"", table.name),
        }
    }

    /// What the database's own program prints for a query: rows of values between bars.
    fn printed(&self, query: &str) -> String {
        let output = if self.site.is_sqlite() {
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
        if self.site.is_sqlite() {
            let file = self.site.url.trim_start_matches("sqlite://");
            let db = rusqlite::Connection::open(file).expect("the database opens");
            db.query_row(query, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{query}: {error}"))
        } else {
            text(&self.site.url, &format!("SELECT ({query})::text")).parse().expect("a number")
        }
    }
}

/// Runs statements by the database's own program; fails with what it reports.
fn run(site: &Site, statements: &str) -> Result<(), String> {
    let mut command = match site.url.strip_prefix("sqlite://") {
        Some(file) => {
            let mut command = Command::new("sqlite3");
            command.args(["-bail", file]);
            command
        }
        None => {
            let mut command = psql();
            command.args([&site.url, "--no-psqlrc", "-q", "--single-transaction", "-v", "ON_ERROR_STOP=1"]);
            command
        }
    };
    let mut child =
        command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program of the database");
    std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), statements.as_bytes())
        .expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let reported = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(reported) }
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
        let made = viewed.create(&t, &[]);
        let columns = made["columns"].as_array().expect("columns").iter();
        let kinds = columns.filter_map(|column| Some([column["name"].as_str()?, column["kind"].as_str()?]));
        let expected = "B boolean, D double, G guid, I int32, L int64, Mixed mixed, S text, T dateTime, \
                        Wide int64, X binary, Z text";
        assert_eq!(kinds.map(|kind| kind.join(" ")).collect::<Vec<_>>().join(", "), expected);
        let name = viewed.name(&t);
        let read =
            |columns: &str, rest: &str| viewed.printed(&format!("SELECT {columns} FROM {name} {rest}"));
        let order = "ORDER BY \"PartitionKey\", \"RowKey\"";
        assert_eq!(
            read("\"PartitionKey\", \"RowKey\", \"I\", \"L\", \"Mixed\", \"Wide\"", order),
            "it's|a|-5|9223372036854775807|5|7\nit's|b|null|null|text|5000000000\nother||null|null|true|null"
        );
        let (g, x, b, d, t2) = match viewed.site.is_sqlite() {
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
        if !viewed.site.is_sqlite() {
            let noted = "SELECT col_description($$NAME$$::regclass, attnum) FROM pg_attribute WHERE attname = 'Mixed' \
                         AND attrelid = $$NAME$$::regclass";
            let note = text(&viewed.site.url, &noted.replace("NAME", &name));
            assert!(note.contains("Edm.Boolean in 1, Edm.Int32 in 1, Edm.String in 1"), "{note}");
        }
        assert_eq!((&made["table"], &made["account"]), (&json!(t.name), &json!("acct0001")));
    }
}

/// A name that would end the quotes of a careless statement.
const HOSTILE: &str = "x\\'\" FROM entities; DROP TABLE entities; --";

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
        // What no client can write, and a restored database may hold.
        let hostile = json!({ HOSTILE: 7 }).to_string().replace('\'', "''");
        let insert = format!(
            "INSERT INTO entities (bucket, pk, rk, modified, properties) \
             SELECT bucket, pk, 'hostile', modified, '{hostile}' FROM entities WHERE rk = 'r';"
        );
        run(&viewed.site, &insert).expect("an entity");
        let made = viewed.create(&t, &["--full"]);
        let columns = made["columns"].as_array().expect("columns");
        assert_eq!((columns.len(), &made["leftOut"], &made["full"]), (253, &json!(0), &json!(true)));
        assert!(columns.iter().all(|column| column["name"].as_str().is_some_and(|name| name.len() <= 63)));
        let name = viewed.name(&t);
        let quoted = |column: &Value| {
            let name = column["name"].as_str().expect("a name").replace('"', "\"\"");
            format!("count(\"{name}\")")
        };
        let counts = columns.iter().map(quoted).collect::<Vec<_>>().join(" + ");
        // SQLite finds no property by a name with a quote.
        let found = 253 - i64::from(viewed.site.is_sqlite());
        assert_eq!(viewed.number(&format!("SELECT {counts} FROM {name}")), found);
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
fn a_view_shows_its_table_alone_until_it_is_deleted() {
    for viewed in Viewed::all() {
        let t = viewed.client.table();
        t.seed(with_keys("p", "r", json!({ "N": 1 })));
        viewed.create(&t, &[]);
        let name = viewed.name(&t);
        t.seed(with_keys("p", "s", json!({ "N": 2, "Z": "new" })));
        assert_eq!(viewed.number(&format!("SELECT sum(\"N\") FROM {name}")), 3);
        // An entity of another type does not break what reads the view.
        t.seed(with_keys("p", "t", json!({ "N": "three" })));
        assert_eq!(viewed.number(&format!("SELECT sum(\"N\") FROM {name}")), 3);
        // A column of another type needs a new view.
        let again = viewed.script(&t, &[]);
        let again = again["sql"].as_str().expect("statements");
        let refused = run(&viewed.site, again).expect_err("the view is there");
        assert!(refused.contains("cannot change") || refused.contains("already exists"), "{refused}");
        run(&viewed.site, &format!("DROP VIEW {name};{again}")).expect("a new view");
        assert_eq!(viewed.printed(&format!("SELECT \"N\" FROM {name} ORDER BY \"RowKey\"")), "1\n2\nthree");
        // The view of a deleted table shows nothing, whatever has its name.
        viewed.client.delete_table(&t.name).expect(204);
        assert_eq!(viewed.number(&format!("SELECT count(*) FROM {name}")), 0);
        viewed.client.create_table(&t.name).expect(201);
        t.seed(with_keys("p", "r", json!({ "N": 1 })));
        assert_eq!(viewed.number(&format!("SELECT count(*) FROM {name}")), 0);
        let of = ["--account", "acct0001"];
        viewed.site.fails(&[&["view", "sql", "Nowhere"][..], &of].concat(), &["no such table"]);
    }
}

#[test]
fn a_sample_looks_into_many_partitions_and_a_full_pass_at_everything() {
    for viewed in Viewed::all() {
        let t = viewed.client.table();
        batch_rows(&t, "a", 1100);
        batch_rows(&t, "c", 40);
        t.seed(with_keys("b", "0", json!({ "Second": 0 })));
        t.seed(with_keys("c", "1", json!({ "Hidden": 1 })));
        t.seed(with_keys("d", "0", json!({ "Fourth": 0 })));
        let columns = |made: &Value| -> Vec<String> {
            let columns = made["columns"].as_array().expect("columns");
            columns.iter().filter_map(|column| Some(column["name"].as_str()?.to_owned())).collect()
        };
        let sampled = viewed.script(&t, &[]);
        assert_eq!(columns(&sampled), ["Fourth", "N", "Second"]);
        assert_eq!(sampled["entitiesLookedAt"], 1000 + 20 + 20 + 20 + 1);
        let full = viewed.create(&t, &["--full"]);
        assert_eq!(columns(&full), ["Fourth", "Hidden", "N", "Second"]);
        assert_eq!(full["entitiesLookedAt"], 1143);
        assert_eq!(viewed.number(&format!("SELECT sum(\"Hidden\") FROM {}", viewed.name(&t))), 1);
    }
}

/// A function of a role that sees what the database passes it while the role reads a view.
fn leaking(view: &str) -> String {
    format!(
        "CREATE FUNCTION pg_temp.leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS \
         $$BEGIN RAISE NOTICE 'saw %', $1; RETURN true; END$$; SET enable_indexscan = off; \
         SET enable_indexonlyscan = off; SET enable_bitmapscan = off; \
         SELECT count(*) FROM {view} WHERE pg_temp.leak(\"PartitionKey\")"
    )
}

#[test]
fn a_role_that_may_read_a_view_reads_nothing_else() {
    let viewed = Viewed::new(Site::postgres(), &[]);
    let (t, secret) = (viewed.client.table(), viewed.client.table());
    t.seed(with_keys("open", "r", json!({ "N": 1 })));
    secret.seed(with_keys("secret", "r", json!({ "N": 2 })));
    let (role, url) = (role(), &viewed.site.url);
    execute(url, &format!("CREATE ROLE {role} LOGIN PASSWORD 'p'"));
    let printed = viewed.create(&t, &[]);
    viewed.create(&secret, &[]);
    // The grants of which the printed comment tells.
    let sql = printed["sql"].as_str().expect("statements");
    let line = sql.lines().find(|line| line.contains("GRANT")).expect("a comment").trim_start_matches('-');
    execute(url, &line.replace("TO role;", &format!("TO {role};")));
    t.seed(with_keys("open", "s", json!({ "N": 2 })));
    let (limited, name) = (as_role(url, &role), viewed.name(&t));
    let asked = |script: &str| {
        let output = psql().args([&limited, "--no-psqlrc", "-qAt", "-c", script]).output().expect("psql");
        [output.stdout, output.stderr].map(|said| String::from_utf8(said).expect("text"))
    };
    let [count, said] = asked(&format!("SELECT count(*) FROM {name}"));
    assert_eq!(count, "2\n", "{said}");
    for closed in ["entities", "tables", "accounts", &viewed.name(&secret)] {
        let [count, said] = asked(&format!("SELECT count(*) FROM {closed}"));
        assert!(count.is_empty() && said.contains("permission denied"), "{closed}: {said}");
    }
    // A function of its own sees only the rows of its view.
    let [count, seen] = asked(&leaking(&name));
    assert!(count == "2\n" && seen.contains("saw open") && !seen.contains("secret"), "{count}{seen}");
    execute(url, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn grants_outlive_statements_that_add_columns() {
    let viewed = Viewed::new(Site::postgres(), &[]);
    let t = viewed.client.table();
    t.seed(with_keys("p", "r", json!({ "N": 1, "M": 1 })));
    let (whole, part, url) = (role(), role(), &viewed.site.url);
    viewed.create(&t, &[]);
    let name = viewed.name(&t);
    execute(
        url,
        &format!(
            "CREATE ROLE {whole}; CREATE ROLE {part}; GRANT SELECT ON {name} TO {whole} WITH GRANT OPTION; \
             GRANT SELECT (\"M\") ON {name} TO {part}"
        ),
    );
    t.seed(with_keys("p", "s", json!({ "Z": "text" })));
    viewed.create(&t, &[]);
    assert_eq!(viewed.number(&format!("SELECT count(\"Z\") FROM {name}")), 1);
    let may = |role: &str, what: &str| {
        text(url, &format!("SELECT has_{what}'SELECT')::text").replace("ROLE", role).replace("NAME", &name))
    };
    assert_eq!(may(&whole, "table_privilege('ROLE', $$NAME$$, "), "true");
    assert_eq!(may(&part, "column_privilege('ROLE', $$NAME$$, 'M', "), "true");
    assert_eq!(may(&part, "table_privilege('ROLE', $$NAME$$, "), "false");
    execute(url, &format!("DROP OWNED BY {whole}, {part}; DROP ROLE {whole}, {part}"));
}

/// What `check` reports under a name.
fn found(site: &Site, name: &str) -> Vec<Value> {
    let told: Value = serde_json::from_str(&check_of(site)).expect("findings");
    all(&told).iter().filter(|finding| finding["name"] == name).cloned().collect()
}

#[test]
fn views_of_earlier_versions_are_named_with_what_drops_them() {
    for viewed in Viewed::all() {
        let (t, own) = (viewed.client.table(), viewed.client.table());
        t.seed(with_keys("p", "r", json!({ "N": 1 })));
        viewed.create(&own, &[]);
        assert_eq!(found(&viewed.site, "views"), Vec::<Value>::new());
        let (name, columns) = (viewed.name(&t), "(\"PartitionKey\", \"RowKey\", \"Timestamp\")");
        // As those versions created it.
        let left = match viewed.site.is_sqlite() {
            true => format!(
                "CREATE VIEW {name} {columns} AS SELECT pk, rk, strftime('%Y', modified) FROM entities \
                 WHERE bucket = 65536 AND EXISTS (SELECT 1 FROM tables WHERE table_no = 1);"
            ),
            false => format!(
                "CREATE VIEW {name} {columns} AS SELECT pk, rk, modified FROM entities WHERE bucket IN (65536); \
                 COMMENT ON VIEW {name} IS 'The table {} of the account acct0001. The columns are the properties of \
                 1 entities, some that there were.'",
                t.name
            ),
        };
        run(&viewed.site, &left).expect("a view");
        let warned = found(&viewed.site, "views");
        let [warned] = &warned[..] else { panic!("{warned:?}") };
        assert_eq!(warned["warning"], true);
        assert!(
            warned["found"].as_str().is_some_and(|text| text.contains(&t.name) && !text.contains(&own.name))
        );
        let advice = warned["advice"].as_str().expect("advice");
        let drop = &advice[..=advice.find(';').expect("a statement")];
        assert!(drop.starts_with("DROP VIEW"), "{advice}");
        run(&viewed.site, drop).expect("the statement runs");
        assert_eq!(found(&viewed.site, "views"), Vec::<Value>::new());
        viewed.create(&t, &[]);
        assert_eq!(viewed.number(&format!("SELECT count(*) FROM {name}")), 1);
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
    execute(&viewed.site.url, &format!("CREATE SCHEMA {role}; CREATE VIEW {role}.entities AS SELECT 1 AS n"));
    // psql looks there first.
    viewed.create(&t, &[]);
    assert_eq!(viewed.number(&format!("SELECT \"N\" FROM {}", viewed.name(&t))), 1);
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
