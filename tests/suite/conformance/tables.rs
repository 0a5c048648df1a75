//! Tables: query, get, create, delete (protocol §3.1 to §3.4).

use crate::support::*;
use serde_json::json;

cases! {
    create_answers_with_the_table_and_its_location, create_without_content_names_the_table_in_headers,
    create_in_another_case_is_a_conflict, a_conflict_repeats_the_preference,
    names_with_wrong_characters_are_refused, names_of_wrong_length_are_out_of_range,
    names_at_the_edges_of_length_are_accepted, the_name_tables_is_reserved,
    a_filter_of_a_list_that_is_no_comparison_is_refused, a_filter_on_another_property_lists_nothing,
    an_empty_table_token_lists_from_the_first, create_without_a_name_is_refused,
    create_with_a_body_that_is_no_table_is_refused, get_shows_one_table, get_keeps_the_case_of_creation,
    get_of_a_missing_table_finds_nothing, list_with_minimal_metadata_has_the_recorded_form,
    list_without_metadata_has_the_recorded_form, list_with_full_metadata_has_type_id_and_link,
    list_is_ordered_by_name_without_regard_to_case, list_filters_by_name, list_selects_the_name,
    list_pages_with_top_and_a_token, a_bare_name_is_a_table_token_in_any_case,
    a_malformed_table_token_is_refused, delete_removes_the_table_and_its_entities,
    delete_of_a_missing_table_finds_nothing, a_recreated_table_is_empty,
    a_table_may_change_its_case_by_being_recreated, every_entity_operation_misses_a_missing_table,
    accounts_do_not_see_each_other, a_creation_is_answered_as_it_asked,
}

/// One feed of the tables whose names begin with `prefix`.
fn listed(client: &Client, prefix: &str, options: &str) -> Answer {
    let filter = format!("TableName ge '{prefix}' and TableName lt '{prefix}~'");
    client.get(&format!("/Tables?$filter={}{options}", escape(&filter)))
}

fn names(feed: serde_json::Value) -> Vec<String> {
    let name = |t: &serde_json::Value| t["TableName"].as_str().expect("a name").to_owned();
    rows(feed).iter().map(name).collect()
}

fn create_answers_with_the_table_and_its_location(client: &Client) {
    let name = fresh_name();
    let answer = client.create_table(&name).expect(201);
    assert_eq!(answer.need("Location"), client.url(&format!("/Tables('{name}')")));
    assert_eq!(answer.need("Content-Type"), answer.odata_type());
    assert_eq!(answer.need("Cache-Control"), "no-cache");
    assert_eq!(answer.header("ETag"), None);
    assert_eq!(answer.header("Preference-Applied"), None);
    assert_eq!(answer.header("DataServiceId"), None);
    let metadata = client.url("/$metadata#Tables/@Element");
    assert_eq!(answer.text(), format!(r#"{{"odata.metadata":"{metadata}","TableName":"{name}"}}"#));
}

fn create_without_content_names_the_table_in_headers(client: &Client) {
    let name = fresh_name();
    let request = client.request("POST", "/Tables").json(&json!({ "TableName": name }));
    let answer = request.header("Prefer", "return-no-content").send().expect_no_content();
    let url = client.url(&format!("/Tables('{name}')"));
    assert_eq!(answer.need("Location"), url);
    assert_eq!(answer.need("DataServiceId"), url);
    assert_eq!(answer.need("Preference-Applied"), "return-no-content");
    assert_eq!(answer.need("Cache-Control"), "no-cache");
    client.get(&format!("/Tables('{name}')")).expect(200);
}

fn create_in_another_case_is_a_conflict(client: &Client) {
    let t = client.table();
    client.create_table(&t.name.to_uppercase()).refused(TABLE_EXISTS);
}

fn a_conflict_repeats_the_preference(client: &Client) {
    let t = client.table();
    let request = client.request("POST", "/Tables").json(&json!({ "TableName": t.name }));
    let answer = request.header("Prefer", "return-no-content").send().refused(TABLE_EXISTS);
    assert_eq!(answer.need("Preference-Applied"), "return-no-content");
}

fn names_with_wrong_characters_are_refused(client: &Client) {
    for name in [
        "1abc",
        "my_table",
        "my-table",
        "my table",
        "tëble",
        "a'; DROP TABLE entities; --",
        "abc/def",
        "abc.",
    ] {
        client.create_table(name).refused(TABLE_NAME);
    }
}

fn names_of_wrong_length_are_out_of_range(client: &Client) {
    for name in ["", "t", "tt", &"a".repeat(64), &"a".repeat(10_000)] {
        client.create_table(name).refused(TABLE_NAME_LENGTH);
    }
}

fn names_at_the_edges_of_length_are_accepted(client: &Client) {
    let random = uuid::Uuid::new_v4().simple().to_string();
    let longest = format!("{random}{random}").replace(|c: char| c.is_ascii_digit(), "x");
    for name in [&longest[..63], &format!("x{}", &longest[..2])] {
        // The short one may be taken on a server that others use.
        client.delete_table(name);
        client.create_table(name).expect(201);
        client.delete_table(name).expect(204);
    }
}

fn the_name_tables_is_reserved(client: &Client) {
    for name in ["tables", "Tables", "TABLES"] {
        client.create_table(name).refused(INVALID_INPUT);
    }
}

fn create_without_a_name_is_refused(client: &Client) {
    // UNVERIFIED: the service may say InvalidInput.
    for body in ["{}", r#"{"TableName":null}"#, r#"{"TableName":1}"#] {
        client.request("POST", "/Tables").raw_json(body).send().refused(NEED_VALUE);
    }
}

fn create_with_a_body_that_is_no_table_is_refused(client: &Client) {
    for body in ["", "[]", "null", "\"abc\"", "{", r#"{"TableName":["abc"]}"#] {
        let answer = client.request("POST", "/Tables").raw_json(body).send();
        assert!(answer.text().contains("\"InvalidInput\""), "{body}: {answer}");
        answer.expect_error_code(400, "InvalidInput");
    }
}

fn get_shows_one_table(client: &Client) {
    let t = client.table();
    let answer = client.get(&format!("/Tables('{}')", t.name)).expect(200);
    let metadata = client.url("/$metadata#Tables/@Element");
    assert_eq!(answer.text(), format!(r#"{{"odata.metadata":"{metadata}","TableName":"{}"}}"#, t.name));
    assert_eq!(answer.header("ETag"), None);
    assert_eq!(answer.need("Cache-Control"), "no-cache");
}

fn get_keeps_the_case_of_creation(client: &Client) {
    let name = format!("Mixed{}", fresh_name().to_uppercase());
    client.create_table(&name).expect(201);
    assert_eq!(names(listed(client, &name, "").expect_json()), [name.as_str()]);
    let json = client.get(&format!("/Tables('{}')", name.to_lowercase())).expect_json();
    assert_eq!(json["TableName"].as_str().map(str::to_lowercase), Some(name.to_lowercase()));
}

fn get_of_a_missing_table_finds_nothing(client: &Client) {
    client.get(&format!("/Tables('{}')", fresh_name())).refused(NOT_FOUND);
    let metrics = "$MetricsHourPrimaryTransactionsFile";
    client.get(&format!("/Tables('{metrics}')")).refused(NOT_FOUND);
    client.request("DELETE", &format!("/Tables('{metrics}')")).send().refused(NOT_FOUND);
    for path in ["()", "(PartitionKey='p',RowKey='r')"] {
        client.get(&format!("/{metrics}{path}")).refused(NO_TABLE);
    }
}

fn list_with_minimal_metadata_has_the_recorded_form(client: &Client) {
    let t = client.table();
    let answer = listed(client, &t.name, "").expect(200);
    let metadata = client.url("/$metadata#Tables");
    let expected = format!(r#"{{"odata.metadata":"{metadata}","value":[{{"TableName":"{}"}}]}}"#, t.name);
    assert_eq!(answer.text(), expected);
    assert_eq!(answer.need("Cache-Control"), "no-cache");
    assert_eq!(answer.header("ETag"), None);
}

fn list_without_metadata_has_the_recorded_form(client: &Client) {
    let t = client.table();
    let path = format!("/Tables?$filter=TableName%20eq%20'{}'", t.name);
    let answer = client.request("GET", &path).level("nometadata").send().expect(200);
    assert_eq!(answer.text(), format!(r#"{{"value":[{{"TableName":"{}"}}]}}"#, t.name));
}

fn list_with_full_metadata_has_type_id_and_link(client: &Client) {
    let t = client.table();
    let path = format!("/Tables?$filter=TableName%20eq%20'{}'", t.name);
    let answer = client.request("GET", &path).level("fullmetadata").send();
    let expected = format!(
        r#"{{"odata.type":"{}.Tables","odata.id":"{}","odata.editLink":"Tables('{n}')","TableName":"{n}"}}"#,
        client.account.name,
        client.url(&format!("/Tables('{}')", t.name)),
        n = t.name,
    );
    assert!(answer.text().contains(&expected), "{answer}");
    answer.expect_json();
}

fn list_is_ordered_by_name_without_regard_to_case(client: &Client) {
    let stem = fresh_name();
    for end in ["b", "A", "C", "aa", "10", "2"] {
        client.create_table(&format!("{stem}{end}")).expect(201);
    }
    let found = names(listed(client, &stem, "").expect_json());
    let ends: Vec<_> = found.iter().map(|n| &n[stem.len()..]).collect();
    assert_eq!(ends, ["10", "2", "A", "aa", "b", "C"]);
}

fn list_filters_by_name(client: &Client) {
    let stem = fresh_name();
    for end in ["a", "b", "c"] {
        client.create_table(&format!("{stem}{end}")).expect(201);
    }
    for (filter, expected) in [
        ("TableName eq 'Tb'", vec!["b"]),
        ("TableName ge 'Tb' and TableName lt 'Td'", vec!["b", "c"]),
        ("TableName gt 'Ta' and TableName le 'Tb'", vec!["b"]),
        ("TableName eq 'Ta' or TableName eq 'Tc'", vec!["a", "c"]),
        ("not (TableName eq 'Ta') and TableName ge 'T' and TableName lt 'T~'", vec!["b", "c"]),
        ("TableName ne 'Tb' and TableName ge 'T' and TableName lt 'T~'", vec!["a", "c"]),
        ("'Tb' eq TableName", vec!["b"]),
    ] {
        let filter = filter.replace("'T", &format!("'{stem}"));
        let found = names(client.get(&format!("/Tables?$filter={}", escape(&filter))).expect_json());
        let ends: Vec<_> = found.iter().map(|n| &n[stem.len()..]).collect();
        assert_eq!(ends, expected, "{filter}");
    }
}

fn list_selects_the_name(client: &Client) {
    let t = client.table();
    let path = format!("/Tables?$select=TableName&$filter=TableName%20eq%20'{}'", t.name);
    assert_eq!(names(client.get(&path).expect_json()), [t.name.as_str()]);
}

fn list_pages_with_top_and_a_token(client: &Client) {
    let stem = fresh_name();
    for end in ["a", "b", "c", "d", "e"] {
        client.create_table(&format!("{stem}{end}")).expect(201);
    }
    let all = listed(client, &stem, "&$top=5");
    assert_eq!(all.header("x-ms-continuation-NextTableName"), None, "{all}");
    let mut seen = Vec::new();
    let mut options = "&$top=2".to_owned();
    for expected in [2, 2, 1] {
        let answer = listed(client, &stem, &options);
        let token = answer.header("x-ms-continuation-NextTableName").map(str::to_owned);
        assert_eq!(token.is_some(), expected == 2, "{answer}");
        let page = names(answer.expect_json());
        assert_eq!(page.len(), expected);
        seen.extend(page.iter().map(|n| n[stem.len()..].to_owned()));
        // It may be sent raw, too.
        let token = token.unwrap_or_default();
        let token = if seen.len() == 2 { escape(&token) } else { token };
        options = format!("&$top=2&NextTableName={token}");
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e"]);
}

fn a_bare_name_is_a_table_token_in_any_case(client: &Client) {
    let stem = fresh_name();
    for end in ["a", "b", "c"] {
        client.create_table(&format!("{stem}{end}")).expect(201);
    }
    for name in [format!("{stem}b"), format!("{stem}B").to_uppercase(), format!("{stem}aB")] {
        let listed = listed(client, &stem, &format!("&NextTableName={name}"));
        assert_eq!(names(listed.expect_json()), [format!("{stem}b"), format!("{stem}c")], "{name}");
    }
}

fn a_malformed_table_token_is_refused(client: &Client) {
    for token in ["x", "1!4!", "1!8!!!!!!!!!", "2!4!YWJj", "%00"] {
        client.get(&format!("/Tables?NextTableName={token}")).refused(INVALID_INPUT);
    }
}

fn delete_removes_the_table_and_its_entities(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let answer = client.delete_table(&t.name).expect_no_content();
    assert_eq!(answer.header("ETag"), None);
    assert_eq!(answer.need("Cache-Control"), "no-cache");
    client.get(&format!("/Tables('{}')", t.name)).refused(NOT_FOUND);
    t.query("").refused(NO_TABLE);
    t.get("p", "r").refused(NO_TABLE);
    assert_eq!(names(listed(client, &t.name, "").expect_json()), Vec::<String>::new());
}

fn delete_of_a_missing_table_finds_nothing(client: &Client) {
    client.delete_table(&fresh_name()).refused(NOT_FOUND);
    for name in ["t", "tt", "Tables", "1abc", "my-table", "my_table", &"a".repeat(64), "$MetricsX"] {
        let answer = client.delete_table(name).refused(NOT_FOUND);
        assert_eq!(answer.need("Cache-Control"), "no-cache");
    }
    let t = client.table();
    client.delete_table(&t.name).expect(204);
    client.delete_table(&t.name).refused(NOT_FOUND);
}

fn a_recreated_table_is_empty(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for _ in 0..3 {
        client.delete_table(&t.name).expect(204);
        client.create_table(&t.name).expect(201);
        assert_eq!(t.count(), 0);
        t.get("p", "r").refused(NOT_FOUND);
        t.seed_one(json!({ "A": 1 }));
    }
}

fn a_table_may_change_its_case_by_being_recreated(client: &Client) {
    let name = fresh_name();
    client.create_table(&name).expect(201);
    client.delete_table(&name).expect(204);
    client.create_table(&name.to_uppercase()).expect(201);
    let json = client.get(&format!("/Tables('{name}')")).expect_json();
    assert_eq!(json["TableName"].as_str().map(str::to_lowercase), Some(name));
}

fn every_entity_operation_misses_a_missing_table(client: &Client) {
    let t = Table::new(client, fresh_name());
    let body = json!({ "A": 1 });
    t.query("").refused(NO_TABLE);
    t.filter("PartitionKey eq 'p'").refused(NO_TABLE);
    t.get("p", "r").refused(NO_TABLE);
    t.insert(&with_keys("p", "r", json!({}))).refused(NO_TABLE);
    t.replace("p", "r", &body, None).refused(NO_TABLE);
    t.replace("p", "r", &body, Some("*")).refused(NO_TABLE);
    t.merge("p", "r", &body, None).refused(NO_TABLE);
    t.merge("p", "r", &body, Some("*")).refused(NO_TABLE);
    t.delete("p", "r", Some("*")).refused(NO_TABLE);
}

fn accounts_do_not_see_each_other(client: &Client) {
    // A server of one account has nothing to show here.
    let Some(stranger) = client.neighbour() else { return };
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    stranger.get(&format!("/Tables('{}')", t.name)).refused(NOT_FOUND);
    let theirs = Table::new(&stranger, t.name.clone());
    theirs.query("").refused(NO_TABLE);
    stranger.create_table(&t.name).expect(201);
    assert_eq!(theirs.count(), 0);
    stranger.delete_table(&t.name).expect(204);
    assert_eq!(t.count(), 1);
}

fn a_filter_of_a_list_that_is_no_comparison_is_refused(client: &Client) {
    let list = |options: &str| client.get(&format!("/Tables?{options}"));
    list("$filter=filter%20eq%20not%20valid").refused(NOT_IMPLEMENTED);
    // The number of rows is read before the filter.
    list("$top=-1&$filter=filter%20eq%20not%20valid").refused(INVALID_INPUT);
    list("$filter=filter%20eq%20not%20valid&$top=-1").refused(INVALID_INPUT);
    list("$filter=filter%20eq%20not").expect_error_code(400, "InvalidInput");
}

fn a_filter_on_another_property_lists_nothing(client: &Client) {
    let t = client.table();
    let found =
        |filter: &str| names(client.get(&format!("/Tables?$filter={}", escape(filter))).expect_json());
    let name = format!("TableName eq '{}'", t.name);
    for filter in ["Other eq 1", "Other ne 'x'", "Other", &format!("{name} and Other eq 1")] {
        assert_eq!(found(filter), Vec::<String>::new(), "{filter}");
    }
    for filter in [format!("{name} or Other eq 1"), format!("{name} and not (Other eq 1)")] {
        assert_eq!(found(&filter), [t.name.as_str()], "{filter}");
    }
}

fn an_empty_table_token_lists_from_the_first(client: &Client) {
    let t = client.table();
    assert_eq!(names(listed(client, &t.name, "&NextTableName=").expect_json()), [t.name.as_str()]);
}

fn a_creation_is_answered_as_it_asked(client: &Client) {
    let (account, name) = (&client.account.name, &fresh_name());
    let create = |header: (&str, &str), rest: &str| {
        let body = format!(r#"{{"TableName":"{name}"{rest}}}"#);
        let answer = client.request("POST", "/Tables").raw_json(body).header(header.0, header.1).send();
        client.delete_table(&name.to_uppercase()).expect(204);
        client.get(&format!("/Tables('{name}')")).refused(NOT_FOUND);
        answer.expect(201)
    };
    let answer = create(("Prefer", "return-content"), "");
    assert_eq!(answer.need("Preference-Applied"), "return-content");
    assert_eq!(answer.json()["TableName"], json!(name));
    // What else the body holds is ignored.
    let others = r#","Other":1,"odata.type":"x","TableName@odata.type":"Edm.String""#;
    let answer = create(("Accept", "application/json;odata=nometadata"), others);
    assert_eq!(answer.text(), format!(r#"{{"TableName":"{name}"}}"#));
    assert_eq!(answer.need("Content-Type"), answer.odata_type());
    let json = create(("Accept", "application/json;odata=fullmetadata"), "").json();
    assert_eq!(json["odata.type"], json!(format!("{account}.Tables")));
    assert_eq!(json["odata.id"], json!(client.url(&format!("/Tables('{name}')"))));
    assert_eq!(json["odata.editLink"], json!(format!("Tables('{name}')")));
}
