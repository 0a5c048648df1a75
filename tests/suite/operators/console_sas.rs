//! `/sas` and `/sas/inspect`: what is made is taken by the server, and what the
//! server refuses is explained.

use super::console::console;
use super::*;

fn post(admin: &Wire, path: &str, body: &Value) -> Raw {
    call(admin, "POST", path, &body.to_string())
}

#[test]
fn what_is_signed_is_taken_and_inspected_as_good() {
    let (server, admin, client) = console("sqlite::memory:", &[]);
    let name = fresh_name();
    client.create_table(&name).expect(201);
    let account = &client.account.name;
    for key in [1, 2] {
        for table in [json!(name), Value::Null] {
            let permissions = if table.is_null() { "rl" } else { "r" };
            let asked = json!({ "account": account, "table": table, "permissions": permissions, "expiry": "1h", "key": key });
            let signed = done(&post(&admin, "/sas", &asked), 200);
            let token = signed["token"].as_str().expect("a token");
            client.bearing(token).get(&format!("/{name}()")).expect(200);
            client
                .bearing(token)
                .request("POST", &format!("/{name}"))
                .json(&with_keys("p", "r", json!({})))
                .send()
                .expect(403);
            let url = format!("http://{}/{account}/{name}?{token}", server.address());
            let shown = done(&post(&admin, "/sas/inspect", &json!({ "url": url, "method": "GET" })), 200);
            assert_eq!((&shown["valid"], &shown["signedBy"]), (&json!(true), &json!(key)), "{shown}");
            assert_eq!(shown["action"]["allowed"], true, "{shown}");
            let shown = done(&post(&admin, "/sas/inspect", &json!({ "url": url, "method": "POST" })), 200);
            assert_eq!(shown["action"]["code"], "AuthorizationPermissionMismatch", "{shown}");
        }
    }
    let log = server.log();
    assert!(log.lines().any(|line| line.contains("POST /sas") && line.contains(account.as_str())), "{log}");
    assert!(!log.contains("sig="), "{log}");
}

#[test]
fn a_policy_is_read_and_its_lack_explained() {
    let (_server, admin, client) = console("sqlite::memory:", &[]);
    let name = fresh_name();
    client.create_table(&name).expect(201);
    let asked = json!({ "account": client.account.name, "table": name, "policy": "readers" });
    let signed = done(&post(&admin, "/sas", &asked), 200);
    let url = json!({ "url": signed["url"] });
    let shown = done(&post(&admin, "/sas/inspect", &url), 200);
    let problems = shown["problems"].to_string();
    assert!(problems.contains("has no stored policy") && shown["signedBy"] == 1, "{shown}");
    let policies = "<SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy>\
                    <Expiry>2099-01-01T00:00:00Z</Expiry><Permission>r</Permission>\
                    </AccessPolicy></SignedIdentifier></SignedIdentifiers>";
    client
        .request("PUT", &format!("/{name}?comp=acl"))
        .header("Accept", "application/xml")
        .header("Content-Type", "application/xml")
        .body(policies)
        .send()
        .expect(204);
    let shown = done(&post(&admin, "/sas/inspect", &url), 200);
    assert_eq!(shown["valid"], true, "{shown}");
}

#[test]
fn what_is_wrong_is_named_and_no_key_revealed() {
    let (_server, admin, client) = console("sqlite::memory:", &[]);
    let name = fresh_name();
    client.create_table(&name).expect(201);
    let account = &client.account.name;
    let sas = Sas::table(&name, "r").set("sip", "10.0.0.1").set("spr", "https").query(&client.account);
    let inspect = |body: Value| post(&admin, "/sas/inspect", &body);
    let shown = done(
        &inspect(json!({ "token": sas, "account": account, "https": false, "address": "10.0.0.2" })),
        200,
    );
    let codes: Vec<&str> =
        shown["problems"].as_array().expect("a list").iter().filter_map(|p| p["code"].as_str()).collect();
    assert_eq!(codes, ["AuthorizationProtocolMismatch", "AuthorizationSourceIPMismatch"], "{shown}");
    assert!(!shown.to_string().contains(&client.account.keys[0]), "{shown}");
    let forged = sas.replace("sp=r", "sp=raud");
    let shown = done(&inspect(json!({ "token": forged, "account": account, "address": "10.0.0.1" })), 200);
    let right = sas.rsplit("sig=").next().expect("a signature");
    assert!(shown["signedBy"].is_null() && !shown.to_string().contains(right), "{shown}");
    for (body, status, code) in [
        (json!({}), 400, "BadRequest"),
        (json!({ "token": "x", "url": "y" }), 400, "BadRequest"),
        (json!({ "token": sas }), 400, "BadRequest"),
        (json!({ "token": sas, "account": "nobody" }), 404, "AccountNotFound"),
        (json!({ "token": "a=b", "account": account }), 400, "AuthenticationFailed"),
        (json!({ "token": "sig=%", "account": account }), 400, "InvalidQueryParameterValue"),
        (json!({ "token": sas, "account": account, "address": "x" }), 400, "BadRequest"),
        (json!({ "token": sas, "account": account, "method": "BREW" }), 400, "MethodNotAllowed"),
    ] {
        refused(&inspect(body), status, code);
    }
    for (change, code) in [
        (json!({ "permissions": "x" }), "InvalidSas"),
        (json!({ "account": 1 }), "BadRequest"),
        (json!({ "table": "" }), "InvalidSas"),
        // They would be left out of a SAS for the whole account.
        (json!({ "table": Value::Null, "policy": "readers" }), "InvalidSas"),
        (json!({ "table": Value::Null, "startPartitionKey": "p" }), "InvalidSas"),
        (json!({ "table": Value::Null, "endRowKey": "r" }), "InvalidSas"),
        (json!({ "resourceTypes": "o" }), "InvalidSas"),
    ] {
        let mut body = json!({ "account": account, "table": name, "permissions": "r", "expiry": "1h" });
        change.as_object().expect("members").iter().for_each(|(name, value)| body[name] = value.clone());
        refused(&post(&admin, "/sas", &body), 400, code);
    }
    let third = json!({ "account": account, "table": name, "permissions": "r", "expiry": "1h", "key": 3 });
    refused(&post(&admin, "/sas", &third), 409, "NoSuchKey");
}
