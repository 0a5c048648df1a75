//! What a comparison means: two-valued and typed (protocol §6.4).

use crate::support::*;
use serde_json::{Value, json};

cases! {
    every_type_against_every_literal_under_every_operator, every_literal_on_the_left_mirrors_the_operator,
    the_matrix_holds_inside_a_negation, a_missing_property_fails_every_comparison,
    a_missing_property_is_no_unknown, strings_compare_by_code_unit,
    composed_and_decomposed_letters_are_different, binaries_compare_bytewise_with_prefixes_first,
    datetimes_compare_by_instant_to_a_tick, guids_compare_as_their_text, a_guid_is_not_its_text,
    big_integers_compare_exactly, an_integer_literal_beyond_32_bits_compares_as_int64,
    special_doubles_compare_as_numbers, zeros_are_equal_whatever_their_sign, booleans_sort_false_first,
    keys_compare_ordinally, the_timestamp_compares_to_a_tick, a_stored_etag_is_a_property_like_any_other,
    the_empty_string_is_a_value, a_string_with_u0000_is_found, every_range_of_keys_finds_what_the_order_says,
    a_scan_without_keys_finds_across_partitions,
}

const OPERATORS: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];

/// A type with three ascending values: as JSON and as literals.
struct Kind {
    name: &'static str,
    values: [Value; 3],
    literals: [&'static str; 3],
}

fn kinds() -> [Kind; 8] {
    let kind = |name, values, literals| Kind { name, values, literals };
    [
        kind("String", [json!("1"), json!("2"), json!("3")], ["'1'", "'2'", "'3'"]),
        kind("Binary", [json!("AQ=="), json!("Ag=="), json!("Aw==")], ["X'01'", "X'02'", "X'03'"]),
        // There are only two: the middle one repeats the last.
        kind("Boolean", [json!(false), json!(true), json!(true)], ["false", "true", "true"]),
        kind(
            "DateTime",
            [json!("2001-01-01T00:00:00Z"), json!("2002-01-01T00:00:00Z"), json!("2003-01-01T00:00:00Z")],
            [
                "datetime'2001-01-01T00:00:00Z'",
                "datetime'2002-01-01T00:00:00Z'",
                "datetime'2003-01-01T00:00:00Z'",
            ],
        ),
        kind("Double", [json!(1.0), json!(2.0), json!(3.0)], ["1.0", "2.0", "3.0"]),
        kind(
            "Guid",
            [
                json!("11111111-1111-1111-1111-111111111111"),
                json!("22222222-2222-2222-2222-222222222222"),
                json!("33333333-3333-3333-3333-333333333333"),
            ],
            [
                "guid'11111111-1111-1111-1111-111111111111'",
                "guid'22222222-2222-2222-2222-222222222222'",
                "guid'33333333-3333-3333-3333-333333333333'",
            ],
        ),
        kind("Int32", [json!(1), json!(2), json!(3)], ["1", "2", "3"]),
        kind("Int64", [json!("1"), json!("2"), json!("3")], ["1L", "2L", "3L"]),
    ]
}

/// Whether `op` holds for an order.
fn holds(op: &str, order: std::cmp::Ordering) -> bool {
    match op {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    }
}

/// Whether the two types compare by value: the same, or a stored number
/// against a literal of a narrower kind.
fn comparable(stored: &str, literal: &str) -> bool {
    stored == literal
        || matches!((stored, literal), ("Int64", "Int32") | ("Double", "Int32") | ("Double", "Int64"))
}

fn rank(kind: &Kind, value: usize) -> usize {
    if kind.name == "Boolean" { value.min(1) } else { value }
}

/// All types stored, one row for each value; every literal, every operator.
fn matrix(client: &Client, literal_first: bool) {
    let t = client.table();
    let kinds = kinds();
    for kind in &kinds {
        for (i, value) in kind.values.iter().enumerate() {
            let mut entity = json!({ "P": value });
            entity["P@odata.type"] = json!(format!("Edm.{}", kind.name));
            t.seed(with_keys("p", &format!("{}{i}", kind.name), entity));
        }
    }
    for literal in &kinds {
        for op in OPERATORS {
            let mut expected = Vec::new();
            for stored in &kinds {
                for i in 0..3 {
                    let order = match comparable(stored.name, literal.name) {
                        true => rank(stored, i).cmp(&rank(literal, 1)),
                        // UNVERIFIED 12: the stored value sorts below.
                        false => std::cmp::Ordering::Less,
                    };
                    if holds(op, order) {
                        expected.push(format!("{}{i}", stored.name));
                    }
                }
            }
            expected.sort();
            let filter = match literal_first {
                false => format!("P {op} {}", literal.literals[1]),
                true => format!("{} {} P", literal.literals[1], mirrored(op)),
            };
            assert_eq!(t.matching_rows(&filter), expected.join(","), "{filter}");
        }
    }
}

fn mirrored(op: &str) -> &str {
    match op {
        "lt" => "gt",
        "le" => "ge",
        "gt" => "lt",
        "ge" => "le",
        same => same,
    }
}

fn every_type_against_every_literal_under_every_operator(client: &Client) {
    matrix(client, false);
}

fn every_literal_on_the_left_mirrors_the_operator(client: &Client) {
    matrix(client, true);
}

fn the_matrix_holds_inside_a_negation(client: &Client) {
    let t = client.table();
    t.seed(with_keys("p", "int", json!({ "P": 2 })));
    t.seed(with_keys("p", "text", json!({ "P": "2" })));
    t.seed(with_keys("p", "none", json!({})));
    assert_eq!(t.matching_rows("not (P eq 2)"), "none,text");
    assert_eq!(t.matching_rows("not (P ne 2)"), "int,none");
    assert_eq!(t.matching_rows("not (P lt 3)"), "none");
    assert_eq!(t.matching_rows("not (P gt 1)"), "none,text");
}

fn a_missing_property_fails_every_comparison(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    for kind in kinds() {
        for op in OPERATORS {
            let filter = format!("Missing {op} {}", kind.literals[1]);
            assert_eq!(t.matching_rows(&filter), "", "{filter}");
            assert_eq!(t.matching_rows(&format!("not ({filter})")), "r", "{filter}");
        }
    }
}

fn a_missing_property_is_no_unknown(client: &Client) {
    // Two-valued logic: nothing is neither true nor false.
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    assert_eq!(t.matching_rows("Missing eq 1 or A eq 1"), "r");
    assert_eq!(t.matching_rows("not (Missing eq 1 and A eq 1)"), "r");
    assert_eq!(t.matching_rows("not (Missing eq 1) and not (Missing ne 1)"), "r");
    assert_eq!(t.matching_rows("not (Missing eq 1 or A eq 1)"), "");
}

/// Stores a value of this type in each row, and demands the rows that filters find.
#[track_caller]
fn finds(client: &Client, kind: &str, stored: &[(&str, &str)], found: &[(&str, &str)]) {
    let t = client.table();
    for (row, value) in stored {
        t.seed(with_keys("p", row, json!({ "P@odata.type": format!("Edm.{kind}"), "P": value })));
    }
    for (filter, rows) in found {
        assert_eq!(t.matching_rows(filter), *rows, "{filter}");
    }
}

fn strings_compare_by_code_unit(client: &Client) {
    let t = client.table();
    let ascending = ["", " ", "!", "0", "10", "2", "A", "B", "_", "a", "a ", "aa", "b", "é", "漢"];
    for (i, text) in ascending.iter().enumerate() {
        t.seed(with_keys("p", &format!("{i:02}"), json!({ "S": text })));
    }
    for (i, text) in ascending.iter().enumerate() {
        let rows =
            |range: std::ops::Range<usize>| range.map(|i| format!("{i:02}")).collect::<Vec<_>>().join(",");
        assert_eq!(t.matching_rows(&format!("S lt '{text}'")), rows(0..i), "{text}");
        assert_eq!(t.matching_rows(&format!("S gt '{text}'")), rows(i + 1..ascending.len()), "{text}");
        assert_eq!(t.matching_rows(&format!("S eq '{text}'")), rows(i..i + 1), "{text}");
    }
}

fn composed_and_decomposed_letters_are_different(client: &Client) {
    let stored = [("composed", "\u{e9}"), ("decomposed", "e\u{301}")];
    let found = [("P eq '\u{e9}'", "composed")];
    finds(client, "String", &stored, &found);
}

fn binaries_compare_bytewise_with_prefixes_first(client: &Client) {
    let stored =
        [("0", ""), ("1", "AA=="), ("2", "AAA="), ("3", "AQ=="), ("4", "fw=="), ("5", "gA=="), ("6", "/w==")];
    let found =
        [("P lt X'01'", "0,1,2"), ("P gt X'00'", "2,3,4,5,6"), ("P ge X'80'", "5,6"), ("P eq X''", "0")];
    finds(client, "Binary", &stored, &found);
}

fn datetimes_compare_by_instant_to_a_tick(client: &Client) {
    let stored = [
        ("1", "1601-01-01T00:00:00Z"),
        ("2", "2020-01-01T00:00:00Z"),
        ("3", "2020-01-01T00:00:00.0000001Z"),
        ("4", "2020-01-01T00:00:00.1Z"),
        ("5", "9999-12-31T23:59:59.9999999Z"),
    ];
    let found = [
        ("P gt datetime'2020-01-01T00:00:00Z'", "3,4,5"),
        ("P le datetime'2020-01-01T01:00:00+01:00'", "1,2"),
        ("P eq datetime'2020-01-01T00:00:00.10Z'", "4"),
        ("P lt datetime'2020-01-01T00:00:00.0000002Z'", "1,2,3"),
    ];
    finds(client, "DateTime", &stored, &found);
}

fn guids_compare_as_their_text(client: &Client) {
    // UNVERIFIED 13
    let t = client.table();
    for (row, start) in
        [("1", "00000000"), ("2", "0fffffff"), ("3", "7fffffff"), ("4", "80000000"), ("5", "ffffffff")]
    {
        let guid = format!("{start}-0000-0000-0000-000000000000");
        t.seed(with_keys("p", row, json!({ "G@odata.type": "Edm.Guid", "G": guid })));
    }
    assert_eq!(t.matching_rows("G gt guid'7fffffff-0000-0000-0000-000000000000'"), "4,5");
    assert_eq!(t.matching_rows("G le guid'0fffffff-0000-0000-0000-000000000000'"), "1,2");
}

fn a_guid_is_not_its_text(client: &Client) {
    let t = client.table();
    let guid = "c9da6455-213d-42c9-9a79-3e9149a57833";
    t.seed_one(json!({ "G@odata.type": "Edm.Guid", "G": guid }));
    assert_eq!(t.matching_rows(&format!("G eq '{guid}'")), "");
    assert_eq!(t.matching_rows(&format!("G eq guid'{guid}'")), "r");
}

fn big_integers_compare_exactly(client: &Client) {
    let stored = [
        ("1", "9007199254740992"),
        ("2", "9007199254740993"),
        ("3", "9223372036854775807"),
        ("4", "-9223372036854775808"),
    ];
    let found = [
        ("P eq 9007199254740993L", "2"),
        ("P gt 9007199254740992L", "2,3"),
        ("P ge 9223372036854775807L", "3"),
        ("P lt 0", "4"),
        ("P le -9223372036854775808L", "4"),
    ];
    finds(client, "Int64", &stored, &found);
}

fn an_integer_literal_beyond_32_bits_compares_as_int64(client: &Client) {
    let t = client.table();
    t.seed(with_keys("p", "int64", json!({ "N@odata.type": "Edm.Int64", "N": "5000000000" })));
    t.seed(with_keys("p", "int32", json!({ "N": 5 })));
    assert_eq!(t.matching_rows("N eq 5000000000L"), "int64");
    assert_eq!(t.matching_rows("N lt 5000000000L"), "int32");
}

fn special_doubles_compare_as_numbers(client: &Client) {
    // UNVERIFIED 13: NaN differs from everything and compares to nothing.
    let stored = [("inf", "Infinity"), ("nan", "NaN"), ("neg", "-Infinity"), ("one", "1.0")];
    let found = [
        ("P gt 1.0", "inf"),
        ("P lt 1.0", "neg"),
        ("P ge 1", "inf,one"),
        ("P ne 1.0", "inf,nan,neg"),
        ("P eq 1.0", "one"),
    ];
    finds(client, "Double", &stored, &found);
}

fn zeros_are_equal_whatever_their_sign(client: &Client) {
    // UNVERIFIED 13
    let stored = [("minus", "-0.0"), ("plus", "0.0")];
    let found = [("P eq 0.0", "minus,plus"), ("P eq 0", "minus,plus"), ("P lt 0.0", "")];
    finds(client, "Double", &stored, &found);
}

fn booleans_sort_false_first(client: &Client) {
    let stored = [("f", "false"), ("t", "true")];
    let found = [("P lt true", "f"), ("P gt false", "t"), ("P ge false", "f,t")];
    finds(client, "Boolean", &stored, &found);
}

fn keys_compare_ordinally(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["A", "B", "a", "a-", "a0", "b", "é", ""]);
    assert_eq!(t.matching_rows("RowKey ge 'a' and RowKey lt 'b'"), "a,a-,a0");
    assert_eq!(t.matching_rows("RowKey gt 'B'"), "a,a-,a0,b,é");
    assert_eq!(t.matching_rows("RowKey lt 'B'"), ",A");
    assert_eq!(t.matching_rows("RowKey eq ''"), "");
    assert_eq!(t.matches("RowKey eq ''").len(), 1);
    assert_eq!(t.matches("RowKey ne ''").len(), 7);
}

fn the_timestamp_compares_to_a_tick(client: &Client) {
    let t = client.table();
    let first = timestamp_of(&t.seed(with_keys("p", "1", json!({}))));
    let second = timestamp_of(&t.seed(with_keys("p", "2", json!({}))));
    assert_eq!(t.matching_rows(&format!("Timestamp eq datetime'{first}'")), "1");
    assert_eq!(t.matching_rows(&format!("Timestamp gt datetime'{first}'")), "2");
    assert_eq!(
        t.matching_rows(&format!("Timestamp ge datetime'{first}' and Timestamp lt datetime'{second}'")),
        "1"
    );
    assert_eq!(t.matching_rows("Timestamp gt datetime'2100-01-01T00:00:00Z'"), "");
}

fn a_stored_etag_is_a_property_like_any_other(client: &Client) {
    let t = client.table();
    t.seed(with_keys("p", "1", json!({ "ETag": "mine" })));
    t.seed(with_keys("p", "2", json!({})));
    assert_eq!(t.matching_rows("ETag eq 'mine'"), "1");
}

fn the_empty_string_is_a_value(client: &Client) {
    let t = client.table();
    t.seed(with_keys("p", "empty", json!({ "S": "" })));
    t.seed(with_keys("p", "none", json!({})));
    t.seed(with_keys("p", "space", json!({ "S": " " })));
    assert_eq!(t.matching_rows("S eq ''"), "empty");
    assert_eq!(t.matching_rows("S gt ''"), "space");
    assert_eq!(t.matching_rows("S ge ''"), "empty,space");
}

fn a_string_with_u0000_is_found(client: &Client) {
    // UNVERIFIED 15
    let stored = [("nul", "a\u{0}b"), ("text", "a\\u0000b"), ("short", "a")];
    let found = [("P gt 'a' and P lt 'a!'", "nul"), ("P eq 'a\\u0000b'", "text")];
    finds(client, "String", &stored, &found);
}

fn every_range_of_keys_finds_what_the_order_says(client: &Client) {
    let t = client.table();
    for partition in ["a", "b", "c"] {
        t.seed_rows(partition, ["1", "2"]);
    }
    let all = [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2"), ("c", "1"), ("c", "2")];
    for op in OPERATORS {
        for (row_op, joint) in OPERATORS.iter().flat_map(|r| [(*r, "and"), (*r, "or")]) {
            let filter = format!("PartitionKey {op} 'b' {joint} RowKey {row_op} '1'");
            let expected = all.iter().filter(|(p, r)| {
                let (p, r) = (holds(op, (*p).cmp("b")), holds(row_op, (*r).cmp("1")));
                if joint == "and" { p && r } else { p || r }
            });
            let expected: Vec<String> = expected.map(|(p, r)| format!("{p}{r}")).collect();
            let text = |e: &Value, key: &str| e[key].as_str().map(str::to_owned).unwrap_or_default();
            let found: Vec<String> =
                t.matches(&filter).iter().map(|e| text(e, "PartitionKey") + &text(e, "RowKey")).collect();
            assert_eq!(found, expected, "{filter}");
        }
    }
}

fn a_scan_without_keys_finds_across_partitions(client: &Client) {
    let t = client.table();
    for i in 0..30 {
        t.seed(with_keys(&format!("p{:02}", i % 7), &format!("{i:02}"), json!({ "N": i % 3 })));
    }
    assert_eq!(t.matches("N eq 1").len(), 10);
    assert_eq!(t.matches("N ne 1").len(), 20);
    assert_eq!(
        t.matches("PartitionKey ge 'p03' and N eq 0").len(),
        30 - 20 - (0..30).filter(|i| i % 3 == 0 && i % 7 < 3).count()
    );
}
