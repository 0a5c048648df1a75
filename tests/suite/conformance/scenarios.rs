//! What the pages under `docs/how-to/patterns` rely on, at the level of the protocol.
//! Those that frameworks rely on too are in `access_patterns`.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};

use crate::support::*;

cases! {
    an_index_entity_follows_its_entity, a_stale_index_update_changes_neither_entity,
    index_updates_under_conflict_all_happen_once, a_range_of_compound_keys_with_a_projection,
    a_day_is_dropped_with_its_table, a_day_that_is_made_again_knows_nothing_of_the_old_one,
    counters_of_a_day_share_an_entity, counters_of_concurrent_writers_do_not_lose_each_other,
    one_counter_of_concurrent_writers_counts_every_step, a_wide_entity_is_two_entities,
    halves_are_replaced_together_or_not_at_all, a_token_is_limited_to_its_users_keys,
    a_token_cannot_reach_past_its_range_in_a_transaction, an_update_without_a_condition_ignores_versions,
    a_delete_without_a_condition_ignores_versions, a_star_still_needs_the_entity, a_property_is_added_to_some,
    a_property_changes_its_type_entity_by_entity, a_property_is_removed_by_replacing,
}

// Index entities.

/// Moves an employee to another department: the entity, the index entry that
/// goes and the one that comes, in one transaction under the entity's version.
fn moved(t: &Table, from: &str, to: &str, etag: &str) -> Batch {
    Batch::new()
        .write("PUT", t, ("staff", "emp_1"), &json!({ "Dept": to }), Some(etag))
        .delete(t, "staff", &format!("dept_{from}_1"), "*")
        .insert(t, &with_keys("staff", &format!("dept_{to}_1"), json!({})))
}

fn employee<'a>(client: &'a Client, dept: &str) -> (Table<'a>, String) {
    let t = client.table();
    let etag = t.seed(with_keys("staff", "emp_1", json!({ "Dept": dept })));
    t.seed_rows("staff", [format!("dept_{dept}_1").as_str()]);
    (t, etag)
}

fn an_index_entity_follows_its_entity(client: &Client) {
    let (t, etag) = employee(client, "a");
    let answer = moved(&t, "a", "b", &etag).commit(client);
    assert_eq!(t.get("staff", "emp_1").need("ETag"), answer.parts[0].need("ETag"));
    assert_eq!(row_keys(&t.matches("")), "dept_b_1,emp_1");
    assert_eq!(t.entity("staff", "emp_1")["Dept"], "b");
}

fn a_stale_index_update_changes_neither_entity(client: &Client) {
    let (t, stale) = employee(client, "a");
    moved(&t, "a", "b", &stale).commit(client);
    moved(&t, "a", "c", &stale).send(client).refused(0, CONDITION_FAILED);
    // With the version of now, but the wrong entry to delete, it fails as a whole too.
    let current = t.get("staff", "emp_1").need("ETag").to_owned();
    moved(&t, "a", "c", &current).send(client).refused(1, NOT_FOUND);
    assert_eq!(row_keys(&t.matches("")), "dept_b_1,emp_1");
    assert_eq!(t.get("staff", "emp_1").need("ETag"), current);
}

fn index_updates_under_conflict_all_happen_once(client: &Client) {
    let (t, _) = employee(client, "start");
    let conflicts = AtomicUsize::new(0);
    // Each moves the employee by reading, trying and, if another was faster, again.
    std::thread::scope(|scope| {
        for to in ["a", "b", "c", "d"] {
            let (t, conflicts) = (&t, &conflicts);
            scope.spawn(move || {
                for _ in 0..100 {
                    let read = t.get("staff", "emp_1").expect(200);
                    let from = read.json()["Dept"].as_str().expect("a text").to_owned();
                    let answer = moved(t, &from, to, read.need("ETag")).send(t.client);
                    if answer.parts.len() == 3 {
                        return;
                    }
                    answer.refused(0, CONDITION_FAILED);
                    conflicts.fetch_add(1, Ordering::Relaxed);
                }
                panic!("{to} never came through");
            });
        }
    });
    // Whatever the order was, there is one entry, and it is the entity's.
    let dept = t.entity("staff", "emp_1")["Dept"].as_str().expect("a text").to_owned();
    assert_ne!(dept, "start");
    assert_eq!(row_keys(&t.matches("")), format!("dept_{dept}_1,emp_1"));
    // Three at most can lose to each of the four that win.
    assert!(conflicts.load(Ordering::Relaxed) <= 6, "{conflicts:?}");
}

// Compound keys.

fn a_range_of_compound_keys_with_a_projection(client: &Client) {
    let t = client.table();
    for (employee, year, rating) in [(1, 2022, 3), (1, 2023, 4), (1, 2024, 5), (10, 2023, 1), (2, 2023, 2)] {
        let review = json!({ "Rating": rating, "Text": "long" });
        t.seed(with_keys("sales", &format!("{employee:06}_{year}"), review));
    }
    t.seed(with_keys("sales", "000001_2025", json!({ "Text": "not rated yet" })));
    let filter = escape("PartitionKey eq 'sales' and RowKey ge '000001_2023' and RowKey lt '000001`'");
    let found = t.query(&format!("?$filter={filter}&$select=RowKey,Rating"));
    let shown: Vec<Value> = rows(found.expect_json())
        .into_iter()
        .map(|mut entity| {
            entity.as_object_mut().expect("an entity").retain(|name, _| !name.starts_with("odata."));
            entity
        })
        .collect();
    assert_eq!(
        shown,
        [
            json!({ "RowKey": "000001_2023", "Rating": 4 }),
            json!({ "RowKey": "000001_2024", "Rating": 5 }),
            json!({ "RowKey": "000001_2025", "Rating": null }),
        ]
    );
}

// A table for each day.

fn a_day_is_dropped_with_its_table(client: &Client) {
    let days = [client.table(), client.table()];
    for t in &days {
        let batch =
            (0..100).fold(Batch::new(), |b, i| b.insert(t, &with_keys("p", &format!("{i:02}"), json!({}))));
        batch.commit(client);
    }
    let [old, new] = days;
    client.delete_table(&old.name).expect_no_content();
    old.query("").refused(NO_TABLE);
    old.get("p", "00").refused(NO_TABLE);
    old.insert(&with_keys("p", "late", json!({}))).refused(NO_TABLE);
    Batch::new().insert(&old, &with_keys("p", "late", json!({}))).send(client).refused(0, NO_TABLE);
    client.delete_table(&old.name).refused(NOT_FOUND);
    assert_eq!(new.count(), 100);
}

fn a_day_that_is_made_again_knows_nothing_of_the_old_one(client: &Client) {
    let t = client.table();
    for round in 0..5 {
        let etag = t.seed_one(json!({ "Round": round }));
        assert_eq!(t.count(), 1, "round {round}");
        client.delete_table(&t.name).expect_no_content();
        client.create_table(&t.name).expect(201);
        assert_eq!(t.count(), 0, "round {round}");
        t.get("p", "r").refused(NOT_FOUND);
        t.replace("p", "r", &json!({}), Some(&etag)).refused(NOT_FOUND);
    }
}

// Counters.

fn hour(n: usize, count: i64) -> Value {
    let name = format!("H{n:02}");
    let mut counter = Map::new();
    counter.insert(format!("{name}@odata.type"), "Edm.Int64".into());
    counter.insert(name, count.to_string().into());
    counter.into()
}

fn counters_of_a_day_share_an_entity(client: &Client) {
    let t = client.table();
    for n in 0..24 {
        t.merge("p", "r", &hour(n, n as i64 * 10), None).expect_no_content();
    }
    t.merge("p", "r", &hour(3, 7), None).expect_no_content();
    let day = t.properties();
    assert_eq!(day.as_object().expect("an entity").len(), 48, "value and type of 24: {day}");
    assert_eq!((&day["H03"], &day["H23"]), (&json!("7"), &json!("230")));
}

fn counters_of_concurrent_writers_do_not_lose_each_other(client: &Client) {
    let t = client.table();
    std::thread::scope(|scope| {
        for n in 0..8 {
            let t = &t;
            scope.spawn(move || {
                for count in 1..=10 {
                    t.merge("p", "r", &hour(n, count), None).expect_no_content();
                }
            });
        }
    });
    let day = t.properties();
    for n in 0..8 {
        assert_eq!(day[format!("H{n:02}")], "10", "{day}");
    }
}

fn one_counter_of_concurrent_writers_counts_every_step(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "N": 0, "Kept": true }));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let t = &t;
            scope.spawn(move || {
                for _ in 0..5 {
                    loop {
                        let read = t.get("p", "r").expect(200);
                        let next = json!({ "N": read.json()["N"].as_i64().expect("a number") + 1 });
                        let answer = t.merge("p", "r", &next, Some(read.need("ETag")));
                        if answer.status == 204 {
                            break;
                        }
                        answer.refused(CONDITION_FAILED);
                    }
                }
            });
        }
    });
    assert_eq!(t.properties(), json!({ "N": 20, "Kept": true }));
}

// More than 252 properties.

fn half(from: usize, value: i32) -> Value {
    (from..from + 252).map(|n| (format!("P{n:03}"), json!(value))).collect::<Map<_, _>>().into()
}

fn a_wide_entity_is_two_entities(client: &Client) {
    let t = client.table();
    let mut whole = half(0, 1);
    whole["P252"] = json!(1);
    t.insert(&with_keys("wide", "1", whole)).refused(TOO_MANY_PROPERTIES);
    Batch::new()
        .insert(&t, &with_keys("wide", "1_1", half(0, 1)))
        .insert(&t, &with_keys("wide", "1_2", half(252, 1)))
        .commit(client);
    let found = t.matches("PartitionKey eq 'wide' and RowKey ge '1_' and RowKey lt '1`'");
    let properties: usize = found.into_iter().map(|e| custom(e).as_object().expect("an entity").len()).sum();
    assert_eq!(properties, 504);
}

fn halves_are_replaced_together_or_not_at_all(client: &Client) {
    let t = client.table();
    let first = t.seed(with_keys("wide", "1_1", half(0, 1)));
    let second = t.seed(with_keys("wide", "1_2", half(252, 1)));
    let update = |value, second: &str| {
        Batch::new()
            .write("PUT", &t, ("wide", "1_1"), &half(0, value), Some(&first))
            .write("PUT", &t, ("wide", "1_2"), &half(252, value), Some(second))
            .send(client)
    };
    update(2, &first).refused(1, CONDITION_FAILED);
    assert_eq!(custom(t.entity("wide", "1_1")), half(0, 1));
    assert_eq!(update(3, &second).parts.len(), 2);
    update(4, &second).refused(0, CONDITION_FAILED);
    // One grows too wide: the other is left alone.
    let too_wide = json!({ "One": 1, "Two": 2 });
    Batch::new()
        .write("MERGE", &t, ("wide", "1_1"), &json!({ "P000": 5 }), Some("*"))
        .write("MERGE", &t, ("wide", "1_2"), &too_wide, Some("*"))
        .send(client)
        .refused(1, TOO_MANY_PROPERTIES);
    assert_eq!(custom(t.entity("wide", "1_1")), half(0, 3));
    assert_eq!(custom(t.entity("wide", "1_2")), half(252, 3));
}

// Tokens for a range of keys.

/// A table of notes of two users, and a client that has a token for Ann's.
fn notes(client: &Client) -> (Table<'_>, Client) {
    let t = client.table();
    for row in ["ann_1", "ann_2", "anna_1", "bob_1"] {
        t.seed(with_keys("notes", row, json!({ "Text": row })));
    }
    let range = ((Some("notes"), Some("ann_")), (Some("notes"), Some("ann_~")));
    let ann = Sas::table(&t.name, "raud").range(range.0, range.1).of(client);
    (t, ann)
}

fn a_token_is_limited_to_its_users_keys(client: &Client) {
    let (t, ann) = notes(client);
    let hers = Table::new(&ann, &t.name);
    assert_eq!(hers.matching_rows("PartitionKey eq 'notes'"), "ann_1,ann_2");
    hers.get("notes", "ann_1").expect(200);
    hers.get("notes", "bob_1").refused(NOT_FOUND);
    hers.insert(&with_keys("notes", "ann_3", json!({}))).expect(201);
    hers.merge("notes", "ann_1", &json!({ "Read": true }), Some("*")).expect(204);
    hers.delete("notes", "ann_2", Some("*")).expect(204);
    for row in ["anna_1", "bob_1", "ann"] {
        hers.insert(&with_keys("notes", row, json!({}))).refused(OUTSIDE);
        hers.replace("notes", row, &json!({}), None).refused(OUTSIDE);
        hers.delete("notes", row, Some("*")).refused(OUTSIDE);
    }
    hers.insert(&with_keys("other", "ann_1", json!({}))).refused(OUTSIDE);
    assert_eq!(row_keys(&t.matches("")), "ann_1,ann_3,anna_1,bob_1");
}

fn a_token_cannot_reach_past_its_range_in_a_transaction(client: &Client) {
    let (t, ann) = notes(client);
    Batch::new()
        .insert(&t, &with_keys("notes", "ann_3", json!({})))
        .delete(&t, "notes", "bob_1", "*")
        .send(&ann)
        .refused(1, OUTSIDE);
    assert_eq!(row_keys(&t.matches("")), "ann_1,ann_2,anna_1,bob_1");
}

// Without conditions.

fn an_update_without_a_condition_ignores_versions(client: &Client) {
    let t = client.table();
    let first = t.seed_one(json!({ "A": 1, "B": 1 }));
    t.merge("p", "r", &json!({ "A": 2 }), Some("*")).expect_no_content();
    t.replace("p", "r", &json!({ "A": 3 }), Some(&first)).refused(CONDITION_FAILED);
    assert_eq!(t.properties(), json!({ "A": 2, "B": 1 }));
    let last = t.replace("p", "r", &json!({ "A": 3 }), Some("*")).expect_no_content();
    assert_eq!(t.properties(), json!({ "A": 3 }));
    assert_eq!(t.get("p", "r").need("ETag"), last.need("ETag"));
    assert_ne!(last.need("ETag"), first);
}

fn a_delete_without_a_condition_ignores_versions(client: &Client) {
    let t = client.table();
    let first = t.seed_one(json!({}));
    t.merge("p", "r", &json!({ "A": 2 }), Some("*")).expect_no_content();
    t.delete("p", "r", Some(&first)).refused(CONDITION_FAILED);
    t.delete("p", "r", Some("*")).expect_no_content();
    t.delete("p", "r", Some("*")).refused(NOT_FOUND);
    assert_eq!(t.count(), 0);
}

fn a_star_still_needs_the_entity(client: &Client) {
    let t = client.table();
    for etag in [Some("*"), Some("W/\"datetime'2024-01-01T00%3A00%3A00Z'\"")] {
        t.replace("p", "r", &json!({}), etag).refused(NOT_FOUND);
        t.merge("p", "r", &json!({}), etag).refused(NOT_FOUND);
        t.delete("p", "r", etag).refused(NOT_FOUND);
    }
    assert_eq!(t.count(), 0);
    // With no If-Match at all the same methods insert.
    t.merge("p", "r", &json!({ "A": 1 }), None).expect_no_content();
    assert_eq!(t.properties(), json!({ "A": 1 }));
}

// Properties over time.

fn a_property_is_added_to_some(client: &Client) {
    let t = client.table();
    t.seed_rows("p", ["1", "2", "3"]);
    t.merge("p", "2", &json!({ "Size": 5 }), Some("*")).expect_no_content();
    assert_eq!(t.matching_rows("Size ge 0"), "2");
    assert_eq!(t.matching_rows("not (Size ge 0)"), "1,3");
    assert_eq!(t.matching_rows("Size ne 5"), "", "what is missing equals nothing and differs from nothing");
}

fn a_property_changes_its_type_entity_by_entity(client: &Client) {
    let t = client.table();
    t.seed(with_keys("p", "1", json!({ "Size": "12" })));
    t.seed(with_keys("p", "2", json!({ "Size": "large" })));
    t.merge("p", "1", &json!({ "Size": 12 }), Some("*")).expect_no_content();
    assert_eq!(custom(t.entity("p", "1")), json!({ "Size": 12 }));
    assert_eq!(custom(t.entity("p", "2")), json!({ "Size": "large" }));
    assert_eq!(t.matching_rows("Size ge 10"), "1", "a number is asked for");
    assert_eq!(t.matching_rows("Size eq 'large'"), "2", "a text is asked for");
    let wider = json!({ "Size@odata.type": "Edm.Int64", "Size": "12" });
    t.merge("p", "1", &wider, Some("*")).expect_no_content();
    assert_eq!(custom(t.entity("p", "1")), wider);
    assert_eq!(t.matching_rows("Size eq 12L"), "1");
    let wrong = json!({ "Size@odata.type": "Edm.Int32", "Size": "x" });
    t.merge("p", "1", &wrong, Some("*")).expect_error_code(400, "InvalidInput");
    assert_eq!(custom(t.entity("p", "1")), wider);
}

fn a_property_is_removed_by_replacing(client: &Client) {
    let t = client.table();
    let etag = t.seed_one(json!({ "Old": 1, "Kept": "x" }));
    t.merge("p", "r", &json!({ "Old": null, "Kept": "y" }), Some("*")).expect_no_content();
    assert_eq!(t.properties(), json!({ "Old": 1, "Kept": "y" }), "a null says nothing");
    t.replace("p", "r", &json!({ "Kept": "y" }), Some(&etag)).refused(CONDITION_FAILED);
    let current = t.get("p", "r").need("ETag").to_owned();
    t.replace("p", "r", &json!({ "Kept": "y" }), Some(&current)).expect_no_content();
    assert_eq!(t.properties(), json!({ "Kept": "y" }));
    assert_eq!(t.matching_rows("Old ge 0"), "");
}
