//! Key ranges of signatures: nothing outside is ever shown or touched
//! (protocol §10.5).

use serde_json::json;

use crate::support::batch::{post, query_batch};
use crate::support::*;

cases! {
    points_outside_do_not_exist, writes_outside_are_refused, queries_show_nothing_outside,
    filters_cannot_widen_the_range, pages_end_with_the_range, forged_continuations_do_not_leave_the_range,
    a_page_that_begins_at_keys_does_not_leave_the_range, change_sets_stay_inside,
    a_change_set_with_one_key_outside_changes_nothing, queries_in_batches_stay_inside,
    the_range_applies_to_keys_in_bodies, an_empty_range_shows_nothing,
    a_range_that_ends_with_an_empty_key_is_refused, a_bound_may_lie_just_above_a_key,
    bounds_are_compared_by_code_units, the_order_of_errors_tells_nothing_of_what_is_outside,
}

type Bound = (Option<&'static str>, Option<&'static str>);

/// A range, and whether a key is in it.
struct Shape {
    name: &'static str,
    start: Bound,
    end: Bound,
    contains: fn(&str, &str) -> bool,
}

const NONE: Bound = (None, None);

const SHAPES: [Shape; 8] = [
    Shape {
        name: "one partition",
        start: (Some("b"), None),
        end: (Some("b"), None),
        contains: |p, _| p == "b",
    },
    Shape {
        name: "rows of one partition",
        start: (Some("b"), Some("2")),
        end: (Some("b"), Some("3")),
        contains: |p, r| p == "b" && ("2"..="3").contains(&r),
    },
    Shape {
        name: "one entity",
        start: (Some("b"), Some("2")),
        end: (Some("b"), Some("2")),
        contains: |p, r| (p, r) == ("b", "2"),
    },
    Shape { name: "spk only", start: (Some("b"), None), end: NONE, contains: |p, _| p >= "b" },
    Shape { name: "epk only", start: NONE, end: (Some("b"), None), contains: |p, _| p <= "b" },
    Shape {
        name: "start tuple",
        start: (Some("b"), Some("2")),
        end: NONE,
        contains: |p, r| (p, r) >= ("b", "2"),
    },
    Shape {
        name: "tuples across partitions",
        start: (Some("a"), Some("3")),
        end: (Some("c"), Some("1")),
        contains: |p, r| (p, r) >= ("a", "3") && (p, r) <= ("c", "1"),
    },
    Shape {
        name: "end tuple",
        start: NONE,
        end: (Some("b"), Some("1")),
        contains: |p, r| (p, r) <= ("b", "1"),
    },
];

const PARTITIONS: [&str; 4] = ["a", "b", "bb", "c"];
const ROWS: [&str; 4] = ["1", "2", "22", "3"];

fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    PARTITIONS.into_iter().flat_map(|p| ROWS.into_iter().map(move |r| (p, r)))
}

/// A table with every key, and a bearer of one range for each shape.
fn grid(client: &Client) -> (Table<'_>, Vec<(&'static Shape, Client)>) {
    let t = client.table();
    for partition in PARTITIONS {
        let mut batch = Batch::new();
        for row in ROWS {
            batch = batch.insert(&t, &with_keys(partition, row, json!({ "K": format!("{partition}{row}") })));
        }
        batch.commit(client);
    }
    let bearers = SHAPES.iter().map(|shape| {
        let sas = Sas::table(&t.name, "raud").range(shape.start, shape.end);
        (shape, sas.of(client))
    });
    let bearers = bearers.collect();
    (t, bearers)
}

/// `p/r` of what is inside, joined by blanks.
fn inside(shape: &Shape) -> String {
    let keys = keys().filter(|(p, r)| (shape.contains)(p, r));
    keys.map(|(p, r)| format!("{p}/{r}")).collect::<Vec<_>>().join(" ")
}

fn points_outside_do_not_exist(client: &Client) {
    let (t, bearers) = grid(client);
    for (shape, bearer) in &bearers {
        for (p, r) in keys() {
            let answer = Table::new(bearer, &t.name).get(p, r);
            if (shape.contains)(p, r) {
                answer.expect(200);
            } else {
                assert_eq!(answer.status, 404, "{} {p}/{r}", shape.name);
                answer.refused(NOT_FOUND);
            }
        }
    }
}

fn writes_outside_are_refused(client: &Client) {
    let (t, bearers) = grid(client);
    for (shape, bearer) in &bearers {
        let there = Table::new(bearer, &t.name);
        for (p, r) in [("a", "0"), ("b", "2"), ("b", "23"), ("bb", "2"), ("c", "9")] {
            let fits = (shape.contains)(p, r);
            let before = t.query("").expect(200).text().to_owned();
            let answers = [
                there.replace(p, r, &json!({}), None),
                there.merge(p, r, &json!({}), None),
                there.replace(p, r, &json!({}), Some("*")),
                there.merge(p, r, &json!({}), Some("*")),
                there.delete(p, r, Some("*")),
                there.insert(&with_keys(p, r, json!({}))),
            ];
            for answer in answers {
                assert_eq!(answer.status == 403, !fits, "{} {p}/{r} {answer}", shape.name);
                if !fits {
                    answer.refused(OUTSIDE);
                }
            }
            if !fits {
                assert_eq!(t.query("").expect(200).text(), before, "{} {p}/{r}", shape.name);
            }
        }
    }
}

fn queries_show_nothing_outside(client: &Client) {
    let (t, bearers) = grid(client);
    for (shape, bearer) in &bearers {
        let found = rows(Table::new(bearer, &t.name).query("").expect_json());
        assert_eq!(keys_shown(&found), inside(shape), "{}", shape.name);
        let found = rows(Table::new(bearer, &t.name).query("?$select=K").expect_json());
        assert_eq!(found.len(), inside(shape).split_whitespace().count(), "{}", shape.name);
    }
}

fn filters_cannot_widen_the_range(client: &Client) {
    let (t, bearers) = grid(client);
    for filter in [
        "PartitionKey eq 'a'",
        "PartitionKey eq 'b' and RowKey eq '2'",
        "PartitionKey ge 'a' or PartitionKey lt 'a'",
        "PartitionKey eq 'a' or PartitionKey eq 'c'",
        "not (PartitionKey eq 'b')",
        "PartitionKey gt 'a' and RowKey le '22' or K eq 'a1'",
        "K ne 'x'",
        "true",
    ] {
        let all = rows(t.filter(filter).expect_json());
        for (shape, bearer) in &bearers {
            let expected = all.iter().filter(|e| {
                (shape.contains)(
                    e["PartitionKey"].as_str().expect("a key"),
                    e["RowKey"].as_str().expect("a key"),
                )
            });
            let expected: Vec<_> = expected.cloned().collect();
            let found = Table::new(bearer, &t.name).matches(filter);
            assert_eq!(keys_shown(&found), keys_shown(&expected), "{} {filter}", shape.name);
        }
    }
}

fn pages_end_with_the_range(client: &Client) {
    let (t, bearers) = grid(client);
    for (shape, bearer) in &bearers {
        let found = Table::new(bearer, &t.name).pages("$top=2").concat();
        assert_eq!(keys_shown(&found), inside(shape), "{}", shape.name);
    }
}

/// A genuine continuation that begins after the first `count` entities.
fn token_after(t: &Table, count: usize) -> String {
    next_page(&t.query(&format!("?$top={count}"))).expect("there is more")
}

fn forged_continuations_do_not_leave_the_range(client: &Client) {
    let (t, bearers) = grid(client);
    // Tokens of a holder of the key begin before, inside and after every range.
    for count in [1, 4, 7, 10, 13, 15] {
        let token = token_after(&t, count);
        let rest: Vec<_> = keys().skip(count).collect();
        for (shape, bearer) in &bearers {
            let expected = rest.iter().filter(|(p, r)| (shape.contains)(p, r));
            let expected: Vec<_> = expected.map(|(p, r)| format!("{p}/{r}")).collect();
            for top in ["", "&$top=100"] {
                let answer = Table::new(bearer, &t.name).query(&format!("?{}{top}", &token[1..])).expect(200);
                assert_eq!(next_page(&answer), None, "{answer}");
                assert_eq!(
                    keys_shown(&rows(answer.json())),
                    expected.join(" "),
                    "{} after {count}",
                    shape.name
                );
            }
        }
    }
    for (_, bearer) in &bearers {
        let forged = "NextPartitionKey=1!4!cA--&NextRowKey=1";
        Table::new(bearer, &t.name).query(&format!("?{forged}")).refused(INVALID_INPUT);
    }
}

fn a_page_that_begins_at_keys_does_not_leave_the_range(client: &Client) {
    let (t, bearers) = grid(client);
    for (shape, bearer) in &bearers {
        for (partition, row) in
            [("", ""), ("a", "1"), ("a", "9"), ("b", "2"), ("b", "20"), ("c", "3"), ("zz", "")]
        {
            let options = format!("?NextPartitionKey={partition}&NextRowKey={row}");
            let found = rows(Table::new(bearer, &t.name).query(&options).expect(200).json());
            let behind = |p: &str, r: &str| (p, r) >= (partition, row) && (shape.contains)(p, r);
            let expected = keys().filter(|(p, r)| behind(p, r)).map(|(p, r)| format!("{p}/{r}"));
            let expected: Vec<_> = expected.collect();
            assert_eq!(keys_shown(&found), expected.join(" "), "{} {options}", shape.name);
        }
    }
}

fn change_sets_stay_inside(client: &Client) {
    let (t, bearers) = grid(client);
    for (shape, bearer) in &bearers {
        for (p, r) in [("a", "3"), ("b", "2"), ("bb", "2"), ("c", "1")] {
            let attempts = [
                Batch::new().insert(&t, &with_keys(p, r, json!({}))),
                Batch::new().write("PUT", &t, (p, r), &json!({}), None),
                Batch::new().write("MERGE", &t, (p, r), &json!({}), Some("*")),
                Batch::new().delete(&t, p, r, "*"),
            ];
            for batch in attempts {
                let answer = batch.send(bearer);
                let refused = answer.parts[0].status == 403;
                assert_eq!(refused, !(shape.contains)(p, r), "{} {p}/{r} {}", shape.name, answer.outer);
                if refused {
                    answer.refused(0, OUTSIDE);
                }
            }
            t.replace(p, r, &json!({ "K": "again" }), None).expect(204);
        }
    }
}

fn a_change_set_with_one_key_outside_changes_nothing(client: &Client) {
    let (t, _) = grid(client);
    let sas = Sas::table(&t.name, "raud").range((Some("b"), Some("2")), (Some("b"), Some("3")));
    let bearer = sas.of(client);
    let before = t.query("").expect(200).text().to_owned();
    let batch = Batch::new().write("MERGE", &t, ("b", "2"), &json!({ "X": 1 }), None);
    let batch = batch.delete(&t, "b", "3", "*").delete(&t, "b", "1", "*");
    batch.send(&bearer).refused(2, OUTSIDE);
    assert_eq!(t.query("").expect(200).text(), before);
}

fn queries_in_batches_stay_inside(client: &Client) {
    let (t, bearers) = grid(client);
    for (shape, bearer) in &bearers {
        for (p, r) in [("a", "1"), ("b", "2"), ("bb", "3"), ("c", "1")] {
            let url = client.url(&t.path(p, r));
            let answer = BatchAnswer::of(post(bearer, query_batch(&url)).send());
            let status = if (shape.contains)(p, r) { 200 } else { 404 };
            assert_eq!(answer.parts[0].status, status, "{} {p}/{r}", shape.name);
        }
        let answer = post(bearer, query_batch(&client.url(&format!("/{}()", t.name)))).send();
        for (p, r) in keys().filter(|(p, r)| !(shape.contains)(p, r)) {
            assert!(!answer.text().contains(&format!("\"{p}{r}\"")), "{} {answer}", shape.name);
        }
    }
}

fn the_range_applies_to_keys_in_bodies(client: &Client) {
    let (t, _) = grid(client);
    let bearer = Sas::table(&t.name, "raud").range((Some("b"), None), (Some("b"), None)).of(client);
    let there = Table::new(&bearer, &t.name);
    // The address decides, not what the body claims.
    there.replace("a", "1", &with_keys("b", "1", json!({})), None).refused(OUTSIDE);
    there.insert(&with_keys("b", "9", json!({}))).expect(201);
    there.insert(&with_keys("a", "9", json!({}))).refused(OUTSIDE);
    there.insert(&with_keys("a", "1", json!({}))).refused(OUTSIDE);
    t.get("a", "9").refused(NOT_FOUND);
}

fn an_empty_range_shows_nothing(client: &Client) {
    let (t, _) = grid(client);
    for (start, end) in
        [((Some("c"), None), (Some("b"), None)), ((Some("b"), Some("3")), (Some("b"), Some("1")))]
    {
        let bearer = Sas::table(&t.name, "raud").range(start, end).of(client);
        let there = Table::new(&bearer, &t.name);
        assert_eq!(there.count(), 0);
        there.get("b", "2").refused(NOT_FOUND);
        there.delete("b", "2", Some("*")).refused(OUTSIDE);
    }
}

/// It is signed as a range without end is: whoever holds it could leave the end out.
fn a_range_that_ends_with_an_empty_key_is_refused(client: &Client) {
    let t = client.table();
    t.seed_rows("a", ["", "1"]);
    for end in [(Some("a"), Some("")), (Some(""), None)] {
        let bearer = Sas::table(&t.name, "r").range((Some("a"), None), end).of(client);
        Table::new(&bearer, &t.name).query("").turned_away(NOT_AUTHENTICATED);
    }
    let bearer = Sas::table(&t.name, "r").range((Some("a"), Some("")), (Some("a"), Some("1"))).of(client);
    assert_eq!(Table::new(&bearer, &t.name).count(), 2);
}

/// A key with U+0000 after it is the usual way to say so.
fn a_bound_may_lie_just_above_a_key(client: &Client) {
    let (t, _) = grid(client);
    let just_above = [
        ((Some("b"), Some("1\0")), (Some("b"), Some("22\0")), "b/2 b/22"),
        ((Some("a\0"), None), (Some("b"), Some("1")), "b/1"),
        ((Some("b\0x"), Some("9")), (Some("bb"), Some("2")), "bb/1 bb/2"),
        ((Some("bb"), Some("3")), (Some("bb\0"), Some("x")), "bb/3"),
    ];
    for (start, end, expected) in just_above {
        let bearer = Sas::table(&t.name, "r").range(start, end).of(client);
        let seen = rows(Table::new(&bearer, &t.name).query("").expect_json());
        assert_eq!(keys_shown(&seen), expected, "{start:?} {end:?}");
    }
}

fn bounds_are_compared_by_code_units(client: &Client) {
    let t = client.table();
    for partition in ["A", "B", "a", "b", "ä"] {
        t.seed_rows(partition, ["r"]);
    }
    let bearer = Sas::table(&t.name, "r").range((Some("B"), None), (Some("a"), None)).of(client);
    let found = rows(Table::new(&bearer, &t.name).query("").expect_json());
    assert_eq!(keys_shown(&found), "B/r a/r");
    let bearer = Sas::table(&t.name, "r").range((Some("b"), None), NONE).of(client);
    assert_eq!(keys_shown(&rows(Table::new(&bearer, &t.name).query("").expect_json())), "b/r ä/r");
    Table::new(&bearer, &t.name).get("ä", "r").expect(200);
}

fn the_order_of_errors_tells_nothing_of_what_is_outside(client: &Client) {
    let (t, _) = grid(client);
    let bearer = Sas::table(&t.name, "raud").range((Some("b"), None), (Some("b"), None)).of(client);
    let there = Table::new(&bearer, &t.name);
    // There and not there, right and wrong conditions: always the same answer.
    let etag = Some("W/\"datetime'2000-01-01T00%3A00%3A00Z'\"");
    for row in ["1", "none"] {
        there.get("a", row).refused(NOT_FOUND);
        there.delete("a", row, etag).refused(OUTSIDE);
        there.replace("a", row, &json!({}), etag).refused(OUTSIDE);
        there.insert(&with_keys("a", row, json!({}))).refused(OUTSIDE);
    }
}
