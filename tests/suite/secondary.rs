//! Reads of `{account}-secondary` from a read replica (protocol §1.1, §11.1).
//!
//! A second database with contents of its own stands for the replica, so that
//! where an answer comes from can be seen.

use std::time::Duration;

use rowhouse_protocol::model::{IfMatch, Key, TableName};
use rowhouse_protocol::plan::WriteKind;
use rowhouse_store::postgres::{PgOptions, PgStore};
use rowhouse_store::{Entities, Failure, Fault, StoredAccounts, Tables, Upkeep};
use serde_json::json;

use crate::store::contract::{insert, now, number, write};
use crate::support::batch::{post, query_batch};
use crate::support::postgres::{fresh_database, has_table};
use crate::support::server::{Process, account};
use crate::support::*;

const PROPERTIES: &str = "/?restype=service&comp=properties";
const STATS: &str = "/?restype=service&comp=stats";

/// A server over a database, and over a replica if one is named.
fn server(url: &str, replica: Option<&str>) -> Process {
    let account = account(1).name;
    let more = replica.map(|replica| ["--secondary-database-url", replica, "--extended-queries", &account]);
    Process::serve(url, more.as_ref().map_or(&[], |more| &more[..]))
}

/// Two databases, what writes to the second, and a server over both.
struct Two {
    _servers: [Process; 2],
    /// The second database as its own primary.
    beyond: Client,
    primary: Client,
    secondary: Client,
}

fn two() -> Two {
    let (one, other) = (fresh_database(), fresh_database());
    let behind = server(&other, None);
    let front = server(&one, Some(&other));
    let (beyond, primary) = (behind.client(), front.client());
    let secondary = primary.secondary();
    Two { _servers: [behind, front], beyond, primary, secondary }
}

/// The same table in both, each with an entity of its own.
fn shared(two: &Two) -> [Table<'_>; 3] {
    let name = fresh_name();
    let here = Table::new(&two.primary, name.clone());
    let there = Table::new(&two.beyond, name.clone());
    for (client, table, place) in [(&two.primary, &here, "primary"), (&two.beyond, &there, "replica")] {
        client.create_table(&name).expect(201);
        table.seed_one(json!({ "Place": place }));
        table.seed(with_keys("p", place, json!({})));
    }
    [here, there, Table::new(&two.secondary, name)]
}

#[test]
fn every_read_of_the_secondary_goes_to_the_replica() {
    let two = two();
    let [here, _, read] = shared(&two);
    assert_eq!(here.properties(), json!({ "Place": "primary" }));
    assert_eq!(read.properties(), json!({ "Place": "replica" }));
    assert_eq!(row_keys(&rows(here.query("").expect_json())), "primary,r");
    assert_eq!(row_keys(&rows(read.query("").expect_json())), "r,replica");
    let descending = read.query("?$orderby=PartitionKey%20desc,RowKey%20desc");
    assert_eq!(row_keys(&rows(descending.expect_json())), "replica,r");
    read.get("p", "primary").refused(NOT_FOUND);
    here.get("p", "replica").refused(NOT_FOUND);
    let query = query_batch(&two.secondary.url(&read.path("p", "r")));
    let answer = BatchAnswer::of(post(&two.secondary, query).send());
    assert!(answer.parts[0].body.contains("replica"), "{}", answer.outer);
    // Tables that only one of them has.
    let (only_here, only_there) = (two.primary.table(), two.beyond.table());
    two.secondary.get(&format!("/Tables('{}')", only_here.name)).refused(NOT_FOUND);
    two.secondary.get(&format!("/Tables('{}')", only_there.name)).expect(200);
    let listed = two.secondary.get("/Tables").expect_json().to_string();
    assert!(listed.contains(&only_there.name) && !listed.contains(&only_here.name), "{listed}");
    Table::new(&two.secondary, only_here.name.clone()).query("").refused(NO_TABLE);
}

#[test]
fn policies_properties_and_rules_are_those_of_the_replica() {
    let two = two();
    two.primary.allow_origin("http://here");
    two.beyond.allow_origin("http://there");
    let [here, there, read] = shared(&two);
    let acl = |t: &Table| format!("{}?comp=acl", t.set());
    let policy = "<SignedIdentifiers><SignedIdentifier><Id>id</Id><AccessPolicy><Expiry>2090-01-01</Expiry>\
                  <Permission>r</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>";
    let put = two.beyond.request("PUT", &acl(&there)).header("Accept", "application/xml");
    put.body(policy).send().expect(204);
    assert_eq!(two.primary.get(&acl(&here)).expect_xml(), "<SignedIdentifiers />");
    assert!(two.secondary.get(&acl(&read)).expect_xml().contains("<Id>id</Id>"));
    // A signature that relies on the policy holds where the policy is.
    let token = Sas::table(&read.name, "").with_policy("id").query(&two.primary.account);
    let bearing = |client: &Client| Table::new(&client.bearing(&token), read.name.clone()).get("p", "r");
    bearing(&two.secondary).expect(200);
    bearing(&two.primary).turned_away(NOT_AUTHENTICATED);
    let granted = |client: &Client, origin: &str| {
        let answer = client.request("GET", &here.set()).header("Origin", origin).send().expect(200);
        answer.header("Access-Control-Allow-Origin").map(str::to_owned)
    };
    // Rules of the replica, which this server has not set, are followed within seconds.
    until("the rules of the replica", || granted(&two.secondary, "http://there").is_some());
    for (client, own) in [(&two.primary, "http://here"), (&two.secondary, "http://there")] {
        assert!(client.get(PROPERTIES).expect_xml().contains(own));
        for origin in ["http://here", "http://there"] {
            assert_eq!(granted(client, origin).as_deref(), (origin == own).then_some(origin));
        }
    }
}

fn stats(client: &Client) -> String {
    let found = client.get(STATS).expect_xml();
    let inner = found
        .strip_prefix("<StorageServiceStats><GeoReplication>")
        .and_then(|rest| rest.strip_suffix("</GeoReplication></StorageServiceStats>"));
    inner.unwrap_or_else(|| panic!("not the recorded form: {found}")).to_owned()
}

#[test]
fn stats_tell_what_the_replica_says() {
    let two = two();
    let found = stats(&two.secondary);
    let time = found
        .strip_prefix("<Status>live</Status><LastSyncTime>")
        .and_then(|rest| rest.strip_suffix("</LastSyncTime>"))
        .unwrap_or_else(|| panic!("{found}"));
    let time = chrono::DateTime::parse_from_rfc2822(time).expect("an RFC 1123 date");
    let age = chrono::Utc::now().signed_duration_since(time);
    assert!((-2..60).contains(&age.num_seconds()), "{found}");
    two.primary.get(STATS).refused_in_xml(QUERY_VALUE);
}

#[test]
fn a_replica_that_is_away_does_not_keep_the_primary_from_serving() {
    let server = server(&fresh_database(), Some("postgres://nobody:secret@127.0.0.1:1/none"));
    let primary = server.client();
    let t = primary.table();
    t.seed_one(json!({ "A": 1 }));
    assert_eq!(t.properties(), json!({ "A": 1 }));
    let secondary = primary.secondary();
    assert_eq!(stats(&secondary), "<Status>unavailable</Status><LastSyncTime />");
    Table::new(&secondary, t.name.clone()).get("p", "r").refused(BUSY);
    assert!(server.log().contains("the secondary database does not answer yet"), "{}", server.log());
    assert!(!server.log().contains("secret"), "{}", server.log());
}

#[test]
fn a_replica_is_not_migrated() {
    let replica = fresh_database();
    let server = server(&fresh_database(), Some(&replica));
    stats(&server.client().secondary());
    assert!(!has_table(&replica, "entities") && !has_table(&replica, "_sqlx_migrations"));
}

#[tokio::test]
async fn sessions_of_a_replica_refuse_to_write() {
    let options = PgOptions::new(fresh_database());
    let store = PgStore::connect(options.clone()).await.expect("a store");
    let replica = store.replica(&options).expect("a replica");
    let table = TableName::parse(&fresh_name()).expect("a name");
    store.create_table(table.in_account("acct"), now()).await.expect("a table");
    store.write(table.in_account("acct"), &insert("p", "r"), now()).await.expect("an entity");
    let away = Failure::Fault(Fault::Unavailable);
    let upsert = write(WriteKind::Replace(IfMatch::Absent), "p", "r", number("N", 2));
    let group = [insert("p", "s"), upsert.clone()];
    let other = TableName::parse("other").expect("a name");
    assert_eq!(replica.write(table.in_account("acct"), &upsert, now()).await.err(), Some(away.clone()));
    assert_eq!(
        replica.transact(table.in_account("acct"), &group.into(), now()).await.err(),
        Some(away.clone())
    );
    assert_eq!(replica.create_table(other.in_account("acct"), now()).await.err(), Some(away.clone()));
    assert_eq!(replica.delete_table(table.in_account("acct"), now()).await.err(), Some(away.clone()));
    assert_eq!(replica.set_policies(table.in_account("acct"), "[]").await.err(), Some(away.clone()));
    assert_eq!(replica.set_properties("acct", "{}").await.err(), Some(away.clone()));
    let found = replica.get(table.in_account("acct"), &Key::new("p", "r")).await.expect("a read");
    assert_eq!(found, store.get(table.in_account("acct"), &Key::new("p", "r")).await.expect("a read"));
    store.delete_table(table.in_account("acct"), now()).await.expect("it goes");
    let later = now();
    assert_eq!(replica.purge(later).await.err(), Some(away));
    tokio::time::timeout(Duration::from_secs(60), store.purge(later))
        .await
        .expect("soon")
        .expect("it purges");
}
