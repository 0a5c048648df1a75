//! `rowhouse copy`, `verify`, `count` and `delete-where`.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::faulty_proxy::FaultyProxy;
use super::*;
use crate::promises::chance::Chance;
use crate::support::server::account;

/// A site with a server.
pub struct Served {
    pub site: Site,
    pub server: Process,
    pub account: Account,
}

impl Served {
    pub fn new(site: Site) -> Self {
        let account = account(1);
        let server = site.server(&["--accounts", &account.setting()]);
        Self { site, server, account }
    }

    pub fn client(&self) -> Client {
        Client::path_style(self.server.address(), self.account.clone())
    }

    pub fn connection_string(&self) -> String {
        connection_string(self.server.address(), &self.account)
    }

    /// Ends the server, so that its file can be written directly.
    fn close(self) -> (Site, Account) {
        drop(self.server);
        (self.site, self.account)
    }
}

/// A server whose table has rows in one partition, the table's name and the connection string of the server.
pub fn filled(site: Site, rows: usize) -> (Served, String, String) {
    let served = Served::new(site);
    let client = served.client();
    let table = client.table();
    batch_rows(&table, "a", rows);
    let (name, place) = (table.name.clone(), served.connection_string());
    (served, name, place)
}

pub fn connection_string(address: &str, account: &Account) -> String {
    let (name, key) = (&account.name, &account.keys[0]);
    format!("AccountName={name};AccountKey={key};TableEndpoint=http://{address}/{name}")
}

/// Entities with every type and awkward keys.
pub fn seed(table: &Table<'_>) {
    table.seed(json!({
        "PartitionKey": "it's", "RowKey": "a b+c%20&d=é'😀",
        "S": "x\"\\\u{1}\u{0}y", "Empty": "", "B": true, "I": -5, "D": 3.0, "D2": 1.5e-7, "D3": 1e300,
        "NaN@odata.type": "Edm.Double", "NaN": "NaN", "Inf@odata.type": "Edm.Double", "Inf": "-Infinity",
        "Zero@odata.type": "Edm.Double", "Zero": "-0.0",
        "L@odata.type": "Edm.Int64", "L": "9223372036854775807",
        "T@odata.type": "Edm.DateTime", "T": "2020-01-02T03:04:05.1234567Z",
        "G@odata.type": "Edm.Guid", "G": "0f8fad5b-d9cb-469f-a165-70867728950e",
        "X@odata.type": "Edm.Binary", "X": "AAEC/w==", "zz": 1, "aa": 2, "\u{4e2d}": "\u{6587}",
    }));
    table.seed(json!({ "PartitionKey": "", "RowKey": "", "Name": "both keys are empty" }));
    for key in ["\u{ffee}", "😀", "z", "\u{e000}"] {
        table.seed(with_keys(key, "r", json!({})));
        table.seed(with_keys("keys", key, json!({})));
    }
    batch_rows(table, "many", 2500);
    for partition in 0..30 {
        table.seed(with_keys(&format!("p{partition:03}"), "only", json!({ "N": partition })));
    }
}

pub fn batch_rows(table: &Table<'_>, partition: &str, rows: usize) {
    table.seed_many((0..rows).map(|row| with_keys(partition, &format!("{row:06}"), json!({ "N": row }))));
}

#[track_caller]
pub fn copy(site: &Site, from: &str, to: &str, more: &[&str]) -> Value {
    // Progress goes to standard error, if it takes that long.
    let output = site.ends(&[&["copy", from, to, "--json"], more].concat(), 0, &[]);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[track_caller]
pub fn equal(site: &Site, from: &str, to: &str, more: &[&str]) -> Value {
    // Progress goes to standard error, if it takes that long.
    let output = site.ends(&[&["verify", from, to, "--recheck-delay", "0", "--json"], more].concat(), 0, &[]);
    let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["equal"], true);
    found
}

pub const CORS_PATH: &str = "/?restype=service&comp=properties";
const CORS: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><StorageServiceProperties><Cors><CorsRule>\
    <AllowedOrigins>http://a.example</AllowedOrigins><AllowedMethods>GET</AllowedMethods>\
    <AllowedHeaders>x</AllowedHeaders><ExposedHeaders>y</ExposedHeaders><MaxAgeInSeconds>5</MaxAgeInSeconds>\
    </CorsRule></Cors></StorageServiceProperties>";
const ACL: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers><SignedIdentifier><Id>read</Id>\
    <AccessPolicy><Start>2020-01-01T00:00:00.0000000Z</Start><Expiry>2040-01-01T00:00:00.0000000Z</Expiry>\
    <Permission>r</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>";

pub fn acl_path(table: &str) -> String {
    format!("/{table}?comp=acl")
}

/// Gives the table a policy, and the account a CORS rule.
pub fn put_settings(client: &Client, table: &str) {
    put(client, &acl_path(table), ACL);
    put(client, CORS_PATH, CORS);
}

pub fn put(client: &Client, path: &str, body: &str) {
    let status = if path.contains("comp=acl") { 204 } else { 202 };
    let request = client.request("PUT", path).header("Accept", "application/xml").body(body);
    request.unchecked().send().expect(status);
}

/// The policies or rules at a path, as the server prints them.
pub fn settings(client: &Client, path: &str) -> String {
    let request = client.request("GET", path).header("Accept", "application/xml");
    request.unchecked().send().expect(200).text().to_owned()
}

#[test]
fn copies_are_equal_in_every_direction() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    seed(&table);
    client.create_table("Emptytable").expect(201);
    put_settings(&client, &table.name);
    let from = source.connection_string();
    let dump = format!("dump:{}", source.site.folder.join("dump").display());
    let here = &source.site;
    let done = copy(here, &from, &dump, &[]);
    assert_eq!((&done["copied"], &done["rejected"]), (&json!(2540), &json!(0)), "{done}");
    equal(here, &from, &dump, &["--timestamps"]);
    let target = Site::postgres();
    let name = account(1).name;
    let to = format!("{}#{name}", target.url);
    let done = copy(here, &dump, &to, &[]);
    assert_eq!(done["copied"], 2540, "{done}");
    equal(here, &dump, &to, &["--timestamps"]);
    // On to SQLite by the direct path, with all settings; what is served there is what was there.
    let last = Site::sqlite();
    let done = here.run(&["copy", &to, &last.url, "--verify"]);
    assert!(done.status.success() && done.stdout.ends_with(b"\nequal\n"), "{done:?}");
    let last = Served::new(last);
    let there = last.client();
    let kept = Table::new(&there, &table.name);
    for path in [table.path("it's", "a b+c%20&d=é'😀"), table.path("", ""), table.path("many", "001234")] {
        let [ours, theirs] = [&client, &there].map(|client| {
            client.request("GET", &path).level("fullmetadata").send().expect(200).text().to_owned()
        });
        let [ours, theirs] = [(ours, source.server.address()), (theirs, last.server.address())]
            .map(|(text, address)| text.replace(address, "host"));
        assert_eq!(ours, theirs);
    }
    assert_eq!(kept.count(), 1000);
    for path in [acl_path(&table.name).as_str(), CORS_PATH] {
        assert_eq!(settings(&client, path), settings(&there, path));
    }
    there.request("GET", "/Emptytable()").send().expect(200);
    // And over HTTP to a new server, from both.
    let remote = Served::new(Site::postgres());
    let to = remote.connection_string();
    copy(here, &from, &to, &["--concurrency", "4"]);
    equal(here, &from, &to, &[]);
    let again = copy(here, &dump, &to, &[]);
    assert_eq!((&again["copied"], &again["unchanged"]), (&json!(0), &json!(2540)), "{again}");
    assert_eq!(here.json(&["count", &to])["entities"], 2540);
}

#[test]
fn a_faulty_network_loses_and_doubles_nothing() {
    let (source, name, place) = filled(Site::sqlite(), 3300);
    let client = source.client();
    for partition in 0..40 {
        let entity = with_keys(&format!("p{partition:03}"), "only", json!({ "N": partition }));
        Table::new(&client, &name).seed(entity);
    }
    let target = Served::new(Site::postgres());
    let reading = FaultyProxy::before(source.server.address(), "reading");
    let writing = FaultyProxy::before(target.server.address(), "writing");
    let from = connection_string(&reading.address, &source.account);
    let to = connection_string(&writing.address, &target.account);
    let done = copy(&source.site, &from, &to, &["--concurrency", "4"]);
    assert_eq!(done["rejected"], 0, "{done}");
    let faults = [&reading, &writing].map(|proxy| proxy.faults.load(Ordering::Relaxed));
    assert!(faults[0] > 3 && faults[1] > 10, "{faults:?}");
    let found = equal(&source.site, &place, &target.connection_string(), &[]);
    assert_eq!(found["tables"][&name]["equal"], 3340, "{found}");
}

/// A copy under way.
pub fn start(site: &Site, from: &str, to: &str, more: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowhouse"));
    command.args(["copy", from, to, "--json", "--progress", "plain"]).args(more).current_dir(&site.folder);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs")
}

#[test]
fn a_killed_copy_is_resumed_without_loss() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let tables = [client.table(), client.table()];
    batch_rows(&tables[0], "a", 6000);
    for partition in 0..6 {
        batch_rows(&tables[1], &format!("p{partition}"), 700);
    }
    let from = source.connection_string();
    let remote = Served::new(Site::postgres());
    let (direct, lite) = (Site::postgres(), Site::sqlite());
    let dump = format!("dump:{}", source.site.folder.join("d").display());
    for to in [remote.connection_string(), direct.url.clone(), lite.url.clone(), dump] {
        let several = ["--concurrency", "3"];
        // It does not end before it is killed.
        let mut more = [&several[..], &["--rate-limit", "2000"]].concat();
        let (mut kills, mut is_done) = (0, false);
        let mut chance = Chance::of("killed copies").fork(to.len());
        for longest in [120, 240, 360, 480, 600] {
            let wait = 20 + chance.below(longest);
            let mut child = start(&source.site, &from, &to, &more);
            work_for(Duration::from_millis(wait));
            if child.try_wait().expect("a child").is_some() {
                let output = child.wait_with_output().expect("it ended");
                let is_complete = String::from_utf8_lossy(&output.stderr).contains("a complete dump");
                assert!(output.status.success() || is_complete, "{output:?}");
                is_done = true;
                break;
            }
            child.kill().expect("it runs");
            kills += 1;
            // Its last moments: it may have ended by itself.
            is_done = child.wait().expect("it ended").success();
            if is_done {
                break;
            }
            // Killed before there was a state it begins anew.
            more = several.to_vec();
        }
        if !is_done {
            let output = start(&source.site, &from, &to, &more).wait_with_output().expect("it ends");
            // It may have been killed when only the end of the process was left.
            let is_complete = String::from_utf8_lossy(&output.stderr).contains("a complete dump");
            assert!(output.status.success() || is_complete, "{output:?}");
        }
        assert!(kills > 0, "nothing was killed: {to}");
        let timestamps: &[&str] = if to.contains("TableEndpoint") { &[] } else { &["--timestamps"] };
        let found = equal(&source.site, &from, &to, timestamps);
        let equal = tables.each_ref().map(|table| found["tables"][&table.name]["equal"].clone());
        assert_eq!(equal, [6000, 4200]);
    }
}

#[test]
fn differences_are_found_and_extra_entities_deleted() {
    for site in Site::both() {
        let (source, name, from) = filled(site, 1500);
        let target = Served::new(Site::sqlite());
        let to = target.connection_string();
        copy(&source.site, &from, &to, &[]);
        let (client, there) = (source.client(), target.client());
        let [table, theirs] = [&client, &there].map(|client| Table::new(client, &name));
        theirs.seed(with_keys("a", "000500x", json!({})));
        theirs.seed(with_keys("b", "behind", json!({})));
        theirs.delete("a", "000700", Some("*")).expect(204);
        theirs.replace("a", "001499", &json!({ "N": 1499, "More": 1 }), None).expect(204);
        let verifying = ["verify", &from, &to, "--json", "--recheck-delay", "0"];
        let output = source.site.ends(&verifying, 4, &[]);
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let differences = found["differences"].as_array().expect("a list").iter();
        let kinds = differences.map(|d| format!("{} {} {}", d["kind"], d["RowKey"], d["properties"]));
        assert_eq!(
            kinds.map(|text| text.replace('"', "")).collect::<Vec<_>>(),
            ["extra 000500x []", "missing 000700 []", "different 001499 [More]", "extra behind []"]
        );
        assert_eq!(
            found["tables"][&table.name],
            json!({ "equal": 1498, "missing": 1, "extra": 2, "different": 1, "unreadable": 0 })
        );
        // An insert refuses what differs, tells why, and changes nothing.
        source.site.ends(&["copy", &from, &to, "--json", "--state", "s"], 3, &[]);
        let rejects = source.site.read("s.rejects.jsonl");
        assert_eq!(rejects.lines().count(), 1);
        assert!(rejects.contains("001499") && rejects.contains("another entity"), "{rejects}");
        assert_eq!(theirs.entity("a", "001499")["More"], 1);
        // Without a terminal nothing is changed unless --yes says so.
        source.site.ends(&["copy", &from, &to, "--mode", "replace"], 2, &["--yes", &table.name]);
        let sure = ["--mode", "replace", "--mirror", "--verify", "--yes"];
        source.site.ends(&[&["copy", &from, &to][..], &sure].concat(), 0, &["2 extra entities deleted"]);
        // A delta: what was changed since, and what is gone.
        let since = table.entity("a", "000001")["Timestamp"].as_str().expect("a time").to_owned();
        table.merge("a", "000003", &json!({ "New": true }), Some("*")).expect(204);
        let delta = copy(&source.site, &from, &to, &["--since", &since, "--mode", "replace", "--yes"]);
        assert!(delta["copied"].as_u64().is_some_and(|copied| copied >= 1), "{delta}");
        equal(&source.site, &from, &to, &[]);
    }
}

#[test]
fn a_cut_over_beside_writers_ends_equal() {
    for site in Site::both() {
        let (source, name, from) = filled(site, 3000);
        let client = source.client();
        let table = Table::new(&client, &name);
        let target = Served::new(Site::sqlite());
        let to = target.connection_string();
        let newest = || {
            let newest = table.seed(with_keys("b", &fresh_name(), json!({})));
            let time = timestamp_of(&newest);
            time.split('.').next().expect("seconds").to_owned() + "Z"
        };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0..3000).cycle().step_by(7).take_while(|_| !over.load(Ordering::Relaxed)) {
                    let row = format!("{number:06}");
                    match number % 3 {
                        0 => drop(table.delete("a", &row, Some("*"))),
                        1 => drop(table.replace("a", &row, &json!({ "New": number }), None)),
                        _ => drop(table.merge("a", &format!("{row}x"), &json!({ "More": true }), None)),
                    }
                }
            });
            let begun = newest();
            copy(&source.site, &from, &to, &["--concurrency", "2"]);
            copy(&source.site, &from, &to, &["--since", &begun, "--mode", "replace", "--yes"]);
            over.store(true, Ordering::Relaxed);
        });
        // The freeze: nobody writes any more.
        let last = ["--since", "2020-01-01", "--mode", "replace", "--mirror", "--verify", "--yes"];
        let done = source.site.run(&[&["copy", &from, &to][..], &last].concat());
        assert!(done.status.success() && done.stdout.ends_with(b"\nequal\n"), "{done:?}");
        equal(&source.site, &from, &to, &[]);
    }
}

#[test]
fn counting_and_deleting_follow_the_filter() {
    for site in Site::both() {
        let (source, name, place) = filled(site, 1200);
        let (here, name) = (&source.site, name.as_str());
        assert_eq!(here.json(&["count", &place, "--filter", "N lt 30"])["entities"], 30);
        assert_eq!(here.json(&["count", &place, "--exclude", name])["entities"], 0);
        let dry = here.json(&["delete-where", &place, name, "N ge 1000", "--dry-run"]);
        let left = &here.json(&["count", &place])["entities"];
        assert_eq!((&dry["entities"], left), (&json!(200), &json!(1200)));
        here.ends(&["delete-where", &place, name, "N ge 1000"], 2, &["deletes 200", "--yes"]);
        assert_eq!(here.json(&["delete-where", &place, name, "N ge 1000", "--yes"])["entities"], 200);
        here.ends(&["delete-where", &place, "Nosuchtable", "N ge 1", "--yes"], 2, &["Nosuchtable"]);
        let (site, account) = source.close();
        let place = format!("{}#{}", site.url, account.name);
        assert_eq!(site.json(&["delete-where", &place, name, "N lt 990", "--yes"])["entities"], 990);
        assert_eq!(site.json(&["count", &place])["entities"], 10);
        let words = ["devstoreaccount1 has no tables", &format!("as in #{}", account.name)];
        site.ends(&["count", &site.url], 1, &words);
    }
}

#[test]
fn a_table_is_restored_under_another_name_at_a_limited_rate() {
    for (from, to) in Site::both().into_iter().zip([Site::postgres(), Site::sqlite()]) {
        let source = Served::new(from);
        let client = source.client();
        let [table, other] = [client.table(), client.table()];
        batch_rows(&table, "a", 300);
        batch_rows(&other, "a", 200);
        let (from, account) = source.close();
        let begun = std::time::Instant::now();
        let rename = format!("{}=Restored", table.name);
        let place = format!("{}#{}", from.url, account.name);
        let done = copy(&from, &place, &to.url, &["--rename", &rename, "--rate-limit", "1000"]);
        assert_eq!(done["copied"], 500, "{done}");
        assert!(begun.elapsed() >= Duration::from_millis(100), "500 entities at 1000 a second");
        let target = Served::new(to);
        let client = target.client();
        assert_eq!(Table::new(&client, "Restored").count(), 300);
        assert_eq!(Table::new(&client, other.name.as_str()).count(), 200);
    }
}

#[test]
fn mistakes_are_told_before_anything_is_written() {
    let site = Site::sqlite();
    site.json(&["migrate"]);
    let url = site.url.as_str();
    site.write("People.json", "[{\"PartitionKey\":\"a\",\"RowKey\":\"1\",\"S\":5}]");
    for (arguments, words) in [
        (&["copy", "nonsense", url][..], &["FROM", "connection string"][..]),
        (&["copy", "env:NOT_SET_ANYWHERE", url], &["env:NOT_SET_ANYWHERE", "not set"]),
        (&["copy", "file:none", url], &["file:none"]),
        (&["copy", url, url], &["same"]),
        (&["copy", url, "dump:x", "--since", "yesterday"], &["--since"]),
        (&["copy", url], &["TO"]),
        // What would have no effect.
        (&["copy", url, "dump:x", "--type", "N=Int64"], &["--type", "files of other programs"]),
        (&["copy", url, "dump:x", "--table", "People"], &["--table"]),
        (&["verify", url, "dump:x", "--format", "csv"], &["--format"]),
        (&["count", url, "--format", "csv"], &["--format"]),
        (&["copy", "People.json", url, "--type", "Cuont=Int64"], &["--type", "Cuont"]),
        (&["count", "People.json", "--type", "S=Int64,Name=String"], &["--type", "Name"]),
        (&["copy", url, "dump:x", "--max-delete", "5"], &["--max-delete", "--mirror"]),
        (&["copy", url, "dump:x", "--since", "2999-01-01"], &["--since", "future"]),
        (&["copy", url, "dump:"], &["TO", "dump:"]),
        (&["copy", "People.json", url, "--rename", "People=Abc,People=Xyz"], &["--rename", "two names"]),
        (&["verify", url, url], &["same"]),
        (&["verify", url, &format!("{url}#devstoreaccount1")], &["same"]),
        (&["copy", url, "sqlite://to.db#My_Account"], &["TO", "#My_Account does not name an account"]),
        (&["count", "People.json#devstoreaccount1"], &["PLACE", "not a file of Azurite"]),
        (&["verify", "People.json", "./People.json"], &["same"]),
        (&["verify", "http://localhost:1/a?sig=x", "http://127.0.0.1:1/a?sig=y"], &["same"]),
    ] {
        site.ends(arguments, 2, words);
    }
    site.ends(&["copy", "dump:none", url], 1, &["manifest.json"]);
    site.ends(&["copy", "sqlite://none.db", "dump:x"], 1, &["none.db"]);
    // Secrets may come from a variable; a wrong key is told at once.
    let served = Served::new(Site::sqlite());
    let mut stranger = served.account.clone();
    stranger.keys[0] = MASTER.into();
    let wrong = connection_string(served.server.address(), &stranger);
    let output = site.run_with(&["copy", "env:FROM", url], &[("FROM", &wrong)]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("403") && !said.contains(MASTER), "{said}");
    // The table is named.
    let address = format!("http://{}/{}", served.server.address(), served.account.name);
    let copying = ["copy", "People.json", "env:TO", "--state", "told.state"];
    let output = site.run_with(&copying, &[("TO", &wrong)]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("{address}/People(): 403")), "{said}");
    // A file that a server has open is not written behind its back.
    site.ends(&["copy", "dump:none", &served.site.url], 1, &["manifest.json"]);
    site.ends(&["copy", url, &served.site.url], 1, &["tables.db"]);
}
