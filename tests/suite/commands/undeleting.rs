//! `rowhouse table deleted`, `undelete` and `purge`.

use serde_json::json;

use super::*;
use crate::support::postgres::execute;
use crate::support::server::account;

fn server_and_client(site: &Site, keep: &str) -> (Process, Client) {
    site.served(&["--keep-deleted", keep])
}

/// Runs `rowhouse table` for the account of the clients.
fn of_account<'a>(words: &[&'a str], account: &'a str) -> Vec<&'a str> {
    [&["table"], words, &["--account", account]].concat()
}

#[test]
fn a_deleted_table_comes_back_with_its_etags_and_rules() {
    for site in Site::both() {
        let (_server, client) = server_and_client(&site, "7d");
        let account = account(1).name;
        let t = client.table();
        let etag = t.seed(with_keys("p", "r", json!({ "N": 5 })));
        t.seed_rows("q", ["1", "2"]);
        let table = |words: &[&str]| site.json(&of_account(words, &account));
        site.json(&["expire", "set", &t.name, "--after", "30d", "--account", &account]);
        site.json(&["index", "create", &t.name, "N", "--yes", "--account", &account]);
        client.delete_table(&t.name).expect(204);
        t.get("p", "r").expect(404);
        let listed = table(&["deleted"]);
        assert_eq!(listed["more"], false);
        let listed = &listed["tables"][0];
        assert_eq!(
            (&listed["table"], &listed["entities"], &listed["complete"]),
            (&json!(t.name), &json!(3), &json!(true))
        );
        let undeleted = table(&["undelete", &t.name]);
        assert_eq!((&undeleted["indexes"], &undeleted["expires"]), (&json!(1), &json!(true)), "{undeleted}");
        assert_eq!(t.entity("p", "r")["odata.etag"], json!(etag));
        assert_eq!(t.count(), 3);
        t.merge("p", "r", &json!({ "N": 6 }), Some(&etag)).expect(204);
        assert_eq!(site.json(&["expire", "list", "--account", &account])[0]["after"], "30d");
        until("the index is built again", || {
            site.json(&["index", "list", "--account", &account])[0]["state"] == "ready"
        });
        assert_eq!(t.matching_rows("N eq 6"), "r");
        assert_eq!(table(&["deleted"]), json!({ "tables": [], "more": false }));
        site.fails(&of_account(&["undelete", &t.name], &account), &["no such deleted table"]);
    }
}

#[test]
fn which_of_several_deleted_tables_comes_back_is_said_and_not_guessed() {
    let site = Site::sqlite();
    let (_server, client) = server_and_client(&site, "1h");
    let account = account(1).name;
    let t = client.table();
    for row in ["first", "second", "third"] {
        t.seed_rows("p", [row]);
        client.delete_table(&t.name).expect(204);
        client.create_table(&t.name).expect(201);
    }
    let listed = site.json(&of_account(&["deleted"], &account))["tables"].as_array().expect("tables").clone();
    assert_eq!(listed.len(), 3);
    let numbers: Vec<String> = listed.iter().map(|table| table["id"].to_string()).collect();
    for verb in ["undelete", "purge"] {
        let output = site.run(&of_account(&[verb, &t.name], &account));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("--newest") && numbers.iter().all(|number| said.contains(number)), "{said}");
    }
    site.fails(
        &of_account(&["undelete", &t.name, "--newest"], &account),
        &["there is a table", "another name"],
    );
    site.json(&of_account(&["undelete", &t.name, "--newest", "--as", "Newest"], &account));
    site.json(&of_account(&["undelete", &t.name, "--number", &numbers[2], "--as", "Oldest"], &account));
    for (name, row) in [("Newest", "third"), ("Oldest", "first")] {
        assert_eq!(Table::new(&client, name).entity("p", row)["RowKey"], row);
    }
    for (words, told) in [
        (&["undelete", "Never"][..], "no such deleted table"),
        (&["undelete", &t.name, "--number", &numbers[0]], "no such deleted table"),
        (&["undelete", &t.name, "--as", "no name"], "no name"),
    ] {
        let output = site.run(&of_account(words, &account));
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
        assert!(!output.status.success());
    }
    // Without a conflict, the last name serves.
    client.delete_table(&t.name).expect(204);
    site.json(&of_account(&["undelete", &t.name, "--number", &numbers[1]], &account));
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
    let (server, client) = server_and_client(&site, "4w");
    let account = account(1).name;
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
        let purge = of_account(&["purge", &t.name], &account);
        let output = site.run(&purge);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(told) && said.contains("for good; confirm with --yes"), "{said}");
        let purged = site.json(&[&purge[..], &["--yes"]].concat());
        assert_eq!((&purged["table"], &purged["entities"]), (&json!(t.name), &entities));
        site.fails(&of_account(&["undelete", &t.name], &account), &["no such deleted table"]);
    }
    assert_eq!(site.json(&of_account(&["deleted"], &account))["tables"], json!([]));
}

#[test]
fn nothing_is_kept_by_default_and_what_is_kept_ends_with_its_time() {
    for site in Site::both() {
        let account = account(1).name;
        let deleted = |site: &Site| site.json(&of_account(&["deleted"], &account))["tables"].clone();
        let (server, client) = server_and_client(&site, "0");
        let t = client.table();
        client.delete_table(&t.name).expect(204);
        assert_eq!(deleted(&site), json!([]));
        drop(server);
        let (server, client) = server_and_client(&site, "20s");
        client.create_table(&t.name).expect(201);
        Table::new(&client, &t.name).seed_rows("p", ["1"]);
        client.delete_table(&t.name).expect(204);
        assert_eq!(deleted(&site)[0]["table"], json!(t.name));
        // Another server, which keeps nothing itself, ends it.
        drop(server);
        let _server = server_and_client(&site, "0");
        until("its time has ended", || deleted(&site) == json!([]));
        site.fails(&of_account(&["undelete", &t.name], &account), &["no such deleted table"]);
    }
}
