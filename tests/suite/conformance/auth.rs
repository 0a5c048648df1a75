//! SharedKey and SharedKeyLite (protocol §10.1 to §10.4).

use crate::support::sign::{hmac_base64, http_date};
use crate::support::*;
use serde_json::{Value, json};

cases! {
    both_schemes_are_accepted, both_keys_of_an_account_are_valid, the_path_is_signed_as_sent,
    options_are_not_signed, content_headers_are_signed_as_sent, the_date_header_serves_without_x_ms_date,
    x_ms_date_wins_over_date, a_date_within_a_quarter_of_an_hour_is_accepted,
    a_date_beyond_a_quarter_of_an_hour_is_turned_away, a_missing_or_malformed_date_is_turned_away,
    a_wrong_signature_is_turned_away, the_development_account_may_be_left_out_before_the_path,
    what_would_be_signed_for_another_address_may_not_leave_the_account_out,
    a_signature_of_another_request_is_turned_away, shared_key_covers_the_verb_and_the_content_type,
    a_malformed_authorization_is_a_bad_request, the_account_of_the_header_must_be_that_of_the_address,
    no_credentials_are_forbidden_in_older_versions, no_credentials_are_challenged_in_newer_versions,
    a_failure_speaks_xml_unless_json_is_mentioned, a_failure_without_a_version_has_the_oldest_form,
    tokens_came_with_a_version, a_failure_comes_before_the_existence_of_anything,
    an_unauthenticated_write_changes_nothing, an_unknown_account_is_not_found,
    the_secondary_reads_but_does_not_write,
}

fn both_schemes_are_accepted(client: &Client) {
    let t = client.table();
    for auth in [Auth::SharedKey, Auth::SharedKeyLite] {
        client.request("GET", &t.set()).auth(auth.clone()).send().expect(200);
        t.on("PUT", "p", "r").json(&json!({ "A": 1 })).auth(auth.clone()).send().expect(204);
        t.on("MERGE", "p", "r").json(&json!({ "A": 1 })).auth(auth.clone()).send().expect(204);
        t.on("DELETE", "p", "r").header("If-Match", "*").auth(auth).send().expect(204);
    }
}

fn both_keys_of_an_account_are_valid(client: &Client) {
    let t = client.table();
    client.request("GET", &t.set()).auth(Auth::SecondKey).send().expect(200);
    t.inserting(&with_keys("p", "r", json!({}))).auth(Auth::SecondKey).send().expect(201);
}

fn the_path_is_signed_as_sent(client: &Client) {
    let t = client.table();
    t.seed(with_keys("a'b é%+", "r", json!({})));
    for key in ["a''b%20%C3%A9%25+", "a%27%27b%20%c3%a9%25%2B", "%61''b%20%C3%A9%25%2b"] {
        for auth in [Auth::SharedKey, Auth::SharedKeyLite] {
            let path = format!("/{}(PartitionKey='{key}',RowKey='r')", t.name);
            client.request("GET", &path).auth(auth).send().expect(200);
        }
    }
}

fn options_are_not_signed(client: &Client) {
    let t = client.table();
    let path = format!("{}?$filter=A%20eq%201&$top=5&timeout=3&x=y", t.set());
    for auth in [Auth::SharedKey, Auth::SharedKeyLite] {
        client.request("GET", &path).auth(auth).send().expect(200);
    }
}

fn content_headers_are_signed_as_sent(client: &Client) {
    let t = client.table();
    let request = t.inserting(&with_keys("p", "r", json!({})));
    let request = request.header("Content-MD5", "Q2hlY2sgSW50ZWdyaXR5IQ==");
    request.header("Content-Type", "application/json; odata=nometadata").send().expect(201);
}

fn the_date_header_serves_without_x_ms_date(client: &Client) {
    let t = client.table();
    for auth in [Auth::SharedKey, Auth::SharedKeyLite] {
        let request = client.request("GET", &t.set()).date(None).header("Date", http_date(0));
        request.auth(auth).send().expect(200);
    }
}

fn x_ms_date_wins_over_date(client: &Client) {
    let t = client.table();
    let request = client.request("GET", &t.set()).header("Date", "Thu, 01 Jan 1970 00:00:00 GMT");
    request.send().expect(200);
}

fn a_date_within_a_quarter_of_an_hour_is_accepted(client: &Client) {
    let t = client.table();
    for seconds in [-14 * 60, 14 * 60] {
        client.request("GET", &t.set()).date(Some(http_date(seconds))).send().expect(200);
    }
}

fn a_date_beyond_a_quarter_of_an_hour_is_turned_away(client: &Client) {
    let t = client.table();
    for seconds in [-16 * 60, 16 * 60, -86_400, 86_400 * 365] {
        for auth in [Auth::SharedKey, Auth::SharedKeyLite] {
            let request = client.request("GET", &t.set()).date(Some(http_date(seconds))).auth(auth);
            request.send().turned_away(NOT_AUTHENTICATED);
        }
    }
}

fn a_missing_or_malformed_date_is_turned_away(client: &Client) {
    let t = client.table();
    client.request("GET", &t.set()).date(None).send().turned_away(NOT_AUTHENTICATED);
    for date in ["", "now", "2020-01-01T00:00:00Z", "Thu, 99 Jan 2020 00:00:00 GMT"] {
        client.request("GET", &t.set()).date(Some(date.into())).send().turned_away(NOT_AUTHENTICATED);
    }
}

/// SharedKey over the path alone, as HashiCorp's SDK signs for the development account.
fn sign_path(client: &Client, date: &str, verb: &str, kind: &str, path: &str) -> Auth {
    let text = format!("{verb}\n\n{kind}\n{date}\n{}", client.target(path));
    Auth::Header(format!("SharedKey {}:{}", client.account.name, hmac_base64(&client.account.keys[0], &text)))
}

/// Sends a request that is signed so.
fn signed_by_path(client: &Client, verb: &str, path: &str, body: Option<&Value>) -> Answer {
    let (date, kind) = (http_date(0), if body.is_some() { "application/json" } else { "" });
    let request = client.request(verb, path).auth(sign_path(client, &date, verb, kind, path));
    let request = if let Some(body) = body { request.json(body) } else { request };
    request.date(Some(date)).send()
}

fn the_development_account_may_be_left_out_before_the_path(client: &Client) {
    let client = &client.development();
    let t = client.table();
    let entity = with_keys("p", "r", json!({ "A": 1 }));
    signed_by_path(client, "POST", &t.set(), Some(&entity)).expect(201);
    signed_by_path(client, "GET", &t.path("p", "r"), None).expect(200);
    signed_by_path(client, "GET", &format!("{}?comp=acl", t.set()), None).expect(200);
    signed_by_path(client, "GET", "/Tables", None).expect(200);
    // The verb and the path are covered.
    let date = http_date(0);
    let stolen = sign_path(client, &date, "GET", "", &t.path("p", "r"));
    let request = |verb, path: &str| client.request(verb, path).date(Some(date.clone())).auth(stolen.clone());
    request("GET", &t.path("p", "r")).send().expect(200);
    request("DELETE", &t.path("p", "r")).header("If-Match", "*").send().turned_away(NOT_AUTHENTICATED);
    request("GET", &t.path("p", "s")).send().turned_away(NOT_AUTHENTICATED);
}

fn what_would_be_signed_for_another_address_may_not_leave_the_account_out(client: &Client) {
    let t = client.table();
    signed_by_path(client, "GET", &t.set(), None).turned_away(NOT_AUTHENTICATED);
    let secondary = client.development().secondary();
    signed_by_path(&secondary, "GET", "/Tables", None).turned_away(NOT_AUTHENTICATED);
    // What is signed here is what is signed for `/Tables` of the account.
    let client = &client.development();
    for path in ["/devstoreaccount1/Tables", "/devstoreaccount1", "/devstoreaccount1-secondary/Tables"] {
        signed_by_path(client, "GET", path, None).turned_away(NOT_AUTHENTICATED);
    }
}

fn a_wrong_signature_is_turned_away(client: &Client) {
    let t = client.table();
    let name = &client.account.name;
    let zeros = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for value in [
        format!("SharedKey {name}:{zeros}"),
        format!("SharedKeyLite {name}:{zeros}"),
        format!("SharedKey {name}:AAAA"),
        format!("SharedKey {name}:*not base64*"),
    ] {
        let request = client.request("GET", &t.set()).auth(Auth::Header(value));
        request.send().turned_away(NOT_AUTHENTICATED);
    }
}

fn a_signature_of_another_request_is_turned_away(client: &Client) {
    let t = client.table();
    let text = String::from_utf8(client.request("GET", &t.set()).bytes()).expect("plain text");
    let stolen =
        text.lines().find_map(|l| l.strip_prefix("Authorization: ")).expect("it is signed").to_owned();
    let date = text.lines().find_map(|l| l.strip_prefix("x-ms-date: ")).map(str::to_owned);
    let with = |verb: &str, path: &str| {
        client.request(verb, path).date(date.clone()).auth(Auth::Header(stolen.clone())).send()
    };
    with("GET", &t.set()).expect(200);
    with("GET", "/Tables").turned_away(NOT_AUTHENTICATED);
    with("DELETE", &t.set()).turned_away(NOT_AUTHENTICATED);
    let later = client.request("GET", &t.set()).date(Some(http_date(60))).auth(Auth::Header(stolen.clone()));
    later.send().turned_away(NOT_AUTHENTICATED);
}

fn shared_key_covers_the_verb_and_the_content_type(client: &Client) {
    let t = client.table();
    let text = String::from_utf8(t.inserting(&with_keys("p", "r", json!({}))).bytes()).expect("plain text");
    let other_type = text.replace("Content-Type: application/json\r\n", "Content-Type: text/json\r\n");
    let raw = client.wire().exchange("POST", other_type.as_bytes());
    assert_eq!(raw.status, 403);
    assert_eq!(t.count(), 0);
}

fn a_malformed_authorization_is_a_bad_request(client: &Client) {
    let t = client.table();
    for value in [
        "SharedKey",
        "SharedKey ",
        "SharedKey acct",
        "Frob acct:sig",
        "acct:sig",
        "Basic YTpi",
        "SharedKey:acct:sig",
    ] {
        let request = client.request("GET", &t.set()).auth(Auth::Header(value.into()));
        request.send().turned_away(BAD_AUTH_HEADER);
    }
}

fn the_account_of_the_header_must_be_that_of_the_address(client: &Client) {
    let Some(stranger) = client.neighbour() else { return };
    let t = client.table();
    let text = String::from_utf8(client.request("GET", &t.set()).bytes()).expect("plain text");
    let mixed =
        text.replacen(&format!("GET {}", client.target("")), &format!("GET {}", stranger.target("")), 1);
    assert_eq!(client.wire().exchange("GET", mixed.as_bytes()).status, 403);
}

fn no_credentials_are_forbidden_in_older_versions(client: &Client) {
    let t = client.table();
    for version in ["2013-08-15", "2019-02-02", "2019-07-07", "2020-12-05"] {
        let request = client.request("GET", &t.set()).auth(Auth::None).version(version);
        let answer = request.send().turned_away(NOT_AUTHENTICATED);
        assert_eq!(answer.header("WWW-Authenticate"), None);
    }
}

fn no_credentials_are_challenged_in_newer_versions(client: &Client) {
    let t = client.table();
    for version in ["2020-12-06", "2024-08-04"] {
        let request = client.request("GET", &t.set()).auth(Auth::None).version(version);
        let answer = request.send().turned_away(NO_CREDENTIALS);
        let challenge = answer.need("WWW-Authenticate");
        assert!(challenge.starts_with("Bearer authorization_uri=https://"), "{challenge}");
        assert!(challenge.contains(" resource_id=https://storage.azure.com"), "{challenge}");
    }
}

fn a_failure_speaks_xml_unless_json_is_mentioned(client: &Client) {
    let t = client.table();
    for accept in ["application/xml", "application/atom+xml", "*/*"] {
        let request = client.request("GET", &t.set()).auth(Auth::None).header("Accept", accept);
        request.send().turned_away(NOT_AUTHENTICATED);
    }
    client.request("GET", &t.set()).auth(Auth::None).without("Accept").send().turned_away(NOT_AUTHENTICATED);
    for accept in ["application/json", "application/json;odata=nometadata", "text/html,application/json"] {
        let request = client.request("GET", &t.set()).auth(Auth::None).header("Accept", accept);
        request.send().turned_away(NOT_AUTHENTICATED);
    }
}

fn a_failure_without_a_version_has_the_oldest_form(client: &Client) {
    let t = client.table();
    let token = Auth::Header("Bearer e30.e30.e30".into());
    let forged = Auth::Header(format!("SharedKey {}:AAAA", client.account.name));
    for auth in [Auth::None, token, forged] {
        let get = client.request("GET", &t.set()).auth(auth).without("x-ms-version");
        for accept in ["application/json", "application/json;odata=nometadata", "*/*", "application/atom+xml"]
        {
            let answer = get.clone().header("Accept", accept).send().turned_away(NOT_AUTHENTICATED);
            assert_eq!(answer.header("WWW-Authenticate"), None, "{answer}");
        }
        get.without("Accept").send().turned_away(NOT_AUTHENTICATED);
    }
}

fn tokens_came_with_a_version(client: &Client) {
    let t = client.table();
    let get = client.request("GET", &t.set()).auth(Auth::Header("Bearer e30.e30.e30".into()));
    let answer = get.version("2017-07-29").send().turned_away(NOT_AUTHENTICATED);
    assert_eq!(answer.header("WWW-Authenticate"), None, "{answer}");
}

fn a_failure_comes_before_the_existence_of_anything(client: &Client) {
    let missing = fresh_name();
    let get = |path: String| client.request("GET", &path).auth(Auth::None).send();
    get(format!("/{missing}()")).turned_away(NOT_AUTHENTICATED);
    get(format!("/Tables('{missing}')")).turned_away(NOT_AUTHENTICATED);
    get("/not a table".replace(' ', "%20")).turned_away(NOT_AUTHENTICATED);
}

fn an_unauthenticated_write_changes_nothing(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let forged = || Auth::Header(format!("SharedKey {}:AAAA", client.account.name));
    t.inserting(&with_keys("p", "2", json!({}))).auth(forged()).send().turned_away(NOT_AUTHENTICATED);
    t.on("PUT", "p", "r").json(&json!({})).auth(forged()).send().turned_away(NOT_AUTHENTICATED);
    t.on("DELETE", "p", "r").header("If-Match", "*").auth(forged()).send().turned_away(NOT_AUTHENTICATED);
    client
        .request("DELETE", &format!("/Tables('{}')", t.name))
        .auth(forged())
        .send()
        .turned_away(NOT_AUTHENTICATED);
    assert_eq!(t.properties(), json!({ "A": 1 }));
    assert_eq!(t.count(), 1);
}

fn an_unknown_account_is_not_found(client: &Client) {
    if client.neighbour().is_none() {
        return; // Elsewhere the name of the host decides.
    }
    let stranger =
        crate::support::client::Account { name: "nobody".into(), keys: client.account.keys.clone() };
    let nobody = Client::path_style(client.wire().address(), stranger);
    let answer = nobody.get("/Tables");
    assert_eq!(answer.status, 404, "{answer}");
    assert!(answer.text().contains("ResourceNotFound"), "{answer}");
}

fn the_secondary_reads_but_does_not_write(client: &Client) {
    if client.neighbour().is_none() {
        return;
    }
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let secondary = client.secondary();
    let there = Table::new(&secondary, t.name.clone());
    assert_eq!(there.properties(), json!({ "A": 1 }));
    assert_eq!(there.count(), 1);
    there.insert(&with_keys("p", "2", json!({}))).refused(WRITE_ON_SECONDARY);
    there.merge("p", "r", &json!({}), None).refused(WRITE_ON_SECONDARY);
    there.delete("p", "r", Some("*")).refused(WRITE_ON_SECONDARY);
    secondary.create_table(&fresh_name()).refused(WRITE_ON_SECONDARY);
    secondary.delete_table(&t.name).refused(WRITE_ON_SECONDARY);
    let batch = Batch::new().insert(&there, &with_keys("p", "new", json!({})));
    batch.send(&secondary).refused(0, WRITE_ON_SECONDARY);
    assert_eq!(t.properties(), json!({ "A": 1 }));
}
