//! What known frameworks lean on: clustering, reminders, transactional state,
//! histories with sentinels, leases, index entities.

use crate::support::*;
use serde_json::{Value, json};

cases! {
    a_history_of_99_and_its_sentinel_commit_together, a_second_owner_is_stopped_by_the_sentinel,
    an_instance_row_has_an_empty_row_key, an_instance_range_by_prefix_and_status,
    a_history_is_deleted_in_hundreds_at_once, a_new_member_joins_in_one_transaction,
    gateways_are_found_by_status_and_port, boundary_rows_enclose_all_others, reminders_wrap_around_the_ring,
    transactional_state_mixes_every_kind_of_write, one_answer_is_one_state_of_the_partition,
    state_is_split_over_many_large_properties, a_lease_is_taken_by_its_etag,
    a_storage_browser_sends_empty_options, a_health_check_asks_for_nothing, newest_first_by_inverted_ticks,
    secondary_copies_stay_equal, a_prefix_search_finds_the_prefix_only,
    different_kinds_of_entity_share_a_partition, a_lost_answer_is_repeated_safely,
}

fn a_history_of_99_and_its_sentinel_commit_together(client: &Client) {
    let t = client.table();
    let sentinel = t.seed(with_keys("instance", "sentinel", json!({ "ExecutionId": "1" })));
    let batch = (0..99).fold(Batch::new(), |batch, i| {
        batch.write(
            "PUT",
            &t,
            ("instance", &format!("{i:016X}")),
            &json!({ "EventType": "TaskScheduled", "N": i }),
            None,
        )
    });
    let batch = batch.write(
        "MERGE",
        &t,
        ("instance", "sentinel"),
        &json!({ "CheckpointCompletedTimestamp": "x" }),
        Some(&sentinel),
    );
    let answer = batch.commit(client);
    assert_eq!(answer.parts.len(), 100);
    let history = t.matches("PartitionKey eq 'instance'");
    assert_eq!(history.len(), 100);
    assert_eq!(history[99]["RowKey"], "sentinel", "the sentinel sorts last");
    assert_eq!(history[99]["ExecutionId"], "1");
}

fn a_second_owner_is_stopped_by_the_sentinel(client: &Client) {
    let t = client.table();
    let sentinel = t.seed(with_keys("instance", "sentinel", json!({ "Owner": "a" })));
    let checkpoint = |owner: &str, etag: &str| {
        Batch::new()
            .write("PUT", &t, ("instance", "0000"), &json!({ "By": owner }), None)
            .write("MERGE", &t, ("instance", "sentinel"), &json!({ "Owner": owner }), Some(etag))
            .send(client)
    };
    checkpoint("a", &sentinel);
    checkpoint("b", &sentinel).refused(1, CONDITION_FAILED);
    assert_eq!(t.entity("instance", "0000")["By"], "a");
    assert_eq!(t.entity("instance", "sentinel")["Owner"], "a");
}

fn an_instance_row_has_an_empty_row_key(client: &Client) {
    let t = client.table();
    for instance in ["a", "b", "c"] {
        let body = json!({ "RuntimeStatus": if instance == "b" { "Running" } else { "Completed" } });
        t.replace(instance, "", &body, None).expect(204);
        t.merge(instance, "", &json!({ "Output": "x" }), Some("*")).expect(204);
    }
    t.seed_rows("a", ["not an instance row"]);
    assert_eq!(t.matches("RowKey eq ''").len(), 3);
    assert_eq!(t.matches("PartitionKey eq 'b' and RowKey eq ''").len(), 1);
    let running = t.matches("RowKey eq '' and RuntimeStatus eq 'Running'");
    assert_eq!(running.iter().map(|e| e["PartitionKey"].clone()).collect::<Vec<_>>(), [json!("b")]);
    let several = "(PartitionKey eq 'a' or PartitionKey eq 'c') and RowKey eq ''";
    assert_eq!(t.matches(several).len(), 2);
}

fn an_instance_range_by_prefix_and_status(client: &Client) {
    let t = client.table();
    for (instance, status) in [("order-1", "Running"), ("order-2", "Failed"), ("other-1", "Running")] {
        let created = json!({ "RuntimeStatus": status, "CreatedTime@odata.type": "Edm.DateTime", "CreatedTime": "2024-01-01T00:00:00Z" });
        t.replace(instance, "", &created, None).expect(204);
    }
    let filter = "(PartitionKey ge 'order-' and PartitionKey lt 'order.') and (CreatedTime ge datetime'2023-01-01T00:00:00Z') and (RuntimeStatus eq 'Running' or RuntimeStatus eq 'Failed')";
    assert_eq!(t.matches(filter).len(), 2);
}

fn a_history_is_deleted_in_hundreds_at_once(client: &Client) {
    let t = client.table();
    let rows: Vec<String> = (0..300).map(|i| format!("{i:04}")).collect();
    for chunk in rows.chunks(100) {
        chunk
            .iter()
            .fold(Batch::new(), |b, row| b.insert(&t, &with_keys("p", row, json!({}))))
            .commit(client);
    }
    std::thread::scope(|scope| {
        for chunk in rows.chunks(100) {
            let t = &t;
            scope.spawn(move || {
                let batch = chunk.iter().fold(Batch::new(), |b, row| b.delete(t, "p", row, "*"));
                batch.commit(t.client);
            });
        }
    });
    assert_eq!(t.count(), 0);
    Batch::new().delete(&t, "p", "0000", "*").send(client).refused_alone(NOT_FOUND);
}

fn a_new_member_joins_in_one_transaction(client: &Client) {
    let t = client.table();
    let version = t.seed(with_keys("deployment", "VersionRow", json!({ "MembershipVersion": "1" })));
    let join = |silo: &str, etag: &str| {
        Batch::new()
            .insert(&t, &with_keys("deployment", silo, json!({ "Status": "Joining", "ProxyPort": "30000" })))
            .write("PUT", &t, ("deployment", "VersionRow"), &json!({ "MembershipVersion": "2" }), Some(etag))
            .send(client)
    };
    assert_eq!(join("10.0.0.1-11111", &version).parts.len(), 2);
    join("10.0.0.2-11111", &version).refused(1, CONDITION_FAILED);
    assert_eq!(t.matching_rows("Status eq 'Joining'"), "10.0.0.1-11111");
    let current = t.get("deployment", "VersionRow").need("ETag").to_owned();
    join("10.0.0.1-11111", &current).refused(0, ENTITY_EXISTS);
}

fn gateways_are_found_by_status_and_port(client: &Client) {
    let t = client.table();
    for (row, status, port) in [("1", "Active", "30000"), ("2", "Active", "0"), ("3", "Dead", "30000")] {
        t.seed(with_keys("d", row, json!({ "Status": status, "ProxyPort": port })));
    }
    t.seed(with_keys("other", "4", json!({ "Status": "Active", "ProxyPort": "30000" })));
    assert_eq!(t.matching_rows("PartitionKey eq 'd' and Status eq 'Active' and ProxyPort ne '0'"), "1");
}

fn boundary_rows_enclose_all_others(client: &Client) {
    let t = client.table();
    t.seed_rows("grain", ["0000000000000001", "a", "!", "~", "A", "zzzz"]);
    let found = t.matching_rows("PartitionKey eq 'grain' and RowKey gt '!' and RowKey lt '~'");
    assert_eq!(found, "0000000000000001,A,a,zzzz");
    assert_eq!(
        t.matching_rows("PartitionKey eq 'grain' and RowKey ge '!' and RowKey le '~'").split(',').count(),
        6
    );
}

fn reminders_wrap_around_the_ring(client: &Client) {
    let t = client.table();
    for hash in ["10000000", "50000000", "90000000", "F0000000"] {
        t.seed(with_keys(&format!("service_{hash}"), "reminder", json!({})));
    }
    let partitions = |filter: &str| {
        t.matches(filter)
            .iter()
            .map(|e| e["PartitionKey"].as_str().unwrap_or("?")[8..9].to_owned())
            .collect::<String>()
    };
    let inside = "(PartitionKey gt 'service_' and PartitionKey lt 'service`') and (PartitionKey gt 'service_20000000' and PartitionKey le 'service_90000000')";
    assert_eq!(partitions(inside), "59");
    let around = "(PartitionKey gt 'service_' and PartitionKey lt 'service`') and (PartitionKey gt 'service_80000000' or PartitionKey le 'service_20000000')";
    assert_eq!(partitions(around), "19F");
}

fn transactional_state_mixes_every_kind_of_write(client: &Client) {
    let t = client.table();
    let key = t.seed(with_keys("grain", "k", json!({ "CommittedSequenceId": 0 })));
    let state = t.seed(with_keys("grain", "s_0001", json!({ "StateJson": "a" })));
    let stale = t.seed(with_keys("grain", "s_0000", json!({})));
    Batch::new()
        .insert(&t, &with_keys("grain", "s_0002", json!({ "StateJson": "b" })))
        .write("PUT", &t, ("grain", "s_0001"), &json!({ "StateJson": "c" }), Some(&state))
        .delete(&t, "grain", "s_0000", &stale)
        .write("PUT", &t, ("grain", "k"), &json!({ "CommittedSequenceId": 2 }), Some(&key))
        .commit(client);
    assert_eq!(t.matching_rows("RowKey ge 's_' and RowKey lt 's`'"), "s_0001,s_0002");
    assert_eq!(t.entity("grain", "k")["CommittedSequenceId"], 2);
}

fn one_answer_is_one_state_of_the_partition(client: &Client) {
    let t = client.table();
    let write = |n: i32| {
        (0..50).fold(Batch::new(), |b, i| {
            b.write("PUT", &t, ("p", &format!("{i:02}")), &json!({ "V": n }), None)
        })
    };
    write(0).commit(client);
    std::thread::scope(|scope| {
        scope.spawn(|| (1..=10).for_each(|n| drop(write(n).commit(client))));
        scope.spawn(|| {
            for _ in 0..20 {
                let values: Vec<Value> =
                    t.matches("PartitionKey eq 'p' and V ge 0").iter().map(|e| e["V"].clone()).collect();
                assert!(values.len() == 50 && values.iter().all(|v| *v == values[0]), "{values:?}");
            }
        });
    });
}

fn state_is_split_over_many_large_properties(client: &Client) {
    let t = client.table();
    let mut wide = json!({});
    for i in 0..15 {
        wide[format!("StringData{i}")] = json!("é".repeat(32 * 1024));
    }
    t.insert(&with_keys("p", "text", wide.clone())).expect(201);
    assert_eq!(custom(t.entity("p", "text")), wide);
}

fn a_lease_is_taken_by_its_etag(client: &Client) {
    let t = client.table();
    let free = t.seed(with_keys("hub", "partition-00", json!({ "CurrentOwner": "" })));
    let winners: usize = std::thread::scope(|scope| {
        let (t, free) = (&t, free.as_str());
        let take = move |i: i32| {
            t.replace("hub", "partition-00", &json!({ "CurrentOwner": format!("w{i}") }), Some(free)).status
        };
        let threads: Vec<_> = (0..5).map(|i| scope.spawn(move || take(i))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).filter(|s| *s == 204).count()
    });
    assert_eq!(winners, 1);
}

fn a_storage_browser_sends_empty_options(client: &Client) {
    let t = client.table();
    t.seed_one(json!({ "A": 1 }));
    let request = client.request("GET", &format!("/{}()?$filter=&$select=&$top=1000&timeout=30", t.name));
    let answer = request.header("DataServiceVersion", "3.0;").send();
    assert_eq!(custom(rows(answer.expect_json())[0].clone()), json!({ "A": 1 }));
}

fn a_health_check_asks_for_nothing(client: &Client) {
    let answer = client.get("/Tables?$filter=false&$top=1");
    assert_eq!(rows(answer.expect_json()).len(), 0);
}

fn newest_first_by_inverted_ticks(client: &Client) {
    let t = client.table();
    for i in [3u64, 1, 2] {
        t.seed(with_keys("log", &format!("{:019}", u64::MAX / 2 - i), json!({ "N": i })));
    }
    let newest = rows(t.query("?$top=1").expect_json());
    assert_eq!(newest[0]["N"], 3);
}

fn secondary_copies_stay_equal(client: &Client) {
    let t = client.table();
    let employee = json!({ "Name": "Ann", "Dept": "Sales" });
    let both = |batch: Batch, body: &Value| {
        batch.write("PUT", &t, ("sales", "empid_000223"), body, None).write(
            "PUT",
            &t,
            ("sales", "email_ann@x.example"),
            body,
            None,
        )
    };
    both(Batch::new(), &employee).commit(client);
    let failing = both(Batch::new(), &json!({ "Name": "Eve" })).delete(&t, "sales", "gone", "*");
    failing.send(client).refused(2, NOT_FOUND);
    for row in ["empid_000223", "email_ann@x.example"] {
        assert_eq!(custom(t.entity("sales", row)), employee);
    }
}

fn a_prefix_search_finds_the_prefix_only(client: &Client) {
    let t = client.table();
    t.seed_rows("Sales", ["empid_000121", "empid_000122", "empic_1", "empid`", "employee"]);
    let found = t.matching_rows("PartitionKey eq 'Sales' and RowKey ge 'empid_' and RowKey lt 'empid`'");
    assert_eq!(found, "empid_000121,empid_000122");
}

fn different_kinds_of_entity_share_a_partition(client: &Client) {
    let t = client.table();
    t.seed(with_keys("dept", "1", json!({ "EntityType": "Department", "Count": 2 })));
    t.seed(with_keys("dept", "2", json!({ "EntityType": "Employee", "Name": "Ann" })));
    t.seed(with_keys("dept", "3", json!({ "EntityType": "Employee", "Name": "Bob", "Count": "none" })));
    assert_eq!(t.matching_rows("EntityType eq 'Employee'"), "2,3");
    assert_eq!(t.matching_rows("Count ge 2"), "1");
}

fn a_lost_answer_is_repeated_safely(client: &Client) {
    let t = client.table();
    let entity = with_keys("p", "r", json!({ "A": 1 }));
    t.insert(&entity).expect(201);
    t.insert(&entity).refused(ENTITY_EXISTS);
    t.replace("p", "r", &entity, None).expect(204);
    t.replace("p", "r", &entity, None).expect(204);
    assert_eq!(t.properties(), json!({ "A": 1 }));
}
