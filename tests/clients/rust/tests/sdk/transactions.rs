//! Entity group transactions: all or nothing.

use crate::server::{on_server, refused, written};
use azure_data_tables::prelude::*;
use serde_json::{Value, json};

fn entity(row: &str) -> Value {
    json!({"PartitionKey": "p", "RowKey": row, "old": 1})
}

#[tokio::test]
async fn every_kind_of_operation_at_once() {
    on_server(|server| async move {
        let table = server.with_key().table_client("People");
        table.create().await.unwrap();
        for row in ["delete", "merge", "update", "upmerge", "upreplace"] {
            table.insert::<_, Value>(entity(row)).unwrap().await.unwrap();
        }
        let partition = table.partition_key_client("p");
        let now = json!({"now": "it's 100% <&> ü"});
        let answer = partition
            .transaction()
            .insert(entity("insert"))
            .unwrap()
            .delete("delete", None)
            .unwrap()
            .merge("merge", &now, Some(IfMatchCondition::Any))
            .unwrap()
            .update("update", &now, Some(IfMatchCondition::Any))
            .unwrap()
            .insert_or_merge("upmerge", &now)
            .unwrap()
            .insert_or_replace("upreplace", &now)
            .unwrap()
            .await
            .unwrap();
        let statuses: Vec<u16> =
            answer.operation_responses.iter().map(|part| part.status_code.into()).collect();
        assert_eq!(statuses, [201, 204, 204, 204, 204, 204]);
        assert!(answer.operation_responses[2].etag.is_some());
        let both = json!({"old": 1, "now": "it's 100% <&> ü"});
        for (row, expected) in [("merge", &both), ("update", &now), ("upmerge", &both), ("upreplace", &now)] {
            let found = partition.entity_client(row).get().await.unwrap().entity;
            assert_eq!(&written(found), expected, "{row}");
        }
        refused(partition.entity_client("delete").get::<Value>().await, 404, "ResourceNotFound");
    })
    .await;
}

#[tokio::test]
async fn failures_undo_everything() {
    on_server(|server| async move {
        let table = server.with_key().table_client("People");
        table.create().await.unwrap();
        let partition = table.partition_key_client("p");
        let taken = partition.entity_client("taken");
        let old = taken.insert_or_merge(json!({})).unwrap().await.unwrap().etag;
        taken.merge(json!({}), IfMatchCondition::Any).unwrap().await.unwrap();
        let first = || partition.transaction().insert(entity("a")).unwrap();
        for (transaction, status) in [
            (first().insert(entity("taken")).unwrap(), 409),
            (first().merge("missing", json!({}), Some(IfMatchCondition::Any)).unwrap(), 404),
            (first().update("taken", json!({}), Some(old.into())).unwrap(), 412),
            (first().insert_or_merge("a", json!({})).unwrap(), 400),
        ] {
            // The SDK takes 202 for a success, and has neither the code nor the index.
            let answer = transaction.await.unwrap().operation_responses;
            assert_eq!(answer.iter().map(|part| part.status_code.into()).collect::<Vec<u16>>(), [status]);
            refused(partition.entity_client("a").get::<Value>().await, 404, "ResourceNotFound");
        }
    })
    .await;
}
