//! What the pages under `docs/how-to/patterns` rely on, at the level of the protocol.
//! Those that frameworks rely on too are in `access_patterns`; single rules are in the files of their topics.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Map, Value, json};

use crate::support::*;

cases! {
    an_index_entity_follows_its_entity, a_stale_index_update_changes_neither_entity,
    index_updates_under_conflict_all_happen_once, a_range_of_compound_keys_with_a_projection,
    counters_of_a_day_share_an_entity, a_wide_entity_is_two_entities,
    halves_are_replaced_together_or_not_at_all, a_property_changes_its_type_entity_by_entity,
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

// Properties over time.

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
