//! `rowhouse table deleted`, `undelete` and `purge`.

use serde_json::json;

use super::*;
use crate::support::postgres::execute;

/// Runs `rowhouse table` for the account of the clients.
fn table(site: &Site, words: &[&str]) -> Value {
    site.json(&of_account(words))
}

fn of_account<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [&["table"], words, &["--account", "acct0001"]].concat()
}

#[track_caller]
fn is_gone(site: &Site, name: &str) {
    site.fails(&of_account(&["undelete", name]), &["no such deleted table"]);
}

#[test]
fn a_deleted_table_comes_back_with_its_etags_and_rules() {
    for site in Site::both() {
        let (_server, client) = site.served(&["--keep-deleted", "7d"]);
        let t = client.table();
        let etag = t.seed(with_keys("p", "r", json!({ "N": 5 })));
        t.seed_rows("q", ["1", "2"]);
        site.json(&["expire", "set", &t.name, "--after", "30d", "--account", "acct0001"]);
        site.json(&["index", "create", &t.name, "N", "--yes", "--account", "acct0001"]);
        client.delete_table(&t.name).expect(204);
        t.get("p", "r").expect(404);
        let listed = table(&site, &["deleted"]);
        assert_eq!((&listed["more"], &listed["tables"][0]["table"]), (&json!(false), &json!(t.name)));
        let size = (&listed["tables"][0]["entities"], &listed["tables"][0]["complete"]);
        assert_eq!(size, (&json!(3), &json!(true)));
        let undeleted = table(&site, &["undelete", &t.name]);
        assert_eq!((&undeleted["indexes"], &undeleted["expires"]), (&json!(1), &json!(true)), "{undeleted}");
        assert_eq!(t.entity("p", "r")["odata.etag"], json!(etag));
        assert_eq!(t.count(), 3);
        assert_eq!(site.json(&["expire", "list"])[0]["after"], "30d");
        until("the index is built again", || site.json(&["index", "list"])[0]["state"] == "ready");
        assert_eq!(t.matching_rows("N eq 5"), "r");
        assert_eq!(table(&site, &["deleted"]), json!({ "tables": [], "more": false }));
        is_gone(&site, &t.name);
    }
}

#[test]
fn which_of_several_deleted_tables_comes_back_is_said_and_not_guessed() {
    let site = Site::sqlite();
    let (_server, client) = site.served(&["--keep-deleted", "1h"]);
    let t = client.table();
    for row in ["first", "second", "third"] {
        t.seed_rows("p", [row]);
        client.delete_table(&t.name).expect(204);
        client.create_table(&t.name).expect(201);
    }
    let listed = table(&site, &["deleted"])["tables"].as_array().expect("tables").clone();
    let numbers: Vec<String> = listed.iter().map(|table| table["id"].to_string()).collect();
    let told = ["--newest", numbers[0].as_str(), &numbers[1], &numbers[2]];
    for verb in ["undelete", "purge"] {
        site.ends(&of_account(&[verb, &t.name]), 1, &told);
    }
    let newest = of_account(&["undelete", &t.name, "--newest"]);
    site.fails(&newest, &["there is a table", "another name"]);
    for (which, name, row) in
        [(&["--newest"][..], "Newest", "third"), (&["--number", &numbers[2]], "Oldest", "first")]
    {
        table(&site, &[&["undelete", &t.name, "--as", name], which].concat());
        assert_eq!(Table::new(&client, name).entity("p", row)["RowKey"], row);
    }
    is_gone(&site, "Never");
    for (words, status, told) in
        [(["--number", numbers[0].as_str()], 1, "no such deleted table"), (["--as", "no name"], 2, "no name")]
    {
        site.ends(&of_account(&[&["undelete", &t.name], &words[..]].concat()), status, &[told]);
    }
    // Without a conflict, the last name serves.
    client.delete_table(&t.name).expect(204);
    table(&site, &["undelete", &t.name, "--number", &numbers[1]]);
    assert_eq!(t.entity("p", "second")["RowKey"], "second");
}

/// The entities of these deleted tables cannot be counted in the time that a statement has.
fn slow_down(site: &Site, name: &str) {
    let script = format!(
        "CREATE FUNCTION late(table_no bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN \
         IF EXISTS (SELECT FROM deleted_tables AS d WHERE d.table_no = late.table_no AND d.name = '{name}') THEN \
         RAISE EXCEPTION USING ERRCODE = '57014'; END IF; RETURN false; END $$; \
         ALTER TABLE entities RENAME TO all_entities; \
         CREATE VIEW entities AS SELECT * FROM all_entities WHERE NOT late(bucket >> 16)"
    );
    execute(&site.url, &script);
}

#[test]
fn a_purge_is_confirmed_and_final_even_if_it_takes_too_long_to_count() {
    let site = Site::postgres();
    let (server, client) = site.served(&["--keep-deleted", "4w"]);
    let [quick, slow] = [client.table(), client.table()];
    for t in [&quick, &slow] {
        t.seed_rows("p", ["1", "2"]);
        client.delete_table(&t.name).expect(204);
    }
    drop(server);
    slow_down(&site, &slow.name);
    for (t, told, entities) in [
        (&quick, "with 2 entities, ", json!(2)),
        (&slow, "with an unknown number of entities, ", Value::Null),
    ] {
        site.ends(&of_account(&["purge", &t.name]), 2, &[told, "for good; confirm with --yes"]);
        let purged = table(&site, &["purge", &t.name, "--yes"]);
        assert_eq!((&purged["table"], &purged["entities"]), (&json!(t.name), &entities));
        is_gone(&site, &t.name);
    }
    assert_eq!(table(&site, &["deleted"])["tables"], json!([]));
}

/// How long a server watches the clock before it removes anything by it.
const STEADY: Duration = Duration::from_secs(60);

#[test]
fn nothing_is_kept_by_default_and_what_is_kept_ends_with_its_time() {
    let site = Site::sqlite();
    let deleted = || table(&site, &["deleted"])["tables"].clone();
    let (server, client) = site.served(&[]);
    let t = client.table();
    client.delete_table(&t.name).expect(204);
    assert_eq!(deleted(), json!([]));
    drop(server);
    let (server, client) = site.served(&["--keep-deleted", "20s"]);
    client.create_table(&t.name).expect(201);
    Table::new(&client, &t.name).seed_rows("p", ["1"]);
    client.delete_table(&t.name).expect(204);
    assert_eq!(deleted()[0]["table"], json!(t.name));
    // Another server, which keeps nothing itself, ends it.
    drop(server);
    let _server = site.served(&[]);
    until_after(STEADY, "its time has ended", || deleted() == json!([]));
    is_gone(&site, &t.name);
}
