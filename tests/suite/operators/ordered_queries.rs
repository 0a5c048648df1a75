//! Queries in the order of a property that has an index, for accounts with extended queries.

use std::sync::OnceLock;

use super::*;
use crate::support::batch::{BatchAnswer, post, query_batch};

/// A server for each kind of database, with a table of 40 entities and indexes over N, Name and Timestamp.
struct Site {
    _server: Process,
    admin: Wire,
    client: Client,
    table: String,
}

fn sites() -> &'static [Site; 2] {
    static SITES: OnceLock<[Site; 2]> = OnceLock::new();
    SITES.get_or_init(|| ["sqlite::memory:".to_owned(), fresh_database()].map(|database| site(&database)))
}

fn site(database: &str) -> Site {
    let name = account(1).name;
    let (server, admin) = server(database, &["--admin-token", TOKEN, "--extended-queries", &name]);
    let client = server.client();
    let table = client.table();
    for at in 0..40 {
        let keys = |properties| with_keys(["a", "b", "c", "d"][at % 4], &format!("{at:02}"), properties);
        table.seed(match at {
            // Without N, and with N of another type.
            0..4 => keys(json!({ "Name": format!("n{at:02}") })),
            4 => keys(json!({ "N": "text", "Name": "é" })),
            _ => keys(json!({ "N": (at * 7) % 12, "Name": format!("n{:02}", 99 - at) })),
        });
    }
    let table = table.name.clone();
    for property in ["N", "Name", "Timestamp"] {
        let kind = if property == "N" { json!("number") } else { Value::Null };
        let body = json!({ "account": name, "table": table, "property": property, "kind": kind });
        assert_eq!(call(&admin, "POST", "/indexes", &body.to_string()).status, 201, "{property}");
    }
    let list = || done(&call(&admin, "GET", "/indexes", ""), 200);
    until("they are built", || {
        list().as_array().expect("a list").iter().all(|index| index["state"] == "ready")
    });
    let there = Table::new(&client, &table);
    until("the server knows them", || there.query("?$orderby=Timestamp").status == 200);
    Site { _server: server, admin, table, client }
}

/// What an ascending order by a property is: missing values, other types, then values, each by keys.
fn sorted(mut entities: Vec<Value>, property: &str) -> Vec<Value> {
    let rank = |entity: &Value| match &entity[property] {
        Value::Null => (0, 0, String::new()),
        Value::Number(number) => (2, number.as_i64().expect("an integer"), String::new()),
        Value::String(text) if property == "N" => (1, 0, text.clone()),
        Value::String(text) => (2, 0, text.clone()),
        other => panic!("{other}"),
    };
    let of =
        |entity: &Value| (rank(entity), entity["PartitionKey"].to_string(), entity["RowKey"].to_string());
    entities.sort_by_key(of);
    entities
}

#[test]
fn a_property_with_an_index_orders_pages_in_both_directions() {
    for site in sites() {
        let t = Table::new(&site.client, &site.table);
        for filter in ["", "not (N ge 3)", "startswith(Name,'n8') and N gt 2"] {
            let filter = format!("$filter={}", escape(filter));
            for property in ["N", "Name", "Timestamp"] {
                let expected = sorted(t.pages(&filter).concat(), property);
                for top in ["", "&$top=3"] {
                    let ascending = t.pages(&format!("$orderby={property}&{filter}{top}")).concat();
                    assert_eq!(keys_of(&ascending), keys_of(&expected), "{property} {filter}{top}");
                    let mut descending =
                        t.pages(&format!("$orderby={property}%20desc&{filter}{top}")).concat();
                    descending.reverse();
                    assert_eq!(keys_of(&descending), keys_of(&expected), "{property} desc {filter}{top}");
                }
            }
        }
        let selected = rows(t.query("?$orderby=N%20desc&$select=RowKey,N&$top=2").expect_json());
        assert_eq!(selected.len(), 2);
        assert!(selected.iter().all(|row| row["N"] == 11 && row["Name"].is_null()), "{selected:?}");
        assert_eq!(rows(t.query("?$orderby=N&$top=0").expect_json()), Vec::<Value>::new());
        // A query in a batch is ordered too.
        let url = site.client.url(&format!("{}?$orderby=Name%20desc&$top=2", t.set()));
        let answer = BatchAnswer::of(post(&site.client, query_batch(&url)).send());
        let found = rows(serde_json::from_str(&answer.parts[0].body).expect("a feed"));
        assert_eq!(row_keys(&found), "04,05");
    }
}

#[test]
fn a_sas_with_a_range_of_keys_has_the_order_of_keys_alone() {
    for site in sites() {
        let t = Table::new(&site.client, &site.table);
        let token = next_page(&t.query("?$orderby=N&$top=20")).expect("there is more");
        for (start, end) in [
            ((Some("b"), Some("09")), (Some("b"), Some("25"))),
            ((Some("b"), None), (None, None)),
            ((None, None), (Some("b"), None)),
        ] {
            let bearer = Sas::table(&t.name, "r").range(start, end).of(&site.client);
            let there = Table::new(&bearer, &t.name);
            // Its tokens would tell keys and values of entities outside the range.
            for options in ["", "%20desc&$top=2", "&$filter=RowKey%20ge%20''", &token] {
                there.query(&format!("?$orderby=N{options}")).refused(NOT_IMPLEMENTED);
            }
            let options = "$orderby=PartitionKey%20desc,RowKey%20desc&$top=2";
            let mut inside = keys_of(&there.pages("").concat());
            inside.reverse();
            assert_eq!(keys_of(&there.pages(options).concat()), inside, "{start:?} {end:?}");
        }
        let bearer = Sas::table(&t.name, "r").of(&site.client);
        let found = Table::new(&bearer, &t.name).pages("$orderby=N&$top=7").concat();
        assert_eq!(keys_of(&found), keys_of(&sorted(t.pages("").concat(), "N")), "a SAS without a range");
    }
}

#[test]
fn a_token_belongs_to_its_order() {
    for site in sites() {
        let t = Table::new(&site.client, &site.table);
        let orders = [
            "",
            "$orderby=PartitionKey%20desc,RowKey%20desc",
            "$orderby=N",
            "$orderby=N%20desc",
            "$orderby=Name",
        ];
        for of in orders {
            let token = next_page(&t.query(&format!("?$top=2&{of}"))).expect("there is more");
            for to in orders {
                let answer = t.query(&format!("?{to}{token}"));
                let _ = if of == to { answer.expect(200) } else { answer.refused(INVALID_INPUT) };
            }
        }
        // Neither keys nor a number that is none begin a page in the order of an index.
        let no_number = rowhouse_protocol::plan::page::encode_token("\0\x001\0a\0n7ff8000000000000\0p");
        for partition in ["p", &no_number] {
            let page = format!("?$orderby=N&NextPartitionKey={partition}&NextRowKey=1!0!");
            t.query(&page).refused(INVALID_INPUT);
        }
    }
}

#[test]
fn an_order_without_an_index_is_refused_and_the_missing_index_is_named() {
    for site in sites() {
        let t = Table::new(&site.client, &site.table);
        for order in ["Missing", "n", "N,Name", "N%20desc,RowKey%20desc"] {
            t.query(&format!("?$orderby={order}")).refused(NOT_IMPLEMENTED);
        }
        let explain = |order: &str| {
            let asked =
                json!({ "account": account(1).name, "table": t.name, "filter": "N ge 3", "orderby": order });
            json_of(&call(&site.admin, "POST", "/explain", &asked.to_string()))
        };
        let refused = explain("Missing desc");
        assert_eq!(refused["access"], "refused", "{refused}");
        let command = format!("rowhouse index create {} Missing --account {}", t.name, account(1).name);
        assert!(refused["advice"].as_str().is_some_and(|advice| advice.contains(&command)), "{refused}");
        let found = explain("N desc");
        let order = (&found["access"], &found["index"][0]["property"]);
        assert_eq!(order, (&json!("order"), &json!("N")), "{found}");
    }
}
