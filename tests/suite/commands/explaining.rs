//! `rowhouse explain`: which keys are read, and what a page costs.

use serde_json::json;

use super::*;

#[test]
fn a_query_is_explained_from_the_database() {
    let site = Site::postgres();
    let added = account_of(&site.json(&["account", "add", "myaccount"]));
    let server = site.server(&[]);
    let client = Client::path_style(server.address(), added);
    let table = client.table();
    (0..20).for_each(|at| drop(table.seed(with_keys("p", &format!("{at:02}"), json!({ "N": at })))));
    drop(server);
    let name = table.name.as_str();
    fn words<'a>(name: &'a str, filter: &'a str) -> [&'a str; 5] {
        ["explain", name, filter, "--account", "myaccount"]
    }
    let explain = |filter: &str| site.json(&words(name, filter));
    let text =
        |filter: &str| String::from_utf8_lossy(&site.run_with(&words(name, filter), &[]).stdout).into_owned();
    let (shown, told) = (explain("N eq 3"), text("N eq 3"));
    let found = (&shown["index"], &shown["access"], &shown["advice"]);
    assert_eq!(found, (&Value::Null, &json!("scan"), &Value::Null));
    for part in ["Every entity of the table", "from the start of the table", "N eq 3", "1 entities of 20"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    site.json(&["index", "create", name, "N", "--account", "myaccount"]);
    let (shown, told) = (explain("N eq 3"), text("N eq 3"));
    assert_eq!((&shown["index"][0]["property"], &shown["access"]), (&json!("N"), &json!("index")), "{shown}");
    for part in ["An index names", "\nIndex: N (number)\n", "\nWithin: from the start", "1 entities of"] {
        assert!(told.contains(part), "{part} in {told}");
    }
    let order = ["--orderby", "PartitionKey desc,RowKey desc", "--top", "1"];
    let newest = site.json(&[&words(name, "")[..], &order].concat());
    assert_eq!(newest["summary"], "The table is read from its end, in descending order of keys.");
    // What clients are refused is explained, and how to turn it on.
    let advice = explain("startswith(N,'a')")["advice"].as_str().expect("advice").to_owned();
    assert!(advice.contains("`rowhouse account queries myaccount extended`"), "{advice}");
    assert!(text("N eq null").contains(&advice));
    site.json(&["account", "queries", "myaccount", "extended"]);
    assert_eq!(explain("startswith(N,'a')")["advice"], Value::Null);
    for wrong in [words(name, "N eq"), words("Nothing", "")] {
        assert!(!site.run_with(&wrong, &[]).status.success(), "{wrong:?}");
    }
}
