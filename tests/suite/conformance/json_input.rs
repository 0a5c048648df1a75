//! What JSON bodies may look like (protocol §4.5).

use crate::support::*;
use serde_json::{Value, json};

cases! {
    members_are_read_as_they_are_meant, a_literal_with_point_or_exponent_is_a_double,
    an_integer_beyond_32_bits_is_a_double, int32_is_read_from_number_and_text,
    boolean_is_read_from_literal_and_text, double_is_read_from_number_and_text,
    nulls_vanish_with_and_without_annotation, a_selected_null_is_really_absent,
    white_space_between_tokens_is_read, a_nested_value_and_a_number_beyond_double_are_refused,
    broken_json_is_refused, a_body_that_is_no_object_is_refused, an_unknown_type_is_refused,
    a_value_that_does_not_fit_its_annotation_is_refused, the_same_property_twice_is_refused,
    two_annotations_of_one_property_are_refused, binary_may_be_broken_into_lines,
    the_parameter_of_the_content_type_does_not_matter, a_post_without_a_type_is_refused,
    other_verbs_and_parts_of_batches_need_no_type, a_lone_surrogate_is_refused,
}

/// Inserts `p`, `r` with these members written as they are; returns what is
/// read back.
#[track_caller]
fn stored(client: &Client, members: &str) -> Value {
    let t = client.table();
    insert_text(&t, members).expect(201);
    t.properties()
}

fn two_annotations_of_one_property_are_refused(client: &Client) {
    let t = client.table();
    let many: String = (0..20).map(|i| format!(r#""P{i}@odata.type":"Edm.Int64","P{i}":"{i}","#)).collect();
    for more in ["", &many] {
        for (one, other) in [("Int64", "String"), ("String", "Int64"), ("Int64", "Int64")] {
            let twice = format!(r#"{more}"A@odata.type":"Edm.{one}","A@odata.type":"Edm.{other}","A":"5""#);
            insert_text(&t, &twice).refused(BAD_BODY);
        }
    }
    insert_text(&t, r#""PartitionKey@odata.type":"Edm.String","PartitionKey@odata.type":"Edm.String""#)
        .refused(BAD_BODY);
    assert_eq!(t.count(), 0);
}

fn binary_may_be_broken_into_lines(client: &Client) {
    let sent = r#""A@odata.type":"Edm.Binary","A":" AQ\r\nID\tBA== ""#;
    assert_eq!(stored(client, sent)["A"], json!("AQIDBA=="));
}

fn insert_text(t: &Table, members: &str) -> Answer {
    let body = format!(r#"{{"PartitionKey":"p","RowKey":"r",{members}}}"#);
    t.client.request("POST", &t.set()).raw_json(body).send()
}

/// Demands that a body with these members is refused.
#[track_caller]
fn refuses(client: &Client, members: &[&str], refusal: Refusal) {
    let t = client.table();
    for members in members {
        let answer = insert_text(&t, members);
        assert_eq!(answer.status, refusal.0, "{members}: {answer}");
        answer.refused(refusal);
    }
    assert_eq!(t.count(), 0);
}

fn members_are_read_as_they_are_meant(client: &Client) {
    let (date, guid) = ("2012-11-10T03:04:05", "c9da6455-213d-42c9-9a79-3e9149a57833");
    for (members, expected) in [
        (
            r#""S":"x","T":true,"F":false,"I":42,"M":-2147483648,"X":2147483647,"D":1.5,"N":null"#.to_owned(),
            json!({ "S": "x", "T": true, "F": false, "I": 42, "M": -2147483648i64, "X": 2147483647, "D": 1.5 }),
        ),
        // An annotation may follow its value.
        (r#""L":"5","L@odata.type":"Edm.Int64""#.into(), json!({ "L@odata.type": "Edm.Int64", "L": "5" })),
        (
            r#""A@odata.type":"Edm.Int64","A":"9223372036854775807","B@odata.type":"Edm.Int64","B":-7"#.into(),
            json!({
                "A@odata.type": "Edm.Int64", "A": "9223372036854775807", "B@odata.type": "Edm.Int64", "B": "-7",
            }),
        ),
        (
            format!(
                r#""T@odata.type":"Edm.DateTime","T":"{date}.2000000Z","G@odata.type":"Edm.Guid","G":"{}","B@odata.type":"Edm.Binary","B":"AQIy""#,
                guid.to_uppercase()
            ),
            json!({
                "T@odata.type": "Edm.DateTime", "T": format!("{date}.2Z"),
                "G@odata.type": "Edm.Guid", "G": guid, "B@odata.type": "Edm.Binary", "B": "AQIy",
            }),
        ),
        // Text is text, whatever it looks like.
        (
            format!(r#""A@odata.type":"Edm.String","A":"{date}Z","B":"{guid}","C":"42""#),
            json!({ "A": format!("{date}Z"), "B": guid, "C": "42" }),
        ),
        (
            r#""odata.metadata":"x","odata.etag":"W/\"x\"","odata.type":"a.T","odata.id":"y","odata.editLink":"z","odata.anything":{"deep":[1]},"A":1"#.into(),
            json!({ "A": 1 }),
        ),
        (
            r#""A":"x","A@odata.type":"Edm.String","A@odata.type@odata.type":"Edm.String""#.into(),
            json!({ "A": "x" }),
        ),
        (r#""A@odata.type":"Edm.Int64","B":1"#.into(), json!({ "B": 1 })),
        (
            r#""S":"\u00f4\ud83d\ude00\n\t\"\\\/\b\f\r","\u0041b":1"#.into(),
            json!({ "S": "ô😀\n\t\"\\/\u{8}\u{c}\r", "Ab": 1 }),
        ),
        (
            r#""Birthday":1,"birthday":2,"BIRTHDAY":3"#.into(),
            json!({ "Birthday": 1, "birthday": 2, "BIRTHDAY": 3 }),
        ),
    ] {
        assert_eq!(stored(client, &members), expected, "{members}");
    }
}

fn a_literal_with_point_or_exponent_is_a_double(client: &Client) {
    let t = client.table();
    insert_text(&t, r#""A":3.0,"B":1e2,"C":-0.5,"D":2E-3"#).expect(201);
    let text = t.get("p", "r").text().to_owned();
    assert!(text.ends_with(r#""A":3.0,"B":100.0,"C":-0.5,"D":0.002}"#), "{text}");
}

fn an_integer_beyond_32_bits_is_a_double(client: &Client) {
    // UNVERIFIED 7 for numbers that Int64 could hold
    let t = client.table();
    insert_text(&t, r#""A":2147483648,"B":-2147483649,"C":9223372036854775808000"#).expect(201);
    let text = t.get("p", "r").text().to_owned();
    assert!(text.ends_with(r#""A":2147483648.0,"B":-2147483649.0,"C":9.2233720368547758E+21}"#), "{text}");
}

fn int32_is_read_from_number_and_text(client: &Client) {
    // UNVERIFIED 8 for text
    let members = r#""A@odata.type":"Edm.Int32","A":7,"B@odata.type":"Edm.Int32","B":"12345""#;
    assert_eq!(stored(client, members), json!({ "A": 7, "B": 12345 }));
}

fn boolean_is_read_from_literal_and_text(client: &Client) {
    // UNVERIFIED 8 for text
    let members = r#""A@odata.type":"Edm.Boolean","A":true,"B@odata.type":"Edm.Boolean","B":"False","C@odata.type":"Edm.Boolean","C":"true","D@odata.type":"Edm.Boolean","D":"TRUE""#;
    assert_eq!(stored(client, members), json!({ "A": true, "B": false, "C": true, "D": true }));
}

fn double_is_read_from_number_and_text(client: &Client) {
    let t = client.table();
    let members = r#""A@odata.type":"Edm.Double","A":1,"B@odata.type":"Edm.Double","B":"1.23456789012346e+24","C@odata.type":"Edm.Double","C":"NaN","D@odata.type":"Edm.Double","D":"-Infinity","E@odata.type":"Edm.Double","E":"3.14""#;
    insert_text(&t, members).expect(201);
    let text = t.get("p", "r").text().to_owned();
    let expected = r#""A":1.0,"B":1.23456789012346E+24,"C@odata.type":"Edm.Double","C":"NaN","D@odata.type":"Edm.Double","D":"-Infinity","E":3.14}"#;
    assert!(text.ends_with(expected), "{text}");
}

fn nulls_vanish_with_and_without_annotation(client: &Client) {
    let members = r#""A":null,"B@odata.type":"Edm.Int64","B":null,"C":1"#;
    assert_eq!(stored(client, members), json!({ "C": 1 }));
}

fn a_selected_null_is_really_absent(client: &Client) {
    let t = client.table();
    insert_text(&t, r#""A":null,"C":1"#).expect(201);
    assert_eq!(t.matching_rows("A ne 'x'"), "", "a missing property matches nothing");
}

fn white_space_between_tokens_is_read(client: &Client) {
    let t = client.table();
    let body = "\r\n { \"PartitionKey\" :\t\"p\" ,\n \"RowKey\": \"r\", \"A\" : 1 } \n";
    client.request("POST", &t.set()).raw_json(body).send().expect(201);
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

fn a_nested_value_and_a_number_beyond_double_are_refused(client: &Client) {
    let digits = format!("\"A\":{}", "9".repeat(100_000));
    let nested = [r#""A":{}"#, r#""A":[]"#, r#""A":[1]"#, r#""A":{"B":1}"#];
    refuses(client, &nested, BAD_BODY);
    refuses(client, &[r#""A":1e400"#, r#""A":-1e400"#, r#""A":1E+99999"#, &digits], BAD_BODY);
}

fn broken_json_is_refused(client: &Client) {
    let t = client.table();
    for body in [
        "{",
        "}",
        "{]",
        "[1",
        "\"",
        "{\"PartitionKey\":\"p\",\"RowKey\":\"r\"",
        "{'a':1}",
        "{a:1}",
        "nul",
        "x",
    ] {
        client.request("POST", &t.set()).raw_json(body).send().refused(BAD_BODY);
    }
    for members in [
        r#""A":1,"#,
        r#""A":01"#,
        r#""A":+1"#,
        r#""A":1."#,
        r#""A":.5"#,
        r#""A":NaN"#,
        r#""A":"\x""#,
        "\"A\":\"\n\"",
    ] {
        insert_text(&t, members).refused(BAD_BODY);
    }
    assert_eq!(t.count(), 0);
}

fn a_body_that_is_no_object_is_refused(client: &Client) {
    let t = client.table();
    for body in [
        "",
        "[]",
        "1",
        "\"x\"",
        "null",
        "true",
        "[{\"PartitionKey\":\"p\",\"RowKey\":\"r\"}]",
        "{\"PartitionKey\":\"p\",\"RowKey\":\"r\"}{}",
    ] {
        client.request("POST", &t.set()).raw_json(body).send().expect_error_code(400, "InvalidInput");
    }
    assert_eq!(t.count(), 0);
}

fn an_unknown_type_is_refused(client: &Client) {
    let types = [
        "Edm.Single",
        "Edm.Decimal",
        "Edm.Byte",
        "Edm.Int16",
        "Edm.DateTimeOffset",
        "Edm.Time",
        "Int32",
        "edm.int32",
        "",
        "Edm.Int32 ",
    ];
    let members: Vec<_> = types.iter().map(|t| format!(r#""A@odata.type":"{t}","A":"1""#)).collect();
    refuses(client, &members.iter().map(String::as_str).collect::<Vec<_>>(), BAD_BODY);
}

fn a_value_that_does_not_fit_its_annotation_is_refused(client: &Client) {
    let wrong = [
        ("Int32", "2147483648"),
        ("Int32", "1.5"),
        ("Int32", "\"x\""),
        ("Int32", "true"),
        ("Int64", "\"9223372036854775808\""),
        ("Int64", "\"1.5\""),
        ("Int64", "\"\""),
        ("Int64", "true"),
        ("Double", "\"1e400\""),
        ("Double", "1e400"),
        ("Double", "\"x\""),
        ("Double", "true"),
        ("Boolean", "\"yes\""),
        ("Boolean", "1"),
        ("Guid", "\"zz\""),
        ("Guid", "1"),
        ("DateTime", "\"yesterday\""),
        ("DateTime", "\"\""),
        ("DateTime", "1"),
        ("DateTime", "\"2020-02-30T00:00:00Z\""),
        ("Binary", "\"*\""),
        ("Binary", "\"AQI\""),
        ("Binary", "1"),
    ];
    let members: Vec<_> = wrong.iter().map(|(t, v)| format!(r#""A@odata.type":"Edm.{t}","A":{v}"#)).collect();
    refuses(client, &members.iter().map(String::as_str).collect::<Vec<_>>(), BAD_BODY);
}

fn the_same_property_twice_is_refused(client: &Client) {
    refuses(
        client,
        &[r#""A":1,"A":2"#, r#""A":1,"B":2,"A":1"#, r#""A":null,"A":1"#, r#""A":1,"\u0041":2"#],
        DUPLICATE_PROPERTY,
    );
    let t = client.table();
    for body in [
        r#"{"PartitionKey":"p","RowKey":"r","PartitionKey":"p"}"#,
        r#"{"PartitionKey":"p","RowKey":"r","RowKey":"s"}"#,
        r#"{"PartitionKey":"p","RowKey":"r","Row\u004bey":"r"}"#,
    ] {
        client.request("POST", &t.set()).raw_json(body).send().refused(DUPLICATE_KEY);
    }
    assert_eq!(t.count(), 0);
}

fn the_parameter_of_the_content_type_does_not_matter(client: &Client) {
    let t = client.table();
    for (i, kind) in [
        "application/json",
        "application/json;odata=nometadata",
        "application/json;odata=fullmetadata",
        "application/json; odata=minimalmetadata",
        "application/json; charset=utf-8",
        "Application/JSON",
    ]
    .iter()
    .enumerate()
    {
        let request = t.inserting(&with_keys("p", &i.to_string(), json!({}))).header("Content-Type", kind);
        request.send().expect(201);
    }
}

fn a_post_without_a_type_is_refused(client: &Client) {
    let t = client.table();
    let entity = with_keys("p", "r", json!({})).to_string();
    let table = json!({ "TableName": fresh_name() }).to_string();
    for (path, body) in [("/Tables", table.as_str()), (&t.set(), &entity), ("/$batch", "x")] {
        for body in [Some(body), None] {
            for version in ["2009-09-19", "2013-08-15", "2020-12-06"] {
                let request =
                    client.request("POST", path).header("Prefer", "return-no-content").version(version);
                // Without JSON, errors of the oldest version are Atom.
                let request = body.map_or(request.clone(), |body| request.body(body));
                let answer = request.send().expect(400);
                assert!(answer.text().contains("Content-Type header value missing."), "{answer}");
                assert!(answer.text().contains("InvalidInput"), "{answer}");
                assert_eq!(answer.header("Cache-Control"), None, "{answer}");
                assert_eq!(answer.header("Preference-Applied"), None, "{answer}");
            }
        }
    }
    t.inserting(&with_keys("p", "r", json!({}))).header("Content-Type", "").send().refused(NO_CONTENT_TYPE);
    assert_eq!(t.count(), 0);
    // What does not take a body of that kind says so.
    client.request("POST", &t.path("p", "r")).send().refused(METHOD_NOT_ALLOWED);
}

fn other_verbs_and_parts_of_batches_need_no_type(client: &Client) {
    let t = client.table();
    for (row, verb) in [("1", "PUT"), ("2", "MERGE"), ("3", "PATCH")] {
        t.on(verb, "p", row).body("{}").send().expect(204);
    }
    t.on("POST", "p", "4").header("X-HTTP-Method", "MERGE").body("{}").send().expect(204);
    let insert = with_keys("p", "5", json!({})).to_string();
    Batch::new().operation("POST", &client.url(&t.set()), &[], &insert).send(client);
    assert_eq!(t.count(), 5);
}

fn a_lone_surrogate_is_refused(client: &Client) {
    let t = client.table();
    for members in [
        r#""A":"\ud800""#,
        r#""A":"\udc00x""#,
        r#""A":"\ud800\u0041""#,
        r#""A":"\ud800\ud800""#,
        r#""A":"\u12""#,
        r#""A\udc00":1"#,
        "\"A\":\"\u{1}\"",
    ] {
        insert_text(&t, members).expect_error_code(400, "InvalidInput");
    }
    assert_eq!(t.count(), 0);
}
