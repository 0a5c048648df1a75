//! `$select`, `$top` and the options that the service does not have
//! (protocol §6.1).

use crate::support::*;
use serde_json::{Value, json};

cases! {
    select_shows_null_for_what_an_entity_lacks, select_shows_system_properties_only_when_named,
    select_names_itself_in_the_metadata, select_shows_names_in_their_order,
    select_of_a_star_or_of_nothing_is_everything, select_of_a_name_that_no_entity_has_is_null,
    select_of_a_member_of_the_protocol_changes_nothing, select_works_at_every_level, top_limits_the_page,
    top_that_is_no_number_or_out_of_range_is_refused, an_empty_top_is_none,
    options_that_the_service_lacks_are_told_from_nonsense, options_combine, a_query_has_no_etag,
    a_query_for_both_keys_is_still_a_feed, select_shows_only_what_was_named,
}

fn sample(client: &Client) -> Table<'_> {
    let t = client.table();
    t.seed(with_keys("p", "1", json!({ "A": 1, "B": "x", "L@odata.type": "Edm.Int64", "L": "7" })));
    t.seed(with_keys("p", "2", json!({ "A": 2 })));
    t
}

#[track_caller]
fn feed(t: &Table, options: &str) -> Vec<Value> {
    rows(t.query(options).expect_json())
}

/// An item of a feed without its ETag, which must be there.
#[track_caller]
fn without_etag(item: &Value) -> Value {
    let mut item = item.clone();
    let etag = item.as_object_mut().and_then(|members| members.remove("odata.etag"));
    timestamp_of(etag.as_ref().and_then(Value::as_str).unwrap_or_default());
    item
}

fn select_shows_null_for_what_an_entity_lacks(client: &Client) {
    let t = sample(client);
    let items = feed(&t, "?$select=A,B,L,Missing");
    assert_eq!(
        without_etag(&items[0]),
        json!({ "A": 1, "B": "x", "L@odata.type": "Edm.Int64", "L": "7", "Missing": null })
    );
    assert_eq!(without_etag(&items[1]), json!({ "A": 2, "B": null, "L": null, "Missing": null }));
}

fn select_shows_system_properties_only_when_named(client: &Client) {
    let t = sample(client);
    let items = feed(&t, "?$select=PartitionKey,RowKey,Timestamp");
    assert_eq!(items[0]["PartitionKey"], "p");
    assert_eq!(
        items[0]["Timestamp"].as_str().map(str::to_owned),
        t.entity("p", "1")["Timestamp"].as_str().map(str::to_owned)
    );
    assert_eq!(
        feed(&t, "?$select=RowKey").iter().map(without_etag).collect::<Vec<_>>(),
        [json!({ "RowKey": "1" }), json!({ "RowKey": "2" })]
    );
}

fn select_names_itself_in_the_metadata(client: &Client) {
    let t = sample(client);
    for (options, suffix) in [
        ("?$select=A,B", "&$select=A,B"),
        ("?$select=A%2CB", "&$select=A,B"),
        ("?$select=A", "&$select=A"),
        ("?$select=B,A", "&$select=B,A"),
        ("?$select=A%2C%20B", "&$select=A,%20B"),
        ("?$select=A,+B%20", "&$select=A,%20B"),
        ("?$select=A,,A", "&$select=A,,A"),
        ("?$select=%C3%A9%22", "&$select=%C3%A9%22"),
        ("?$select=*", "&$select=*"),
        ("?$select=", "&$select="),
        ("?$select=%20", "&$select="),
    ] {
        let json = t.query(options).expect_json();
        let expected = client.url(&format!("/$metadata#{}{suffix}", t.name));
        assert_eq!(json["odata.metadata"], json!(expected), "{options}");
    }
}

fn select_shows_names_in_their_order(client: &Client) {
    let t = client.table();
    t.seed(with_keys("p", "r", json!({ "a": 1, "_c": 2, "B": 3, "aa": 4 })));
    let names = "aa,Timestamp,a,nope,RowKey,_c,B,a,PartitionKey";
    for address in [t.path("p", "r"), format!("/{}()", t.name)] {
        let request = client.request("GET", &format!("{address}?$select={names}"));
        let text = request.level("nometadata").send().expect(200).text().to_owned();
        let (start, end) = (
            r#""PartitionKey":"p","RowKey":"r","Timestamp":""#,
            r#"","B":3,"_c":2,"a":1,"aa":4,"nope":null}"#,
        );
        assert!(text.contains(start) && text.contains(end), "{text}");
    }
}

fn select_of_a_star_or_of_nothing_is_everything(client: &Client) {
    let t = sample(client);
    for options in ["?$select=*", "?$select=", "?$select=%20"] {
        let items = feed(&t, options);
        assert_eq!(
            custom(items[0].clone()),
            json!({ "A": 1, "B": "x", "L@odata.type": "Edm.Int64", "L": "7" }),
            "{options}"
        );
        assert_eq!(items[0]["RowKey"], "1");
    }
}

fn select_of_a_name_that_no_entity_has_is_null(client: &Client) {
    let t = sample(client);
    // Of another case, like that of the ETag, and one that cannot be stored.
    for name in ["a", "etag", "Manager Rating"] {
        let options = format!("?$select={}", name.replace(' ', "%20"));
        assert_eq!(without_etag(&feed(&t, &options)[0]), json!({ name: null }));
    }
}

fn select_of_a_member_of_the_protocol_changes_nothing(client: &Client) {
    let t = sample(client);
    let request = |select: &str| {
        let options = format!("/{}()?$top=1&$select={select}", t.name);
        client.request("GET", &options).level("minimalmetadata").send().expect(200).text().to_owned()
    };
    let entity = |text: String| text.split_once("\"value\":").expect("entities").1.to_owned();
    let plain = entity(request("L"));
    assert!(plain.contains("odata.etag") && plain.contains("L@odata.type"), "{plain}");
    assert_eq!(entity(request("odata.etag,L,L@odata.type,odata.type")), plain);
}

fn select_works_at_every_level(client: &Client) {
    let t = sample(client);
    let request = |level| client.request("GET", &format!("/{}()?$select=L", t.name)).level(level).send();
    assert_eq!(request("nometadata").text(), r#"{"value":[{"L":"7"},{"L":null}]}"#);
    let full = rows(request("fullmetadata").expect_json());
    assert_eq!(full[0]["odata.type"], json!(format!("{}.{}", client.account.name, t.name)));
    assert_eq!((&full[0]["L@odata.type"], &full[0]["L"]), (&json!("Edm.Int64"), &json!("7")));
    assert_eq!(full[1].get("L@odata.type"), None, "nulls have no type");
}

fn top_limits_the_page(client: &Client) {
    let t = sample(client);
    assert_eq!(row_keys(&feed(&t, "?$top=1")), "1");
    assert_eq!(row_keys(&feed(&t, "?$top=2")), "1,2");
    assert_eq!(row_keys(&feed(&t, "?$top=1000")), "1,2");
    assert_eq!(feed(&t, "?$top=0"), Vec::<Value>::new());
    assert_eq!(rows(client.get("/Tables?$top=0").expect_json()), Vec::<Value>::new());
}

fn top_that_is_no_number_or_out_of_range_is_refused(client: &Client) {
    let t = sample(client);
    for top in ["-1", "1001", "99999999999999999999", "x", "1.5", "1e2", "0x1", "1%202", "'1'"] {
        t.query(&format!("?$top={top}")).refused(INVALID_INPUT);
        client.get(&format!("/Tables?$top={top}")).refused(INVALID_INPUT);
    }
}

fn an_empty_top_is_none(client: &Client) {
    let t = sample(client);
    assert_eq!(row_keys(&feed(&t, "?$filter=&$select=&$top=")), "1,2");
    client.get("/Tables?$top=").expect(200);
}

fn options_that_the_service_lacks_are_told_from_nonsense(client: &Client) {
    // UNVERIFIED 10
    let t = sample(client);
    for option in
        ["$orderby=RowKey", "$skip=1", "$expand=A", "$inlinecount=allpages", "$count=true", "$skiptoken=x"]
    {
        t.query(&format!("?{option}")).refused(NOT_IMPLEMENTED);
    }
    for option in ["$foo=1", "$", "$=1", "$Filter=A%20eq%201", "$top=1&$top=2", "$filter=true&$filter=false"]
    {
        t.query(&format!("?{option}")).expect_error_code(400, "InvalidInput");
    }
}

fn options_combine(client: &Client) {
    let t = sample(client);
    let answer = t.query("?$filter=A%20ge%201&$select=A&$top=1&timeout=20");
    assert!(answer.header("x-ms-continuation-NextRowKey").is_some(), "{answer}");
    assert_eq!(without_etag(&rows(answer.expect_json())[0]), json!({ "A": 1 }));
}

fn a_query_has_no_etag(client: &Client) {
    let t = sample(client);
    let answer = t.query("");
    assert_eq!(answer.header("ETag"), None);
    assert_eq!(answer.need("Cache-Control"), "no-cache");
}

fn a_query_for_both_keys_is_still_a_feed(client: &Client) {
    let t = sample(client);
    assert_eq!(t.matching_rows("PartitionKey eq 'p' and RowKey eq '2'"), "2");
    assert_eq!(t.matching_rows("PartitionKey eq 'p' and RowKey eq 'gone'"), "");
}

fn select_shows_only_what_was_named(client: &Client) {
    let t = sample(client);
    for (options, expected) in [
        ("A", json!([{ "A": 1 }, { "A": 2 }])),
        ("A,%20B&$top=1", json!([{ "A": 1, "B": "x" }])),
        ("%20A%20,B%20&$top=1", json!([{ "A": 1, "B": "x" }])),
        ("A+,+B&$top=1", json!([{ "A": 1, "B": "x" }])),
        // The filter sees the others too.
        ("RowKey&$filter=A%20eq%202%20and%20PartitionKey%20eq%20'p'", json!([{ "RowKey": "2" }])),
    ] {
        let shown: Vec<_> = feed(&t, &format!("?$select={options}")).iter().map(without_etag).collect();
        assert_eq!(json!(shown), expected, "{options}");
    }
}
