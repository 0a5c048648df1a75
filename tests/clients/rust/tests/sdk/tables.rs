//! Creating, listing and deleting tables, and who may.

use crate::server::{on_server, random, refused};
use azure_data_tables::prelude::*;
use azure_storage::StorageCredentials;
use futures::TryStreamExt;
use serde_json::{Value, json};

async fn names(service: &TableServiceClient, filter: &str, top: u32) -> (Vec<String>, Vec<usize>) {
    let pages: Vec<_> =
        service.list().filter(filter.to_owned()).top(top).into_stream().try_collect().await.unwrap();
    let sizes = pages.iter().map(|page| page.tables.len()).collect();
    (pages.into_iter().flat_map(|page| page.tables).map(|table| table.name).collect(), sizes)
}

#[tokio::test]
async fn tables_are_created_listed_and_deleted() {
    on_server(|server| async move {
        let service = server.with_key();
        let all: Vec<String> = (0..7).map(|number| format!("Paged{number}")).collect();
        for name in &all {
            service.table_client(name).create().await.unwrap();
        }
        refused(service.table_client("pAGED1").create().await, 409, "TableAlreadyExists");
        assert_eq!(names(&service, "TableName ge 'Paged'", 3).await, (all.clone(), vec![3, 3, 1]));
        assert_eq!(names(&service, "TableName eq 'Paged4'", 10).await.0, ["Paged4"]);
        for name in &all {
            service.table_client(name).delete().await.unwrap();
        }
        assert!(names(&service, "TableName ge 'Paged'", 3).await.0.is_empty());
        refused(service.table_client("Paged1").delete().await, 404, "ResourceNotFound");
        refused(service.table_client("my_table").create().await, 400, "InvalidResourceName");
    })
    .await;
}

#[tokio::test]
async fn a_missing_table_is_reported() {
    on_server(|server| async move {
        let missing = server.with_key().table_client("Missing");
        let entity = missing.partition_key_client("p").entity_client("r");
        let body = json!({"PartitionKey": "p", "RowKey": "r"});
        refused(missing.insert::<_, Value>(&body).unwrap().await, 404, "TableNotFound");
        refused(entity.get::<Value>().await, 404, "TableNotFound");
        refused(entity.insert_or_merge(&body).unwrap().await, 404, "TableNotFound");
        refused(missing.query().into_stream::<Value>().try_next().await, 404, "TableNotFound");
    })
    .await;
}

#[tokio::test]
async fn other_keys_do_not_open_the_door() {
    on_server(|server| async move {
        let wrong = azure_core::base64::encode(random(64));
        let service = server.service(StorageCredentials::access_key(server.account.clone(), wrong));
        refused(service.list().into_stream().try_next().await, 403, "AuthenticationFailed");
        refused(service.table_client("People").create().await, 403, "AuthenticationFailed");
    })
    .await;
}
