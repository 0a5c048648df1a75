//! How batches are read and answered, to the byte (protocol §8.2, §8.3).

use crate::support::batch::{post, query_batch};
use crate::support::*;
use serde_json::json;

cases! {
    the_outer_answer_has_the_recorded_headers, an_insert_without_content_is_answered_to_the_byte,
    an_insert_with_content_is_answered_with_the_entity, updates_are_answered_to_the_byte,
    a_delete_is_answered_to_the_byte, a_failure_is_answered_to_the_byte,
    a_missing_table_is_answered_without_cache_control, a_content_id_inside_the_request_is_echoed_second,
    a_content_id_of_a_read_stands_behind_the_type, a_content_id_of_the_part_is_not_echoed,
    parts_come_in_the_order_of_the_request, inner_addresses_are_absolute_path_only_or_of_another_host,
    a_path_without_the_account_is_read, a_key_that_looks_like_an_address_is_no_address,
    a_change_set_of_a_part_with_nothing_in_it_fails, parts_with_nothing_in_them_do_not_count,
    inner_queries_are_read_but_not_repeated, a_wrong_or_missing_inner_length_does_not_matter,
    a_percent_sign_in_a_body_is_a_percent_sign, a_tunnelled_verb_inside_is_executed,
    an_empty_change_set_succeeds_without_parts, one_get_is_answered_directly,
    one_get_of_a_missing_entity_fails_inside,
}

/// The part with its ETag and the address of the account replaced.
fn neutral(client: &Client, raw: &str) -> String {
    let mut text = raw.replace(&client.url(""), "BASE");
    while let Some(start) = text.find("W/\"datetime'") {
        let end = start + text[start..].find("'\"").expect("the tag ends") + 2;
        text.replace_range(start..end, "TAG");
    }
    text
}

fn the_outer_answer_has_the_recorded_headers(client: &Client) {
    let t = client.table();
    let answer = Batch::new().insert(&t, &with_keys("p", "r", json!({}))).commit(client);
    assert_eq!(answer.outer.reason, "Accepted");
    assert_eq!(answer.outer.need("Cache-Control"), "no-cache");
    assert_eq!(answer.outer.need("X-Content-Type-Options"), "nosniff");
    assert!(answer.in_change_set);
    assert_eq!(answer.outer.header("DataServiceVersion"), None);
}

fn an_insert_without_content_is_answered_to_the_byte(client: &Client) {
    let t = client.table();
    let answer = Batch::new().insert(&t, &with_keys("p", "r", json!({}))).commit(client);
    let expected = format!(
        "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-cache\r\n\
         Preference-Applied: return-no-content\r\nDataServiceVersion: 3.0;\r\n\
         Location: BASE/{n}(PartitionKey='p',RowKey='r')\r\nDataServiceId: BASE/{n}(PartitionKey='p',RowKey='r')\r\n\
         ETag: TAG\r\n\r\n\r\n",
        n = t.name
    );
    assert_eq!(neutral(client, &answer.parts[0].raw), expected);
    assert_eq!(answer.parts[0].need("ETag"), t.get("p", "r").need("ETag"));
}

fn an_insert_with_content_is_answered_with_the_entity(client: &Client) {
    let t = client.table();
    let answer = Batch::new().insert_echo(&t, &with_keys("p", "r", json!({ "A": 1 }))).commit(client);
    let part = &answer.parts[0];
    assert_eq!((part.status, part.reason.as_str()), (201, "Created"));
    assert_eq!(
        part.header_names(),
        "DataServiceVersion,Content-Type,X-Content-Type-Options,Cache-Control,Location,ETag"
    );
    assert_eq!(part.need("DataServiceVersion"), "3.0;");
    let kind = "application/json;odata=minimalmetadata;streaming=true;charset=utf-8";
    assert_eq!(part.need("Content-Type"), kind);
    assert_eq!(part.body, t.get("p", "r").text());
}

fn updates_are_answered_to_the_byte(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2", "3", "4"]);
    let body = json!({ "A": 1 });
    let answer = Batch::new()
        .write("PUT", &t, ("p", "1"), &body, Some("*"))
        .write("MERGE", &t, ("p", "2"), &body, Some("*"))
        .write("PATCH", &t, ("p", "3"), &body, Some("*"))
        .write("PUT", &t, ("p", "4"), &body, None)
        .write("MERGE", &t, ("p", "5"), &body, None)
        .commit(client);
    for (i, part) in answer.parts.iter().enumerate() {
        let expected = "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\n\
                        Cache-Control: no-cache\r\nDataServiceVersion: 1.0;\r\nETag: TAG\r\n\r\n\r\n";
        assert_eq!(neutral(client, &part.raw), expected);
        assert_eq!(part.need("ETag"), t.get("p", &(i + 1).to_string()).need("ETag"));
    }
}

fn a_delete_is_answered_to_the_byte(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let answer = Batch::new().delete(&t, "p", "r", "*").commit(client);
    let expected = "HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\n\
                    Cache-Control: no-cache\r\nDataServiceVersion: 1.0;\r\n\r\n\r\n";
    assert_eq!(answer.parts[0].raw, expected);
}

fn a_failure_is_answered_to_the_byte(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    let answer = Batch::new().insert(&t, &with_keys("p", "r", json!({}))).send(client);
    let part = answer.refused_alone(ENTITY_EXISTS);
    assert!(
        part.raw.starts_with("HTTP/1.1 409 Conflict\r\nX-Content-Type-Options: nosniff\r\n"),
        "{}",
        part.raw
    );
    assert_eq!(
        part.header_names(),
        "X-Content-Type-Options,Cache-Control,Preference-Applied,DataServiceVersion,Content-Type"
    );
    assert_eq!(part.need("DataServiceVersion"), "3.0;");
}

fn a_missing_table_is_answered_without_cache_control(client: &Client) {
    let t = Table::new(client, fresh_name());
    let echo = Batch::new().insert_echo(&t, &with_keys("p", "r", json!({}))).send(client);
    let part = echo.refused(0, NO_TABLE);
    assert_eq!(part.header_names(), "X-Content-Type-Options,DataServiceVersion,Content-Type");
    assert_eq!(part.reason, "Not Found");
}

fn a_content_id_inside_the_request_is_echoed_second(client: &Client) {
    let t = client.table();
    let headers = ["Content-ID: 7", "Content-Type: application/json", "Prefer: return-no-content"];
    let url = client.url(&t.set());
    let body = with_keys("p", "r", json!({})).to_string();
    let answer = Batch::new().operation("POST", &url, &headers, &body).commit(client);
    assert!(answer.parts[0].raw.starts_with("HTTP/1.1 204 No Content\r\nContent-ID: 7\r\nX-Content"));
    let again = Batch::new().operation("POST", &url, &headers, &body).send(client);
    let part = again.refused_alone(ENTITY_EXISTS);
    assert!(part.raw.starts_with("HTTP/1.1 409 Conflict\r\nContent-ID: 7\r\n"), "{}", part.raw);
}

fn a_content_id_of_a_read_stands_behind_the_type(client: &Client) {
    let t = client.table();
    t.seed_one(json!({}));
    for url in [client.url(&t.path("p", "r")), client.url(&t.set())] {
        let body = query_batch(&url).replace(" HTTP/1.1\r\n", " HTTP/1.1\r\nContent-ID: 7\r\n");
        let answer = BatchAnswer::of(post(client, body).send());
        let names = answer.parts[0].header_names();
        let order = "DataServiceVersion,Content-Type,Content-ID,X-Content-Type-Options,Cache-Control";
        assert!(names.starts_with(order), "{names}");
    }
}

fn a_content_id_of_the_part_is_not_echoed(client: &Client) {
    let t = client.table();
    let body = Batch::new().insert(&t, &with_keys("p", "r", json!({}))).body();
    let body = body.replace("binary\r\n", "binary\r\nContent-ID: 3\r\n");
    let answer = BatchAnswer::of(post(client, body).send());
    assert!(!answer.outer.text().contains("Content-ID"), "{}", answer.outer);
}

fn parts_come_in_the_order_of_the_request(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["a"]);
    let answer = Batch::new()
        .insert(&t, &with_keys("p", "z", json!({})))
        .delete(&t, "p", "a", "*")
        .insert_echo(&t, &with_keys("p", "b", json!({})))
        .write("PUT", &t, ("p", "y"), &json!({}), None)
        .commit(client);
    let shape: Vec<_> = answer.parts.iter().map(|p| (p.status, p.need("DataServiceVersion"))).collect();
    assert_eq!(shape, [(204, "3.0;"), (204, "1.0;"), (201, "3.0;"), (204, "1.0;")]);
    assert!(answer.parts[0].need("Location").ends_with("RowKey='z')"));
    assert!(answer.parts[2].need("Location").ends_with("RowKey='b')"));
}

fn inner_addresses_are_absolute_path_only_or_of_another_host(client: &Client) {
    let t = client.table();
    let set = t.set();
    let foreign = ["https://elsewhere.example:444", "http://127.0.0.1:1"];
    let mut targets = vec![client.url(&set), client.target(&set)];
    targets.extend(foreign.map(|host| format!("{host}{}", client.target(&set))));
    for (i, target) in targets.iter().enumerate() {
        let entity = with_keys("p", &i.to_string(), json!({})).to_string();
        let headers = ["Content-Type: application/json", "Prefer: return-no-content"];
        Batch::new().operation("POST", target, &headers, &entity).commit(client);
    }
    assert_eq!(t.count(), targets.len());
}

fn a_path_without_the_account_is_read(client: &Client) {
    // Host-style clients send `/T(…)`.
    let t = client.table();
    let entity = with_keys("p", "r", json!({})).to_string();
    let headers = ["Content-Type: application/json"];
    Batch::new().operation("POST", &t.set(), &headers, &entity).commit(client);
    assert_eq!(t.count(), 1);
}

fn a_key_that_looks_like_an_address_is_no_address(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["victim"]);
    let headers = ["Content-Type: application/json", "If-Match: *"];
    for keys in [
        "PartitionKey='http://a',RowKey='r'".to_owned(),
        "PartitionKey='p',RowKey='http://a/b'".to_owned(),
        format!("PartitionKey='p',RowKey='q://x/{}(PartitionKey='p',RowKey='victim')'", t.name),
    ] {
        let path = format!("/{}({keys})", t.name);
        for target in [path.clone(), client.target(&path), client.url(&path)] {
            for verb in ["PUT", "DELETE"] {
                let answer = Batch::new().operation(verb, &target, &headers, "{}").send(client);
                answer.refused(0, QUERY_SYNTAX);
            }
        }
    }
    t.get("p", "victim").expect(200);
}

fn a_change_set_of_a_part_with_nothing_in_it_fails(client: &Client) {
    let body = Batch::new().body().replacen("--changeset_c--", "--changeset_c\r\n\r\n--changeset_c--", 1);
    let answer = BatchAnswer::of(post(client, body).send());
    assert_eq!(answer.parts.len(), 1, "{}", answer.outer);
    let part = &answer.parts[0];
    assert_eq!(part.header_names(), "DataServiceVersion,Content-Type");
    assert_eq!(part.need("DataServiceVersion"), "1.0;");
    part.as_answer(&answer.outer).refused_in_table_xml(BAD_BODY);
}

fn parts_with_nothing_in_them_do_not_count(client: &Client) {
    let t = client.table();
    let blank = "--changeset_c\r\n\r\n";
    let with_blanks = |batch: &Batch| {
        let body = batch.body().replacen("--changeset_c\r\n", &format!("{blank}--changeset_c\r\n"), 1);
        let body = body.replace("--changeset_c--", &format!("{blank}{blank}--changeset_c--"));
        BatchAnswer::of(post(client, body).send())
    };
    let good = Batch::new().insert(&t, &with_keys("p", "1", json!({})));
    with_blanks(&good.clone().write("PUT", &t, ("p", "2"), &json!({}), Some("*"))).refused(1, NOT_FOUND);
    let headers = ["Content-Type: application/json"];
    with_blanks(&good.operation("POST", &client.url(&t.set()), &headers, "{")).refused(1, BAD_BODY);
    assert_eq!(t.count(), 0);
    let set = |operations: usize| {
        (0..operations).fold(Batch::new(), |b, i| b.insert(&t, &with_keys("p", &i.to_string(), json!({}))))
    };
    with_blanks(&set(101)).refused(99, TOO_MANY_OPERATIONS);
    assert_eq!(with_blanks(&set(100)).parts.len(), 100);
    assert_eq!(t.count(), 100);
}

fn inner_queries_are_read_but_not_repeated(client: &Client) {
    let t = client.table();
    let url = client.url(&format!("{}?$format=application%2Fjson%3Bodata%3Dnometadata", t.set()));
    let entity = with_keys("p", "r", json!({ "A": 1 })).to_string();
    let answer =
        Batch::new().operation("POST", &url, &["Content-Type: application/json"], &entity).commit(client);
    let part = &answer.parts[0];
    assert_eq!(part.need("Location"), client.url(&t.path("p", "r")));
    assert!(part.need("Content-Type").contains("odata=nometadata"), "{}", part.raw);
    assert!(!part.body.contains("odata."), "{}", part.body);
}

fn a_wrong_or_missing_inner_length_does_not_matter(client: &Client) {
    let t = client.table();
    let url = client.url(&t.set());
    for (i, length) in ["Content-Length: 3", "Content-Length: 99999", "Accept: */*"].iter().enumerate() {
        let entity = with_keys("p", &i.to_string(), json!({ "A": 1 })).to_string();
        let headers = ["Content-Type: application/json", length, "Prefer: return-no-content"];
        Batch::new().operation("POST", &url, &headers, &entity).commit(client);
    }
    assert_eq!(t.matching_rows("A eq 1"), "0,1,2");
}

fn a_percent_sign_in_a_body_is_a_percent_sign(client: &Client) {
    let t = client.table();
    Batch::new().insert(&t, &with_keys("100%", "50%25", json!({ "S": "%41 % %%" }))).commit(client);
    assert_eq!(t.entity("100%", "50%25")["S"], "%41 % %%");
}

fn a_tunnelled_verb_inside_is_executed(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let headers = ["X-HTTP-Method: MERGE", "If-Match: *", "Content-Type: application/json"];
    let url = client.url(&t.path("p", "r"));
    Batch::new().operation("POST", &url, &headers, r#"{"B":2}"#).commit(client);
    assert_eq!(t.properties(), json!({ "A": 1, "B": 2 }));
}

fn an_empty_change_set_succeeds_without_parts(client: &Client) {
    // UNVERIFIED 16
    let answer = Batch::new().send(client);
    assert!(answer.in_change_set && answer.parts.is_empty(), "{}", answer.outer);
}

fn one_get_is_answered_directly(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "A": 1 }));
    let answer = BatchAnswer::of(post(client, query_batch(&client.url(&t.path("p", "r")))).send());
    assert!(!answer.in_change_set);
    let part = &answer.parts[0];
    assert_eq!((part.status, part.reason.as_str()), (200, "OK"));
    assert_eq!(
        part.header_names(),
        "DataServiceVersion,Content-Type,X-Content-Type-Options,Cache-Control,ETag"
    );
    assert_eq!(part.need("ETag"), etag);
    assert_eq!(part.body, t.get("p", "r").text());
}

fn one_get_of_a_missing_entity_fails_inside(client: &Client) {
    let t = client.table();
    let answer = BatchAnswer::of(post(client, query_batch(&client.url(&t.path("p", "r")))).send());
    assert!(!answer.in_change_set);
    answer.refused(0, NOT_FOUND);
}
