//! `rowhouse copy` under conditions that are not those of every day: full disks, other services,
//! certificates, and writers at the wrong moment.

use serde_json::json;

use super::copying::{Served, batch_rows, connection_string, copy, equal, filled};
use super::cosmos_proxy::{COSMOS, as_cosmos};
use super::faulty_proxy::meddling;
use super::*;
use crate::promises::chance::Chance;
use crate::tls;

#[test]
fn a_full_disk_ends_a_copy_that_goes_on_when_there_is_room() {
    let source = Served::new(Site::sqlite());
    let client = source.client();
    let table = client.table();
    // It does not compress to less than a half.
    let mut chance = Chance::of("a full disk");
    let mut text = || (0..20).map(|_| format!("{:016x}", chance.next())).collect::<String>();
    table.seed_many((0..4000).map(|row| with_keys("a", &format!("{row:06}"), json!({ "S": text() }))));
    let from = source.connection_string();
    let here = &source.site;
    for (to, named) in [("dump:full", "rowhouse: TO: full: "), ("sqlite://full.db", "")] {
        let more = ["--state", "full.state"];
        let copying = [&["copy", &from, to, "--concurrency", "1"][..], &more].concat();
        let output = without_room(&here.folder, 300, &copying).output().expect("a shell");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{output:?}");
        assert!(here.folder.join("full.state").exists(), "{output:?}");
        assert_eq!(copy(here, &from, to, &more)["rejected"], 0);
        equal(here, &from, to, &[]);
    }
}

#[test]
fn a_place_without_an_order_is_copied_compared_and_protected() {
    let (source, name, ordered) = filled(Site::sqlite(), 1300);
    let client = source.client();
    let table = Table::new(&client, &name);
    for partition in 0..20 {
        table.seed(with_keys(&format!("p{partition:03}"), "only", json!({ "N": partition })));
    }
    let here = &source.site;
    as_cosmos(source.server.address(), || {
        let cosmos = connection_string(COSMOS, &source.account);
        for to in ["dump:sorted", "sqlite://sorted.db"] {
            assert_eq!(copy(here, &cosmos, to, &[])["copied"], 1320);
            equal(here, &ordered, to, &[]);
        }
        equal(here, &cosmos, "sqlite://sorted.db", &[]);
        for partition in 0..20 {
            table.delete(&format!("p{partition:03}"), "only", Some("*")).expect(204);
        }
        let deleting = ["--mode", "replace", "--mirror", "--max-delete"];
        let asked = [&["copy", &cosmos, "sqlite://sorted.db"][..], &deleting, &["20"]].concat();
        here.ends(&asked, 2, &["delete 20 entities", "--yes"]);
        let sure = [&["copy", &cosmos, "sqlite://sorted.db"][..], &deleting, &["20", "--yes"]].concat();
        here.ends(&sure, 0, &["20 extra entities deleted"]);
        equal(here, &ordered, "sqlite://sorted.db", &[]);
        // And the other way: what only Cosmos DB has.
        table.seed(with_keys("q", "extra", json!({ "N": 1 })));
        let back = ["copy", "sqlite://sorted.db", &cosmos];
        here.ends(&[&back[..], &deleting, &["1", "--yes"]].concat(), 0, &["1 extra entities deleted"]);
        table.get("q", "extra").expect(404);
        here.ends(&["copy", &cosmos, "dump:x", "--since", "2020-01-01"], 2, &["--since", "Cosmos"]);
        // What Cosmos DB does not take is told before anything is written.
        let lines = format!(
            "{{\"PartitionKey\":\"z\",\"RowKey\":\"{}\"}}\n{{\"PartitionKey\":\"z\",\"RowKey\":\"1\",\"etag\":\"x\"}}\n\
             {{\"PartitionKey\":\"z\",\"RowKey\":\"2\"}}\n",
            "r".repeat(256)
        );
        here.write("People.json", lines);
        let words = ["256 bytes", "named etag", "2 cannot"];
        here.ends(&["copy", "People.json", &cosmos, "--dry-run"], 3, &words);
        here.ends(&["copy", "People.json", &cosmos], 2, &["2 entities cannot", "--yes"]);
        client.request("GET", "/People()").send().expect(404);
    });
}

#[test]
fn a_write_that_comes_between_wins_over_a_deletion() {
    let (source, name, _) = filled(Site::sqlite(), 300);
    let client = source.client();
    let table = Table::new(&client, &name);
    let (same, name) = (client.same(), name.clone());
    let between = move || {
        Table::new(&same, &name).merge("a", "000007", &json!({ "Kept": true }), Some("*")).expect(204);
    };
    let address = meddling(source.server.address(), "DELETE http", between);
    let place = connection_string(&address, &source.account);
    let delete = ["delete-where", &place, &table.name, "N lt 200", "--yes", "--concurrency", "1"];
    assert_eq!(source.site.json(&delete)["entities"], 199);
    assert_eq!(table.entity("a", "000007")["Kept"], true);
    assert_eq!(table.count(), 101);
}

#[test]
fn encrypted_endpoints_and_signatures_are_places_too() {
    let (server, _folder) = tls::server(&[]);
    let client = tls::client(&server);
    let table = client.table();
    batch_rows(&table, "a", 120);
    let site = Site::sqlite();
    let account = crate::support::server::account(1);
    let plain = connection_string(server.address(), &account);
    let from = plain.replace("http://127.0.0.1", "https://localhost");
    let output = site.run(&["copy", &from, &site.url]);
    assert_eq!(output.status.code(), Some(1), "nobody trusts the certificate: {output:?}");
    let authority = tls::fixture("ca.pem").display().to_string();
    let output = site.run_with(&["copy", &from, &site.url], &[("SSL_CERT_FILE", &authority)]);
    assert!(output.status.success(), "{output:?}");
    // The same with a signature that may only read one table.
    let (served, name, place) = filled(Site::sqlite(), 120);
    let token = Sas::table(&name, "r").query(&served.account);
    let from = format!("http://{}/{}?{token}", served.server.address(), served.account.name);
    assert_eq!(copy(&served.site, &from, "dump:signed", &["--include", &name])["copied"], 120);
    equal(&served.site, &place, "dump:signed", &[]);
}
