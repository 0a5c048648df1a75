//! Servers and commands of a role that only reads and writes rows: the owner has migrated.

use serde_json::json;

use super::checking::{check, finds};
use super::*;
use crate::support::postgres::{Writer, execute};
use crate::support::server::account;

/// A database that its owner has migrated, and the same one as a role that writes rows.
fn sites() -> (Site, Writer, Site) {
    let owner = Site::postgres();
    assert_eq!(owner.json(&["migrate"])["schema"], migrations());
    let writer = Writer::of(&owner.url);
    let site = Site { folder: fresh_folder(), url: writer.url.clone() };
    (owner, writer, site)
}

#[test]
fn a_server_starts_and_serves_on_what_the_owner_has_migrated() {
    let (_owner, _writer, site) = sites();
    assert_eq!(site.json(&["migrate"])["schema"], migrations(), "nothing is left to do");
    let added = account_of(&site.json(&["account", "add", "myaccount"]));
    let checked = site.json(&["check"]);
    assert_eq!(checked["ok"], true, "{checked}");
    let server = site.server(&[]);
    let client = Client::path_style(server.address(), added.clone());
    let (table, kept) = (client.table(), client.table());
    table.seed(with_keys("p", "r", json!({ "N": 7 })));
    assert_eq!(table.matching_rows("N eq 7"), "r");
    kept.seed(with_keys("p", "r", json!({ "N": 1 })));
    let rule = ["--account", "myaccount", "--after", "1s", "--every", "1s"];
    site.json(&[&["expire", "set", &table.name], &rule[..]].concat());
    until("what has expired", || table.count() == 0);
    site.json(&["expire", "clear", &table.name, "--account", "myaccount"]);
    for list in ["account", "expire", "index"] {
        site.json(&[list, "list"]);
    }
    client.delete_table(&table.name).expect(204);
    let name = kept.name.clone();
    drop(server);
    let again = site.server(&[]);
    let client = Client::path_style(again.address(), added);
    let kept = Table::new(&client, &name);
    kept.seed(with_keys("p", "s", json!({ "N": 2 })));
    assert_eq!(kept.count(), 2);
    assert!(!again.log().contains("ERROR"), "{}", again.log());
}

#[test]
fn a_role_that_may_not_read_the_version_is_refused_and_no_version_is_made_up() {
    let (owner, writer, site) = sites();
    execute(&owner.url, &format!("REVOKE SELECT ON _sqlx_migrations FROM {}", writer.role));
    site.fails(&["migrate"], &["_sqlx_migrations"]);
    let told = check(&site, &[]);
    finds(&told, "privileges", "problem", &["missing: SELECT on _sqlx_migrations\n"]);
    finds(&told, "schema", "problem", &["may not be read"]);
    // The role of the migrations may.
    let migrating = ["--migrate-url", owner.url.as_str()];
    assert_eq!(site.json(&[&["migrate"], &migrating[..]].concat())["schema"], migrations());
    let told = check(&site, &migrating);
    ["privileges", "schema"].iter().for_each(|name| finds(&told, name, "ok", &[]));
    let (server, _) = site.served(&migrating);
    assert_eq!(status(&server, &account(1), 0), 200);
}

#[test]
fn a_schema_that_is_not_current_is_not_served_without_the_right_to_migrate_it() {
    let (owner, writer, site) = sites();
    let last = "SELECT max(version) FROM _sqlx_migrations";
    execute(&owner.url, &format!("DELETE FROM _sqlx_migrations WHERE version = ({last})"));
    site.fails(&["account", "add", "myaccount"], &["cannot migrate", "permission denied"]);
    let words = ["may not create tables", &writer.role, "--migrate-url"];
    finds(&check(&site, &[]), "schema", "problem", &words);
    finds(&check(&site, &["--migrate-url", &owner.url]), "schema", "ok", &[]);
}
