//! `rowhouse count` of databases, and the totals of `/tables`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

use super::copying::batch_rows;
use super::*;
use crate::operators::{TOKEN, admin_of, call, done, refused};
use crate::support::postgres::execute;

/// More than `/tables` looks at.
const ROWS: usize = 10_300;

#[test]
fn large_tables_are_estimated_and_counted_exactly_on_request() {
    let site = Site::postgres();
    let more = ["--admin-listen", "127.0.0.1:0", "--admin-token", TOKEN, "--table-spread", "16"];
    let (server, client) = site.served(&more);
    let admin = admin_of(&server);
    let (small, large) = (client.table(), client.table());
    small.seed(with_keys("p", "r", json!({})));
    (0..10).for_each(|number| batch_rows(&large, &format!("p{number}"), 1000));
    batch_rows(&large, "p10", 300);
    let total = |name: &str| {
        let listed = done(&call(&admin, "GET", "/tables?account=acct0001", ""), 200);
        let tables = listed["tables"].as_array().expect("tables").clone();
        tables.into_iter().find(|t| t["name"] == name).expect("the table")["total"].clone()
    };
    let exact = total(&small.name);
    assert_eq!((&exact["entities"], &exact["basis"]), (&json!(1), &json!("exact")));
    // Before the planner knows the table.
    let first = total(&large.name);
    assert!(["atLeast", "estimated"].iter().any(|basis| first["basis"] == *basis), "{first}");
    assert!(first["entities"].as_u64().is_some_and(|entities| entities > 10_000), "{first}");
    execute(&site.url, "ANALYZE entities");
    let estimated = total(&large.name);
    assert_eq!(estimated["basis"], "estimated");
    let entities = estimated["entities"].as_u64().expect("a number");
    assert!((10_001..11_000).contains(&entities), "{estimated}");
    assert!(estimated["bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{estimated}");
    large.delete("p0", "000000", Some("*")).expect(204);

    let path = format!("/accounts/acct0001/tables/{}/count", large.name);
    let asked = |query: &str| done(&call(&admin, "GET", &format!("{path}{query}"), ""), 200);
    let all = json!({ "entities": ROWS - 1, "complete": true, "next": null });
    assert_eq!(asked(""), all);
    assert_eq!(asked("?filter=N%20lt%2050")["entities"], 549);
    assert_eq!(asked("?filter=PartitionKey%20eq%20%27p3%27")["entities"], 1000);
    // Operators may ask what the account's clients may not.
    assert_eq!(asked("?filter=startswith(RowKey,%270000%27)")["entities"], 1099);
    assert_eq!(asked("?filter=substringof(%27a%27,N)")["entities"], 0);
    for wrong in ["?filter=N%20lt", "?from=x", "?filter=length(N)%20eq%201"] {
        let refused = call(&admin, "GET", &format!("{path}{wrong}"), "");
        assert!([400, 501].contains(&refused.status), "{refused:?}");
    }
    // Where a count was that began before the table got the buckets that it has.
    let former = URL_SAFE_NO_PAD.encode(r#"[1,0,"p3",""]"#);
    refused(&call(&admin, "GET", &format!("{path}?from={former}"), ""), 409, "TableRespread");
    // The command counts beside the server.
    let count = |more: &[&str]| {
        let place = format!("{}#acct0001", site.url);
        let place = ["count", &place, "--include", &large.name];
        let output = site.ends(&[&place[..], &["--json", "--progress", "json"], more].concat(), 0, &[]);
        let printed: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        printed["tables"][&large.name].clone()
    };
    assert_eq!(count(&[]), ROWS - 1);
    assert_eq!(count(&["--filter", "N lt 50"]), 549);
    assert_eq!(count(&["--filter", "PartitionKey eq 'p3'"]), 1000);
    // A table that is made anew is not what was counted.
    client.delete_table(&large.name).expect(204);
    client.create_table(&large.name).expect(201);
    let anew = total(&large.name);
    assert_eq!((&anew["entities"], &anew["basis"]), (&json!(0), &json!("exact")));
}
