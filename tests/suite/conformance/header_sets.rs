//! The headers of every operation's answer, no more and no fewer (protocol
//! §2.2). What each of them says is asserted by topic.

use serde_json::json;

use crate::support::batch::post;
use crate::support::*;

cases! {
    answers_about_tables, answers_about_entities, answers_to_transactions, answers_in_xml,
    refusals_of_the_table_layer, refusals_before_and_beside_the_table_layer,
}

/// What every answer carries.
const ALWAYS: [&str; 5] = ["Date", "Server", "x-ms-client-request-id", "x-ms-request-id", "x-ms-version"];
/// What every answer of the table layer carries.
const TABLE_LAYER: [&str; 2] = ["Cache-Control", "X-Content-Type-Options"];
/// What a body brings along.
const BODY: [&str; 2] = ["Content-Length", "Content-Type"];
/// What an answer without one has instead.
const NO_BODY: [&str; 1] = ["Content-Length"];

#[track_caller]
fn carries(answer: &Answer, status: u16, sets: &[&[&str]]) {
    assert_eq!(answer.status, status, "{answer}");
    let mut expected: Vec<&str> = ALWAYS.into_iter().chain(sets.concat()).collect();
    let mut found: Vec<&str> =
        answer.headers.iter().map(|(n, _)| n.as_str()).filter(|n| *n != "Connection").collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{answer}");
    for (name, value) in [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-cache")] {
        assert!(answer.header(name).is_none_or(|found| found == value), "{answer}");
    }
}

fn answers_about_tables(client: &Client) {
    let t = client.table();
    client.table();
    carries(&client.get("/Tables"), 200, &[&TABLE_LAYER, &BODY]);
    let page = client.get("/Tables?$top=1");
    carries(&page, 200, &[&TABLE_LAYER, &BODY, &["x-ms-continuation-NextTableName"]]);
    carries(&client.get(&format!("/Tables('{}')", t.name)), 200, &[&TABLE_LAYER, &BODY]);
    let create = |prefer: Option<&str>| {
        let request = client.request("POST", "/Tables").json(&json!({ "TableName": fresh_name() }));
        prefer.map_or(request.clone(), |prefer| request.header("Prefer", prefer)).send()
    };
    carries(&create(None), 201, &[&TABLE_LAYER, &BODY, &["Location"]]);
    let content = create(Some("return-content"));
    carries(&content, 201, &[&TABLE_LAYER, &BODY, &["Location", "Preference-Applied"]]);
    let none = create(Some("return-no-content"));
    carries(&none, 204, &[&TABLE_LAYER, &NO_BODY, &["DataServiceId", "Location", "Preference-Applied"]]);
    carries(&client.delete_table(&t.name), 204, &[&TABLE_LAYER, &NO_BODY]);
}

fn answers_about_entities(client: &Client) {
    let t = client.table();
    let insert = |row: &str, prefer: Option<&str>| {
        let request = t.inserting(&with_keys("p", row, json!({ "A": 1 })));
        prefer.map_or(request.clone(), |prefer| request.header("Prefer", prefer)).send()
    };
    carries(&insert("1", None), 201, &[&TABLE_LAYER, &BODY, &["ETag", "Location"]]);
    let content = insert("2", Some("return-content"));
    carries(&content, 201, &[&TABLE_LAYER, &BODY, &["ETag", "Location", "Preference-Applied"]]);
    let none = insert("3", Some("return-no-content"));
    carries(
        &none,
        204,
        &[&TABLE_LAYER, &NO_BODY, &["DataServiceId", "ETag", "Location", "Preference-Applied"]],
    );
    carries(&t.get("p", "1"), 200, &[&TABLE_LAYER, &BODY, &["ETag"]]);
    let known = t.on("GET", "p", "1").header("If-None-Match", "*").send();
    carries(&known, 304, &[&TABLE_LAYER, &["ETag"]]);
    carries(&t.query(""), 200, &[&TABLE_LAYER, &BODY]);
    let next = ["x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey"];
    carries(&t.query("?$top=1"), 200, &[&TABLE_LAYER, &BODY, &next]);
    for verb in ["PUT", "MERGE", "PATCH"] {
        for (row, condition) in [("1", Some("*")), ("new", None)] {
            let write = t.on(verb, "p", row).json(&json!({})).header("Prefer", "return-content");
            carries(&write.if_match(condition).send(), 204, &[&TABLE_LAYER, &NO_BODY, &["ETag"]]);
        }
    }
    carries(&t.delete("p", "1", Some("*")), 204, &[&TABLE_LAYER, &NO_BODY]);
}

fn answers_to_transactions(client: &Client) {
    let t = client.table();
    let batch = || Batch::new().insert(&t, &with_keys("p", "r", json!({})));
    carries(&post(client, batch().body()).send(), 202, &[&TABLE_LAYER, &BODY]);
    // The same again fails inside.
    carries(&post(client, batch().body()).send(), 202, &[&TABLE_LAYER, &BODY]);
    carries(&post(client, Batch::new().body()).send(), 202, &[&TABLE_LAYER, &BODY]);
    carries(&post(client, "x").send(), 400, &[&TABLE_LAYER, &BODY]);
}

fn answers_in_xml(client: &Client) {
    let t = client.table();
    let acl = format!("{}?comp=acl", t.set());
    let properties = "/?restype=service&comp=properties";
    carries(&client.get(&acl), 200, &[&BODY]);
    carries(&client.get(properties), 200, &[&BODY]);
    carries(&client.secondary().get("/?restype=service&comp=stats"), 200, &[&BODY]);
    for path in [acl.as_str(), properties] {
        carries(&client.request("HEAD", path).send(), 200, &[&BODY]);
    }
    let put = client.request("PUT", &acl).header("Accept", "application/xml").send();
    carries(&put, 204, &[&NO_BODY]);
    let put = client
        .request("PUT", properties)
        .body("<StorageServiceProperties><Cors/></StorageServiceProperties>")
        .send();
    carries(&put, 202, &[&NO_BODY]);
}

fn refusals_of_the_table_layer(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let early = ["X-Content-Type-Options"];
    let missing = Table::new(client, fresh_name());
    carries(&t.get("p", "none"), 404, &[&TABLE_LAYER, &BODY]);
    let old = "W/\"datetime'2012-06-15T22%3A51%3A44.9662825Z'\"";
    carries(&t.delete("p", "r", Some(old)), 412, &[&TABLE_LAYER, &BODY]);
    carries(&t.delete("p", "r", Some("W/\"x\"")), 412, &[&early, &BODY]);
    carries(&client.create_table(&t.name), 409, &[&TABLE_LAYER, &BODY]);
    carries(&missing.get("p", "r"), 404, &[&early, &BODY]);
    carries(&t.filter("aaa bbb ccc"), 400, &[&early, &BODY]);
    carries(&t.get("a\tb", "r"), 400, &[&early, &BODY]);
    carries(&t.get("a#b", "r"), 404, &[&TABLE_LAYER, &BODY]);
    let put = |key: &str| t.on("PUT", key, "r").json(&json!({})).header("Prefer", "return-no-content").send();
    carries(&put("a\tb"), 400, &[&early, &BODY]);
    carries(&put("a#b"), 400, &[&TABLE_LAYER, &BODY, &["Preference-Applied"]]);
    carries(&client.request("PUT", "/Tables").send(), 405, &[&early, &BODY, &["Allow"]]);
    // The preference is repeated by whoever has come to read it.
    let insert =
        |t: &Table| t.inserting(&with_keys("p", "r", json!({}))).header("Prefer", "return-no-content").send();
    carries(&insert(&t), 409, &[&TABLE_LAYER, &BODY, &["Preference-Applied"]]);
    carries(&insert(&missing), 404, &[&early, &BODY]);
    // A body that is refused while it is read, and a head that is refused before.
    let post = |body: serde_json::Value| t.inserting(&body).header("Prefer", "return-no-content");
    let old = json!({ "D@odata.type": "Edm.DateTime", "D": "1600-01-01T00:00:00Z" });
    for refused in
        [with_keys("a#b", "r", json!({})), with_keys("p", "a/b", json!({})), with_keys("p", "d", old)]
    {
        carries(&post(refused).send(), 400, &[&early, &BODY]);
    }
    carries(&post(json!({})).raw_json("{").send(), 400, &[&early, &BODY]);
    carries(&post(json!({})).without("Content-Type").send(), 400, &[&early, &BODY]);
    // No permission is a matter of the table layer too.
    let blind = Sas::table(&t.name, "a").of(client);
    carries(&Table::new(&blind, t.name.clone()).get("p", "r"), 403, &[&TABLE_LAYER, &BODY]);
}

fn refusals_before_and_beside_the_table_layer(client: &Client) {
    let code = ["x-ms-error-code"];
    let forged = Auth::Header(format!("SharedKey {}:AAAA", client.account.name));
    carries(&client.request("GET", "/Tables").auth(forged).send(), 403, &[&BODY, &code]);
    let nobody = client.request("GET", "/Tables").version("2020-12-06").auth(Auth::None);
    carries(&nobody.send(), 401, &[&BODY, &code, &["WWW-Authenticate"]]);
    carries(&client.get(&format!("/{}?comp=acl", fresh_name())), 404, &[&BODY, &code]);
    carries(&client.get("/?restype=service&comp=stats"), 400, &[&BODY, &code]);
    let too_large = post(client, " ".repeat(4 * 1024 * 1024 + 1)).header("Prefer", "return-no-content");
    carries(&too_large.send(), 413, &[&BODY, &code]);
    let preflight = client.request("OPTIONS", "/Tables").unchecked();
    carries(&preflight.send(), 400, &[&BODY, &code]);
    let wrong = client.request("POST", "/?restype=service&comp=properties").send();
    carries(&wrong, 405, &[&BODY, &code, &["Allow"]]);
}
