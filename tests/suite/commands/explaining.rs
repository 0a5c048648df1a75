//! `rowhouse explain`: which keys are read, and what a page costs.

use serde_json::json;

use super::*;

#[test]
fn a_query_is_explained_from_the_database() {
    for site in Site::both() {
        let added = account_of(&site.json(&["account", "add", "myaccount"]));
        let server = site.server(&[]);
        let client = Client::path_style(server.address(), added);
        let table = client.table();
        for at in 0..20 {
            table
                .insert(&with_keys(&format!("p{}", at % 2), &format!("{at:02}"), json!({ "N": at })))
                .expect(201);
        }
        drop(server);
        let name = table.name.as_str();
        let explain = |filter: &str| site.json(&["explain", name, filter, "--account", "myaccount"]);
        let shown = explain("PartitionKey eq 'p1' and N lt 5");
        assert_eq!((&shown["access"], &shown["cost"]["rowsLookedAt"]), (&json!("partition"), &json!(10)));
        assert_eq!(shown["cost"]["rowsReturned"], 2);
        let arguments = ["explain", name, "N eq 3", "--account", "myaccount"];
        let text = site.run_with(&arguments, &[]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        for part in ["Every entity of the table", "from the start of the table", "N eq 3", "1 entities of 20"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(
            (&explain("N eq 3")["index"], &explain("N eq 3")["access"]),
            (&Value::Null, &json!("scan"))
        );
        site.json(&["index", "create", name, "N", "--account", "myaccount"]);
        let shown = explain("N eq 3");
        let index = json!([{ "property": "N", "kind": "number" }]);
        assert_eq!((&shown["index"], &shown["access"]), (&index, &json!("index")), "{shown}");
        let text = site.run_with(&arguments, &[]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        for part in ["An index names", "\nIndex: N (number)\n", "\nWithin: from the start", "1 entities of"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        let order = ["--orderby", "PartitionKey desc,RowKey desc", "--account", "myaccount"];
        let newest = site.json(&[&["explain", name, "", "--top", "1"][..], &order].concat());
        assert_eq!(newest["summary"], "The table is read from its end, in descending order of keys.");
        // What clients are refused is explained, and how to turn it on.
        let shown = explain("startswith(N,'a')");
        let advice = shown["advice"].as_str().expect("advice");
        assert!(advice.contains("`rowhouse account queries myaccount extended`"), "{advice}");
        assert_eq!((&shown["access"], &explain("N eq 3")["advice"]), (&json!("scan"), &Value::Null));
        let text = site.run_with(&["explain", name, "N eq null", "--account", "myaccount"], &[]);
        assert!(String::from_utf8_lossy(&text.stdout).contains(advice), "{text:?}");
        site.json(&["account", "queries", "myaccount", "extended"]);
        assert_eq!(explain("startswith(N,'a')")["advice"], Value::Null);
        let wrong = site.run_with(&["explain", name, "N eq", "--account", "myaccount"], &[]);
        assert!(!wrong.status.success(), "{wrong:?}");
        let missing = site.run_with(&["explain", "Nothing", "", "--account", "myaccount"], &[]);
        assert!(!missing.status.success(), "{missing:?}");
    }
}
