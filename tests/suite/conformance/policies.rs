//! Stored access policies as documents (protocol §3.5).

use crate::support::*;

cases! {
    a_new_table_has_none, policies_come_back_in_the_recorded_form, a_head_request_has_the_headers_alone,
    all_forms_of_times_are_read, empty_policies_keep_their_ids, ids_are_escaped_and_kept_in_order,
    a_policy_may_say_any_part, setting_replaces_what_was_there, an_empty_body_or_list_clears,
    five_are_allowed_and_six_are_not, values_beyond_their_limits_are_refused,
    what_is_no_such_document_is_refused, a_refused_document_changes_nothing, a_missing_table_is_not_found,
    policies_go_with_their_table, setting_insists_on_an_accept_header_for_xml,
    before_2015_12_11_every_accept_header_that_takes_anything_takes_xml,
    the_component_is_signed_however_it_is_spelled, reading_ignores_the_accept_header,
    other_verbs_and_other_components_are_refused, the_secondary_shows_policies_and_does_not_set_them,
    document_types_and_deep_nesting_are_refused,
}

fn path(t: &Table) -> String {
    format!("{}?comp=acl", t.set())
}

fn put(t: &Table, body: impl Into<Vec<u8>>) -> Answer {
    let request = t.client.request("PUT", &path(t)).header("Accept", "application/xml");
    request.header("Content-Type", "application/xml").body(body).send()
}

fn get(t: &Table) -> String {
    t.client.request("GET", &path(t)).header("Accept", "application/xml").send().expect_xml()
}

fn list(policies: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"utf-8\"?><SignedIdentifiers>{policies}</SignedIdentifiers>")
}

fn policy(id: &str, rest: &str) -> String {
    format!("<SignedIdentifier><Id>{id}</Id>{rest}</SignedIdentifier>")
}

fn access(rest: &str) -> String {
    policy("id", &format!("<AccessPolicy>{rest}</AccessPolicy>"))
}

/// What comes back after this was set.
#[track_caller]
fn round_trip(t: &Table, policies: &str) -> String {
    put(t, list(policies)).expect(204);
    let shown = get(t);
    let inner =
        shown.strip_prefix("<SignedIdentifiers>").and_then(|s| s.strip_suffix("</SignedIdentifiers>"));
    inner.unwrap_or_else(|| panic!("not a list: {shown}")).to_owned()
}

fn a_new_table_has_none(client: &Client) {
    assert_eq!(get(&client.table()), "<SignedIdentifiers />");
}

fn policies_come_back_in_the_recorded_form(client: &Client) {
    let t = client.table();
    let full =
        "<Start>2011-10-11</Start><Expiry>2031-01-02T03:04:05.678Z</Expiry><Permission>raud</Permission>";
    assert_eq!(
        round_trip(&t, &access(full)),
        "<SignedIdentifier><Id>id</Id><AccessPolicy><Start>2011-10-11T00:00:00.0000000Z</Start>\
         <Expiry>2031-01-02T03:04:05.6780000Z</Expiry><Permission>raud</Permission></AccessPolicy></SignedIdentifier>"
    );
}

fn a_head_request_has_the_headers_alone(client: &Client) {
    let t = client.table();
    let answer = t.client.request("HEAD", &path(&t)).header("Accept", "application/xml").send().expect(200);
    assert_eq!(answer.need("Content-Type"), "application/xml");
    assert!(answer.body.is_empty(), "{answer}");
    assert_eq!(get(&t), "<SignedIdentifiers />", "the connection is still in order");
}

fn all_forms_of_times_are_read(client: &Client) {
    let t = client.table();
    for (sent, shown) in [
        ("2030-06-01", "2030-06-01T00:00:00.0000000Z"),
        ("2030-06-01T01:02Z", "2030-06-01T01:02:00.0000000Z"),
        ("2030-06-01T01:02:03Z", "2030-06-01T01:02:03.0000000Z"),
        ("2030-06-01T01:02:03.1234567Z", "2030-06-01T01:02:03.1234567Z"),
        ("2030-06-01T01:02:03.5Z", "2030-06-01T01:02:03.5000000Z"),
        ("2030-06-01T01:02:03+01:00", "2030-06-01T00:02:03.0000000Z"),
        ("2030-06-01T23:30-01:00", "2030-06-02T00:30:00.0000000Z"),
    ] {
        let found = round_trip(&t, &access(&format!("<Expiry>{sent}</Expiry>")));
        assert_eq!(found, access(&format!("<Expiry>{shown}</Expiry>")), "{sent}");
    }
}

fn empty_policies_keep_their_ids(client: &Client) {
    let t = client.table();
    for rest in
        ["", "<AccessPolicy/>", "<AccessPolicy></AccessPolicy>", "<AccessPolicy><Start/></AccessPolicy>"]
    {
        assert_eq!(round_trip(&t, &policy("null", rest)), policy("null", ""), "{rest}");
    }
}

fn ids_are_escaped_and_kept_in_order(client: &Client) {
    let t = client.table();
    let ids = ["z", "a&amp;b", "&lt;x&gt;", "Ünïcode ✓", "with space"].map(|id| policy(id, "")).concat();
    assert_eq!(round_trip(&t, &ids), ids);
}

fn a_policy_may_say_any_part(client: &Client) {
    let t = client.table();
    let start = "<Start>2030-01-01T00:00:00.0000000Z</Start>";
    let expiry = "<Expiry>2031-01-01T00:00:00.0000000Z</Expiry>";
    let permission = "<Permission>ad</Permission>";
    for rest in [start.into(), expiry.into(), permission.into(), format!("{start}{permission}")] {
        assert_eq!(round_trip(&t, &access(&rest)), access(&rest));
    }
    let swapped = format!("{permission}{expiry}{start}");
    assert_eq!(round_trip(&t, &access(&swapped)), access(&format!("{start}{expiry}{permission}")));
}

fn setting_replaces_what_was_there(client: &Client) {
    let t = client.table();
    round_trip(&t, &(policy("one", "") + &policy("two", "")));
    assert_eq!(round_trip(&t, &policy("three", "")), policy("three", ""));
}

fn an_empty_body_or_list_clears(client: &Client) {
    let t = client.table();
    for body in [String::new(), list(""), "<SignedIdentifiers />".into()] {
        round_trip(&t, &policy("one", ""));
        put(&t, body).expect(204);
        assert_eq!(get(&t), "<SignedIdentifiers />");
    }
}

fn five_are_allowed_and_six_are_not(client: &Client) {
    let t = client.table();
    let some = |count: usize| (0..count).map(|i| policy(&format!("id{i}"), "")).collect::<String>();
    assert_eq!(round_trip(&t, &some(5)), some(5));
    let answer = put(&t, list(&some(6))).refused_in_xml(XML_DOCUMENT);
    assert_eq!(answer.reason, XML_DOCUMENT.2, "{answer}");
    assert_eq!(get(&t).matches("<Id>").count(), 5);
}

fn values_beyond_their_limits_are_refused(client: &Client) {
    let t = client.table();
    for id in ["", &"x".repeat(65), &"😀".repeat(33)] {
        put(&t, list(&policy(id, ""))).expect(400);
    }
    put(&t, list(&(policy("same", "") + &policy("same", "")))).expect(400);
    for fitting in [policy(&"é".repeat(64), ""), policy("same", "") + &policy("Same", "")] {
        assert_eq!(round_trip(&t, &fitting), fitting);
    }
    for (name, text) in [
        ("Start", "2030"),
        ("Start", "2030-02-30"),
        ("Expiry", "01/02/2030"),
        ("Expiry", "2030-01-01T00:00:00"),
        ("Permission", "R"),
        ("Permission", "r,a"),
        ("Permission", "dr"),
    ] {
        put(&t, list(&access(&format!("<{name}>{text}</{name}>")))).refused_in_xml(XML_VALUE);
    }
}

fn what_is_no_such_document_is_refused(client: &Client) {
    let t = client.table();
    for body in [
        "x",
        "{}",
        "<SignedIdentifiers>",
        "<Other/>",
        "<SignedIdentifiers/><SignedIdentifiers/>",
        "<SignedIdentifiers><Other/></SignedIdentifiers>",
        "<SignedIdentifiers><SignedIdentifier></SignedIdentifiers>",
        "<SignedIdentifiers>&unknown;</SignedIdentifiers>",
        "<x:SignedIdentifiers/>",
        "<SignedIdentifiers x:a=\"1\"/>",
        "<SignedIdentifiers><x:SignedIdentifier><x:Id>a</x:Id></x:SignedIdentifier></SignedIdentifiers>",
        "<SignedIdentifiers><SignedIdentifier><Id>&#1;</Id></SignedIdentifier></SignedIdentifiers>",
        "<SignedIdentifiers><SignedIdentifier><Id>&#xFFFE;</Id></SignedIdentifier></SignedIdentifiers>",
        "<SignedIdentifiers><SignedIdentifier><Id>a\u{ffff}</Id></SignedIdentifier></SignedIdentifiers>",
    ] {
        put(&t, body).refused_in_xml(XML_DOCUMENT);
    }
    put(&t, [0xff, 0xfe, 0x00]).refused_in_xml(XML_DOCUMENT);
}

fn a_refused_document_changes_nothing(client: &Client) {
    let t = client.table();
    let kept = round_trip(&t, &policy("kept", ""));
    put(&t, list(&(policy("new", "") + &access("<Permission>x</Permission>")))).refused_in_xml(XML_VALUE);
    assert_eq!(get(&t), format!("<SignedIdentifiers>{kept}</SignedIdentifiers>"));
}

fn a_missing_table_is_not_found(client: &Client) {
    let t = Table::new(client, fresh_name());
    let get = client.request("GET", &path(&t)).header("Accept", "application/xml");
    get.send().refused_in_xml(NO_TABLE);
    put(&t, "").refused_in_xml(NO_TABLE);
    put(&t, list(&policy("id", ""))).refused_in_xml(NO_TABLE);
}

fn policies_go_with_their_table(client: &Client) {
    let t = client.table();
    round_trip(&t, &policy("old", ""));
    client.delete_table(&t.name).expect(204);
    client.create_table(&t.name).expect(201);
    assert_eq!(get(&t), "<SignedIdentifiers />");
}

fn setting_insists_on_an_accept_header_for_xml(client: &Client) {
    let t = client.table();
    let put = |accept: &str| {
        t.client.request("PUT", &path(&t)).header("Accept", accept).body(list(&policy("id", ""))).send()
    };
    // As recorded.
    put("*/*").refused_in_xml(MEDIA_TYPE);
    put("application/xml").expect(204);
    put("Application/XML").expect(204);
    put("*/*, application/xml").expect(204);
}

fn before_2015_12_11_every_accept_header_that_takes_anything_takes_xml(client: &Client) {
    let t = client.table();
    let put = |version: &str, accept: &str| {
        let put = t.client.request("PUT", &path(&t)).header("Accept", accept).version(version);
        put.body(list(&policy("id", ""))).send()
    };
    for version in ["2009-09-19", "2012-02-12", "2013-08-15", "2015-04-05"] {
        put(version, "*/*").expect(204);
        put(version, "application/json").refused_in_xml(MEDIA_TYPE);
    }
    for version in ["2015-12-11", "2018-03-28"] {
        put(version, "*/*").refused_in_xml(MEDIA_TYPE);
    }
}

fn the_component_is_signed_however_it_is_spelled(client: &Client) {
    let t = client.table();
    client.get(&format!("{}?comp=acl", t.set())).expect(200);
    let escaped = client.get(&format!("{}?%63omp=acl", t.set()));
    assert_eq!(
        (escaped.status, escaped.header("x-ms-error-code")),
        (403, Some("AuthenticationFailed")),
        "{escaped}"
    );
}

fn reading_ignores_the_accept_header(client: &Client) {
    let t = client.table();
    for accept in ["application/json", "application/xml", "*/*", "application/atom+xml"] {
        let answer = t.client.request("GET", &path(&t)).header("Accept", accept).send();
        assert_eq!(answer.expect_xml(), "<SignedIdentifiers />", "{accept}");
    }
}

fn other_verbs_and_other_components_are_refused(client: &Client) {
    let t = client.table();
    for verb in ["POST", "DELETE", "MERGE", "PATCH"] {
        let answer = client.request(verb, &path(&t)).send().refused_in_xml(METHOD_NOT_ALLOWED);
        assert_eq!(answer.need("Allow"), "GET, HEAD, PUT, OPTIONS", "{answer}");
    }
    client.get(&format!("{}?comp=other", t.set())).refused_in_xml(QUERY_VALUE);
    client.get(&format!("/Tables('{}')", t.name)).expect(200);
}

fn the_secondary_shows_policies_and_does_not_set_them(client: &Client) {
    let t = client.table();
    round_trip(&t, &policy("id", ""));
    let secondary = client.secondary();
    let there = Table::new(&secondary, &t.name);
    assert!(get(&there).contains("<Id>id</Id>"));
    put(&there, "").refused_in_xml(WRITE_ON_SECONDARY);
    assert!(get(&t).contains("<Id>id</Id>"));
}

fn document_types_and_deep_nesting_are_refused(client: &Client) {
    let t = client.table();
    let bomb = "<!DOCTYPE x [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;\">]>";
    put(&t, format!("{bomb}<SignedIdentifiers/>")).refused_in_xml(XML_DOCUMENT);
    put(&t, format!("{bomb}{}", &list(&policy("&b;", ""))[38..])).refused_in_xml(XML_DOCUMENT);
    let outside = "<!DOCTYPE x SYSTEM \"file:///etc/passwd\">";
    put(&t, format!("{outside}<SignedIdentifiers/>")).refused_in_xml(XML_DOCUMENT);
    let deep = "<a>".repeat(10_000);
    put(&t, list(&deep)).refused_in_xml(XML_DOCUMENT);
}
