//! What known frameworks lean on: clustering, reminders, transactional state,
//! histories with sentinels, leases, index entities.

use crate::support::*;
use serde_json::json;

cases! {
    an_instance_row_has_an_empty_row_key, an_instance_range_by_prefix_and_status,
    a_history_is_deleted_in_hundreds_at_once, reminders_wrap_around_the_ring, a_health_check_asks_for_nothing,
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

fn a_health_check_asks_for_nothing(client: &Client) {
    let answer = client.get("/Tables?$filter=false&$top=1");
    assert_eq!(rows(answer.expect_json()).len(), 0);
}
