//! Where things are (protocol §1).

use crate::support::*;
use serde_json::json;

cases! {
    table_names_are_addressed_without_regard_to_case, key_predicates_are_accepted_in_either_order,
    a_partial_key_reads_as_a_filter_on_the_partition, a_partial_key_is_refused_on_writes,
    quotes_in_keys_are_doubled_raw_or_encoded, an_endpoint_may_end_with_a_slash, empty_keys_are_addressable,
    a_plus_in_the_path_is_a_plus, a_plus_in_the_query_is_a_space, a_path_is_decoded_once,
    awkward_keys_come_back_as_they_went, parameters_without_dollar_are_ignored,
    a_batch_under_a_table_is_an_unsupported_media_type, tables_below_a_table_is_an_operation_on_that_table,
    a_set_below_a_table_is_inserted_into_and_never_queried,
    what_is_found_out_before_the_table_layer_has_no_cache_control, a_slash_at_the_end_changes_nothing,
    properties_of_a_table_are_no_resource, a_wrong_verb_on_a_known_resource_is_not_allowed,
    a_preflight_tells_no_methods_of_the_resource, the_service_document_and_metadata_are_not_implemented,
    an_invalid_table_name_in_an_entity_address_is_named_as_such, slashes_in_address_keys_are_a_syntax_error,
    other_forbidden_characters_in_address_keys_are_out_of_range,
    a_read_does_not_find_keys_with_forbidden_characters, very_long_addresses_are_read,
    a_host_name_may_name_the_account, a_secondary_host_name_reads_but_does_not_write,
    a_host_name_of_an_unknown_account_leaves_the_path_to_decide, sets_answer_with_and_without_parentheses,
    options_have_a_dollar_that_may_be_encoded_and_lower_case, a_path_that_means_nothing_is_refused,
}

fn table_names_are_addressed_without_regard_to_case(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let loud = Table::new(client, t.name.to_uppercase());
    assert_eq!(loud.properties(), json!({ "A": 1 }));
    assert_eq!(loud.count(), 1);
    loud.merge("p", "r", &json!({ "A": 2 }), Some("*")).expect(204);
    assert_eq!(t.properties(), json!({ "A": 2 }));
    let answer = client.get(&format!("/Tables('{}')", t.name.to_uppercase()));
    answer.expect(200);
}

fn key_predicates_are_accepted_in_either_order(client: &Client) {
    // UNVERIFIED 3
    let t = client.table();
    t.seed(with_keys("part", "row", json!({ "A": 1 })));
    let entity = client.get(&format!("/{}(RowKey='row',PartitionKey='part')", t.name)).expect_json();
    assert_eq!(custom(entity), json!({ "A": 1 }));
}

fn a_partial_key_reads_as_a_filter_on_the_partition(client: &Client) {
    // UNVERIFIED 2
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    t.seed_rows("q", ["3"]);
    let feed = client.get(&format!("/{}(PartitionKey='p')", t.name)).expect_json();
    assert_eq!(row_keys(&rows(feed)), "1,2");
    let feed = client.get(&format!("/{}(PartitionKey='p')?$top=1", t.name)).expect_json();
    assert_eq!(row_keys(&rows(feed)), "1");
}

fn a_partial_key_is_refused_on_writes(client: &Client) {
    // UNVERIFIED 2
    let t = client.table();
    t.seed_rows("p", ["1"]);
    for verb in ["PUT", "MERGE", "PATCH", "DELETE"] {
        let request = client.request(verb, &format!("/{}(PartitionKey='p')", t.name)).if_match(Some("*"));
        let request = if verb == "DELETE" { request } else { request.json(&json!({ "A": 1 })) };
        request.send().expect_error_code(400, "InvalidInput");
    }
    assert_eq!(t.entity("p", "1").get("A"), None);
}

fn quotes_in_keys_are_doubled_raw_or_encoded(client: &Client) {
    let t = client.table();
    t.seed(with_keys("a''b", "c'd", json!({ "A": 1 })));
    for keys in [
        "(PartitionKey='a''''b',RowKey='c''d')",
        "(PartitionKey='a%27%27%27%27b',RowKey='c%27%27d')",
        "(PartitionKey=%27a%27%27%27%27b%27,RowKey=%27c%27%27d%27)",
    ] {
        let entity = client.get(&format!("/{}{keys}", t.name)).expect_json();
        assert_eq!(custom(entity), json!({ "A": 1 }), "{keys}");
    }
}

fn an_endpoint_may_end_with_a_slash(client: &Client) {
    let t = client.table();
    t.seed(with_keys("p", "r", json!({ "A": 1 })));
    let entity = client.get(&format!("//{}(PartitionKey='p',RowKey='r')", t.name)).expect_json();
    assert_eq!(custom(entity), json!({ "A": 1 }));
    client.get("//Tables").expect(200);
    client.get("///Tables").refused(QUERY_SYNTAX);
}

fn empty_keys_are_addressable(client: &Client) {
    let t = client.table();
    for (partition, row) in [("", "rk"), ("pk", ""), ("", "")] {
        t.seed(with_keys(partition, row, json!({ "Is": format!("{partition}/{row}") })));
    }
    for (partition, row) in [("", "rk"), ("pk", ""), ("", "")] {
        let entity = t.entity(partition, row);
        assert_eq!(entity["Is"], json!(format!("{partition}/{row}")));
    }
}

fn a_plus_in_the_path_is_a_plus(client: &Client) {
    let t = client.table();
    t.seed(with_keys("a+b", "c+d", json!({})));
    client.get(&format!("/{}(PartitionKey='a+b',RowKey='c+d')", t.name)).expect(200);
    client.get(&format!("/{}(PartitionKey='a%2Bb',RowKey='c%2Bd')", t.name)).expect(200);
    client.get(&format!("/{}(PartitionKey='a%20b',RowKey='c%20d')", t.name)).refused(NOT_FOUND);
}

fn a_plus_in_the_query_is_a_space(client: &Client) {
    let t = client.table();
    t.seed(with_keys("a b", "1", json!({})));
    t.seed(with_keys("a+b", "2", json!({})));
    let found = |query: &str| row_keys(&rows(t.query(query).expect_json()));
    assert_eq!(found("?$filter=PartitionKey+eq+'a+b'"), "1");
    assert_eq!(found("?$filter=PartitionKey+eq+'a%2Bb'"), "2");
}

fn a_path_is_decoded_once(client: &Client) {
    let t = client.table();
    t.seed(with_keys("p", "a%20b", json!({ "Is": "percent" })));
    t.seed(with_keys("p", "a b", json!({ "Is": "space" })));
    let is = |row: &str| {
        let path = format!("/{}(PartitionKey='p',RowKey='{row}')", t.name);
        client.get(&path).expect_json()["Is"].as_str().map(str::to_owned)
    };
    assert_eq!(is("a%2520b").as_deref(), Some("percent"));
    assert_eq!(is("a%20b").as_deref(), Some("space"));
}

fn awkward_keys_come_back_as_they_went(client: &Client) {
    let t = client.table();
    for key in [
        "%",
        "%41",
        "+",
        "'",
        "''",
        "\"",
        " ",
        "  ",
        "a,b",
        "@&=:;",
        "ô",
        "ꀕ漢字",
        "😀",
        "\u{a0}",
        "()",
        "(PartitionKey='x',RowKey='y')",
        "$batch",
        "Tables",
        "{}[]<>|^`~!*",
        ".",
        "..",
        "ﾊﾝ\u{feff}",
    ] {
        t.insert(&with_keys(key, key, json!({ "A": 1 }))).expect(201);
        let entity = t.entity(key, key);
        assert_eq!((entity["PartitionKey"].as_str(), entity["RowKey"].as_str()), (Some(key), Some(key)));
        t.merge(key, key, &json!({ "A": 2 }), Some("*")).expect(204);
        assert_eq!(t.entity(key, key)["A"], 2, "{key}");
        t.delete(key, key, Some("*")).expect(204);
    }
    assert_eq!(t.count(), 0);
}

fn parameters_without_dollar_are_ignored(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    assert_eq!(rows(t.query("?filter=x&top=1&unknown=&_=17").expect_json()).len(), 2);
}

fn a_batch_under_a_table_is_an_unsupported_media_type(client: &Client) {
    let t = client.table();
    let body = Batch::new().insert(&t, &with_keys("p", "r", json!({}))).body();
    let request = client.request("POST", &format!("/{}/$batch", t.name)).body(body);
    request.header("Content-Type", "multipart/mixed; boundary=batch_b").send().refused(MEDIA_TYPE);
    assert_eq!(t.count(), 0);
}

fn tables_below_a_table_is_an_operation_on_that_table(client: &Client) {
    let missing = fresh_name();
    let send = |table: &str| {
        let path = format!("/{table}/Tables('{table}')");
        client.request("DELETE", &path).header("If-Match", "*").send()
    };
    send(&missing).refused(NO_TABLE);
    let t = client.table();
    let message = format!(
        "The number of keys specified in the URI does not match number of key properties for the resource '{}.{}'.",
        client.account.name, t.name
    );
    send(&t.name).expect_error(400, "InvalidInput", &message);
    for keys in ["'p'", "'p','r'", "PartitionKey='p',RowKey='r',X='x'", "RowKey='r'"] {
        client.get(&format!("/{}({keys})", t.name)).expect_error(400, "InvalidInput", &message);
    }
    client.get(&format!("/Tables('{}')", t.name)).expect(200);
}

fn a_set_below_a_table_is_inserted_into_and_never_queried(client: &Client) {
    let missing = fresh_name();
    let post = |table: &str, set: &str, body: serde_json::Value| {
        let request = client.request("POST", &format!("/{table}/{set}")).json(&body);
        request.header("Prefer", "return-no-content").send()
    };
    post(&missing, "Tables", json!({ "TableName": missing })).refused(NO_TABLE);
    let t = client.table();
    for set in ["Tables", "Tables()", &t.name] {
        let answer = post(&t.name, set, json!({ "TableName": t.name })).refused(NEED_VALUE);
        assert_eq!(answer.need("Preference-Applied"), "return-no-content", "{answer}");
        for query in ["", "?$filter=TableName%20eq%20'x'"] {
            client.get(&format!("/{}/{set}{query}", t.name)).refused(NOT_IMPLEMENTED);
            client.get(&format!("/{missing}/{set}{query}")).refused(NO_TABLE);
        }
    }
    let answer = post(&t.name, &t.name, with_keys("p", "r", json!({ "n": 1 }))).expect(204);
    assert!(answer.need("Location").ends_with(&t.path("p", "r")), "{answer}");
    assert_eq!(t.entity("p", "r")["n"], 1);
}

fn what_is_found_out_before_the_table_layer_has_no_cache_control(client: &Client) {
    let t = client.table();
    let answer = client.request("POST", "/Tables").header("Content-Type", "application/json").send();
    let answer = answer.refused(BAD_BODY);
    assert_eq!(answer.header("Cache-Control"), None);
    let below = format!("/{0}/Tables('{0}')", t.name);
    let answer = client.request("DELETE", &below).header("If-Match", "*").send().expect(400);
    assert_eq!(answer.header("Cache-Control"), None, "{answer}");
}

fn a_slash_at_the_end_changes_nothing(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    assert_eq!(rows(client.get(&format!("{}/", t.set())).expect_json()).len(), 1);
    assert_eq!(rows(client.get(&format!("{}()/", t.set())).expect_json()).len(), 1);
    client.get(&format!("{}/", t.path("p", "r"))).expect(200);
    client.get(&format!("/Tables('{}')/", t.name)).expect(200);
    let name = fresh_name();
    client.request("POST", "/Tables/").json(&json!({ "TableName": name })).send().expect(201);
    assert!(client.get("/Tables/").expect(200).text().contains(&name));
}

fn properties_of_a_table_are_no_resource(client: &Client) {
    let t = client.table();
    for slash in ["", "/"] {
        for verb in ["GET", "PUT"] {
            let path = format!("/{}{slash}?restype=service&comp=properties", t.name);
            let request = client.request(verb, &path).header("Accept", "application/xml");
            request.header("Content-Type", "application/xml").send().refused_in_xml(QUERY_VALUE);
        }
    }
}

fn a_wrong_verb_on_a_known_resource_is_not_allowed(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    const VERBS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "MERGE", "PATCH", "DELETE"];
    for (path, allowed) in [
        ("/Tables".to_owned(), "GET, POST, OPTIONS"),
        ("/Tables()".to_owned(), "GET, POST, OPTIONS"),
        (format!("/Tables('{}')", t.name), "GET, DELETE, OPTIONS"),
        (t.set(), "GET, POST, OPTIONS"),
        (format!("{}()", t.set()), "GET, POST, OPTIONS"),
        ("/$batch".to_owned(), "POST, OPTIONS"),
        (t.path("p", "r"), "GET, HEAD, PUT, MERGE, PATCH, DELETE, OPTIONS"),
    ] {
        for verb in VERBS.into_iter().filter(|verb| !allowed.split(", ").any(|a| a == *verb)) {
            let answer = client.request(verb, &path).send();
            assert_eq!(answer.status, 405, "{answer}");
            assert_eq!(answer.need("Allow"), allowed, "{answer}");
            match verb {
                "HEAD" => assert!(answer.body.is_empty(), "{answer}"),
                _ => drop(answer.refused(METHOD_NOT_ALLOWED)),
            }
        }
        // Nobody knows these.
        for verb in ["FROB", "get", "TRACE", "LOCK"] {
            let answer = client.request(verb, &path).send().refused(UNKNOWN_VERB);
            assert_eq!(answer.need("Allow"), allowed, "{answer}");
        }
    }
    assert_eq!(client.get("/Tables").header("Allow"), None);
    assert_eq!(t.count(), 1);
}

fn a_preflight_tells_no_methods_of_the_resource(client: &Client) {
    let t = client.table();
    let answer = client.request("OPTIONS", &t.path("p", "r")).unchecked().send();
    assert_eq!((answer.status, answer.header("Allow")), (400, None), "{answer}");
}

fn the_service_document_and_metadata_are_not_implemented(client: &Client) {
    // UNVERIFIED 1
    client.get("/").refused(NOT_IMPLEMENTED);
    client.get("/$metadata").refused(NOT_IMPLEMENTED);
}

fn an_invalid_table_name_in_an_entity_address_is_named_as_such(client: &Client) {
    client.get("/my_table()").refused(TABLE_NAME);
    client.get("/my-table(PartitionKey='p',RowKey='r')").refused(TABLE_NAME);
    client.get("/ab()").refused(TABLE_NAME_LENGTH);
    client.get(&format!("/{}()", "a".repeat(64))).refused(TABLE_NAME_LENGTH);
}

fn slashes_in_address_keys_are_a_syntax_error(client: &Client) {
    let t = client.table();
    for key in ["a%2Fb", "a%5Cb"] {
        for verb in ["GET", "PUT", "MERGE", "DELETE"] {
            let path = format!("/{}(PartitionKey='{key}',RowKey='r')", t.name);
            let request = client.request(verb, &path).if_match((verb == "DELETE").then_some("*"));
            let request = if matches!(verb, "PUT" | "MERGE") { request.json(&json!({})) } else { request };
            request.send().refused(QUERY_SYNTAX);
        }
    }
    assert_eq!(t.count(), 0);
}

fn other_forbidden_characters_in_address_keys_are_out_of_range(client: &Client) {
    let t = client.table();
    for (key, cache) in [
        ("a%23b", Some("no-cache")),
        ("a%3Fb", Some("no-cache")),
        ("a%C2%80b", Some("no-cache")),
        ("a%C2%9Fb", Some("no-cache")),
        ("a%09b", None),
        ("a%7Fb", None),
        ("a%00b", None),
    ] {
        for verb in ["PUT", "MERGE", "PATCH", "DELETE"] {
            for keys in
                [format!("PartitionKey='p',RowKey='{key}'"), format!("PartitionKey='{key}',RowKey='r'")]
            {
                let request = client.request(verb, &format!("/{}({keys})", t.name));
                let request = request.if_match((verb == "DELETE").then_some("*"));
                let request = if verb == "DELETE" { request } else { request.json(&json!({})) };
                let answer = request.send().refused(OUT_OF_RANGE);
                assert_eq!(answer.header("Cache-Control"), cache, "{answer}");
            }
        }
    }
    assert_eq!(t.count(), 0);
}

fn a_read_does_not_find_keys_with_forbidden_characters(client: &Client) {
    let t = client.table();
    let missing = fresh_name();
    for key in ["a%23b", "a%3Fb", "a%C2%80b", "a%C2%9Fb"] {
        for keys in [format!("PartitionKey='p',RowKey='{key}'"), format!("PartitionKey='{key}',RowKey='r'")] {
            let answer = client.get(&format!("/{}({keys})", t.name)).refused(NOT_FOUND);
            assert_eq!(answer.need("Cache-Control"), "no-cache");
            client.get(&format!("/{missing}({keys})")).refused(NO_TABLE);
        }
    }
    for key in ["a%09b", "a%7Fb", "a%00b"] {
        client.get(&format!("/{}(PartitionKey='p',RowKey='{key}')", t.name)).refused(OUT_OF_RANGE);
    }
}

fn very_long_addresses_are_read(client: &Client) {
    let t = client.table();
    let key = "漢".repeat(1024);
    t.seed(with_keys(&key, &key, json!({ "A": 1 })));
    assert_eq!(custom(t.entity(&key, &key)), json!({ "A": 1 }));
}

fn a_host_name_may_name_the_account(client: &Client) {
    if client.neighbour().is_none() {
        return;
    }
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let host_style = client.host_style(&client.account.name);
    let there = Table::new(&host_style, t.name.clone());
    assert_eq!(there.properties(), json!({ "A": 1 }));
    for auth in [Auth::SharedKey, Auth::SharedKeyLite] {
        there.on("MERGE", "p", "r").json(&json!({ "B": 2 })).auth(auth).send().expect(204);
    }
    let answer = there.insert(&with_keys("p", "s", json!({})));
    assert_eq!(answer.need("Location"), host_style.url(&t.path("p", "s")));
    Batch::new().insert(&there, &with_keys("p", "b", json!({}))).commit(&host_style);
    assert_eq!(there.count(), 3);
}

fn a_secondary_host_name_reads_but_does_not_write(client: &Client) {
    if client.neighbour().is_none() {
        return;
    }
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let secondary = client.host_style(&format!("{}-secondary", client.account.name));
    let there = Table::new(&secondary, t.name.clone());
    assert_eq!(there.properties(), json!({ "A": 1 }));
    there.insert(&with_keys("p", "s", json!({}))).refused(WRITE_ON_SECONDARY);
    assert_eq!(t.count(), 1);
}

fn a_host_name_of_an_unknown_account_leaves_the_path_to_decide(client: &Client) {
    if client.neighbour().is_none() {
        return;
    }
    let t = client.table();
    let host_style = client.host_style("nobody");
    let path = client.target(&t.set());
    host_style.get(&path).expect(200);
}

fn sets_answer_with_and_without_parentheses(client: &Client) {
    let t = client.table();
    for (row, set) in [("1", ""), ("2", "()")] {
        let answer = client.get(&format!("/Tables{set}?$filter=TableName%20eq%20'{}'", t.name));
        assert_eq!(rows(answer.expect_json()).len(), 1, "{set}");
        let path = format!("/{}{set}", t.name);
        client.request("POST", &path).json(&with_keys("p", row, json!({}))).send().expect(201);
        assert_eq!(rows(client.get(&path).expect_json()).len().to_string(), row, "{set}");
    }
}

fn options_have_a_dollar_that_may_be_encoded_and_lower_case(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2"]);
    assert_eq!(rows(t.query("?%24top=1").expect_json()).len(), 1);
    assert_eq!(rows(t.query("?%24filter=RowKey%20eq%20'2'").expect_json()).len(), 1);
    t.query("?$TOP=1").expect_error_code(400, "InvalidInput");
}

fn a_path_that_means_nothing_is_refused(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for keys in [
        "(",
        "(PartitionKey='p',RowKey='r'",
        "(PartitionKey=p,RowKey=r)",
        "(PartitionKey='p',RowKey='r)",
        "(PartitionKey='p',RowKey='r',X='y')",
        "(PartitionKey='p',PartitionKey='r')",
        "(PartitionKey=1,RowKey='r')",
        "(Foo='p',Bar='r')",
        "('p','r')",
    ] {
        client.get(&format!("/{}{keys}", t.name)).expect_error_code(400, "InvalidInput");
    }
}
