//! What proxies say of the clients behind them, and who is believed. Every
//! connection of these tests comes from 127.0.0.1.

use serde_json::json;

use crate::support::server::{Process, account, fresh_folder};
use crate::support::*;

const FOR: &str = "X-Forwarded-For";
const PROTO: &str = "X-Forwarded-Proto";
const CLIENT: &str = "203.0.113.7";

fn server(trusted: Option<&str>) -> Process {
    let accounts = account(1).setting();
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--database-url", "sqlite::memory:"];
    let more = ["--accounts", &accounts, "--oidc-issuer", "https://issuer.invalid"];
    let variables: Vec<_> =
        trusted.map(|trusted| ("ROWHOUSE_TRUSTED_PROXIES", trusted)).into_iter().collect();
    Process::spawn(fresh_folder(), &[&fixed[..], &more].concat(), &variables)
}

/// The account's client, and a table with one entity.
fn there(server: &Process) -> (Client, String) {
    let client = server.client();
    let name = client.table().name.clone();
    Table::new(&client, &name).seed_one(json!({ "A": 1 }));
    (client, name)
}

/// Reads the entity by a signature with this restriction and these headers.
fn read(client: &Client, table: &str, (field, value): (&str, &str), said: &[(&str, &str)]) -> Answer {
    let bearer = Sas::table(table, "r").set("sv", "2015-04-05").set(field, value).of(client);
    let path = Table::new(&bearer, table).path("p", "r");
    let request = bearer.request("GET", &path);
    said.iter().fold(request, |request, (name, value)| request.also(name, value)).send()
}

#[track_caller]
fn refused(answer: &Answer, code: &str) {
    assert!(answer.status == 403 && answer.text().contains(code), "{code} {answer}");
}

#[test]
fn a_trusted_proxy_tells_the_address_of_its_client() {
    let server = server(Some("10.0.0.0/8, 127.0.0.1"));
    let (client, table) = there(&server);
    for said in [
        &[(FOR, CLIENT)][..],
        &[(FOR, "198.51.100.1, 203.0.113.7")],
        &[(FOR, "198.51.100.1"), (FOR, "203.0.113.7, 10.1.2.3")],
        &[(FOR, "rubbish"), (FOR, "203.0.113.7:4000")],
    ] {
        read(&client, &table, ("sip", CLIENT), said).expect(200);
    }
    for (said, shown) in [
        (&[(FOR, "203.0.113.8")][..], "203.0.113.8"),
        (&[(FOR, "203.0.113.7, 198.51.100.1")], "198.51.100.1"),
        (&[(FOR, CLIENT), (FOR, "198.51.100.1, 10.1.2.3")], "198.51.100.1"),
        (&[(FOR, "203.0.113.7, unknown")], ""),
        (&[(FOR, "203.0.113.7,")], ""),
        (&[("Forwarded", "for=203.0.113.7"), ("X-Real-IP", CLIENT)], ""),
        (&[], ""),
    ] {
        let answer = read(&client, &table, ("sip", CLIENT), said);
        refused(&answer, "AuthorizationSourceIPMismatch");
        assert!(answer.text().contains(&format!("using this source IP {shown}.")), "{said:?} {answer}");
    }
    // Not even the proxy's own address is that of a client of which it says nothing.
    refused(&read(&client, &table, ("sip", "127.0.0.1"), &[]), "AuthorizationSourceIPMismatch");
    client.get(&format!("/{table}()")).expect(200);
}

#[test]
fn a_trusted_proxy_tells_whether_its_client_came_by_https() {
    let server = server(Some("127.0.0.0/8"));
    let (client, table) = there(&server);
    read(&client, &table, ("spr", "https"), &[(PROTO, "https")]).expect(200);
    for said in [
        &[][..],
        &[(PROTO, "http")],
        &[(PROTO, "https, http")],
        &[(PROTO, "https"), (PROTO, "http")],
        &[("Forwarded", "proto=https")],
    ] {
        let answer = read(&client, &table, ("spr", "https"), said);
        refused(&answer, "AuthorizationProtocolMismatch");
    }
    let full = client.request("GET", &format!("/{table}()")).level("fullmetadata");
    let rows = full.header(PROTO, "https").send().expect_json();
    let address = client.url(&Table::new(&client, &table).path("p", "r")).replace("http://", "https://");
    assert_eq!(rows["value"][0]["odata.id"], address);
    let inserted =
        Table::new(&client, &table).inserting(&with_keys("p", "s", json!({}))).header(PROTO, "https");
    assert!(inserted.send().expect(201).need("Location").starts_with("https://"));
    // The issuer is asked, and is away, only where a token may be shown.
    let bearing = |proto: &str| {
        let auth = Auth::Header("Bearer eyJhbGciOiJSUzI1NiIsImtpZCI6ImsifQ.e30.AAAA".into());
        client.request("GET", "/Tables").auth(auth).header(PROTO, proto).unchecked().send().status
    };
    assert_eq!((bearing("https"), bearing("http")), (503, 403));
}

#[test]
fn whoever_is_not_trusted_says_it_in_vain() {
    for trusted in [None, Some(""), Some("10.0.0.0/8,::1,127.0.0.2")] {
        let server = server(trusted);
        let (client, table) = there(&server);
        let said = [(FOR, CLIENT), (PROTO, "https"), ("Forwarded", "for=203.0.113.7;proto=https")];
        refused(&read(&client, &table, ("sip", CLIENT), &said), "AuthorizationSourceIPMismatch");
        refused(&read(&client, &table, ("spr", "https"), &said), "AuthorizationProtocolMismatch");
        read(&client, &table, ("sip", "127.0.0.1"), &said).expect(200);
        let full = client.request("GET", &format!("/{table}()")).level("fullmetadata").header(PROTO, "https");
        let id = full.send().expect_json()["value"][0]["odata.id"].to_string();
        assert!(id.contains("http://"), "{id}");
    }
}
