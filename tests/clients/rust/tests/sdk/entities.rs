//! Entities of every type, under their ETags.

use crate::server::{on_server, refused, written};
use azure_data_tables::prelude::*;
use serde_json::{Value, json};

#[tokio::test]
async fn an_entity_is_inserted_merged_replaced_and_deleted() {
    on_server(|server| async move {
        let table = server.with_key().table_client("People");
        table.create().await.unwrap();
        let body = json!({"PartitionKey": "p", "RowKey": "r", "a": 1, "s": "x"});
        let inserted = table.insert::<_, Value>(&body).unwrap().return_entity(true).await.unwrap();
        let echoed = inserted.entity_with_metadata.unwrap();
        assert_eq!(written(echoed.entity), json!({"a": 1, "s": "x"}));
        let entity = table.partition_key_client("p").entity_client("r");
        assert_eq!(entity.get::<Value>().await.unwrap().etag, inserted.etag);
        refused(table.insert::<_, Value>(&body).unwrap().await, 409, "EntityAlreadyExists");
        entity.merge(json!({"b": true}), IfMatchCondition::Any).unwrap().await.unwrap();
        let merged = entity.get::<Value>().select("a,b").await.unwrap().entity;
        assert_eq!(written(merged), json!({"a": 1, "b": true}));
        entity.update(json!({"c": 2}), IfMatchCondition::Any).unwrap().await.unwrap();
        assert_eq!(written(entity.get().await.unwrap().entity), json!({"c": 2}));
        entity.delete().await.unwrap();
        refused(entity.get::<Value>().await, 404, "ResourceNotFound");
        refused(entity.delete().await, 404, "ResourceNotFound");
        refused(entity.merge(json!({}), IfMatchCondition::Any).unwrap().await, 404, "ResourceNotFound");
    })
    .await;
}

#[tokio::test]
async fn upserts_and_etags() {
    on_server(|server| async move {
        let table = server.with_key().table_client("People");
        table.create().await.unwrap();
        let entity = table.partition_key_client("p").entity_client("r");
        let first = entity.insert_or_merge(json!({"a": 1})).unwrap().await.unwrap().etag;
        let second = entity.insert_or_merge(json!({"b": 2})).unwrap().await.unwrap().etag;
        assert_ne!(first, second);
        assert_eq!(written(entity.get().await.unwrap().entity), json!({"a": 1, "b": 2}));
        let condition = "UpdateConditionNotSatisfied";
        refused(entity.merge(json!({}), first.clone().into()).unwrap().await, 412, condition);
        refused(entity.update(json!({}), first.clone().into()).unwrap().await, 412, condition);
        refused(entity.delete().if_match(IfMatchCondition::Etag(first)).await, 412, condition);
        entity.merge(json!({"a": 3}), second.into()).unwrap().await.unwrap();
        entity.insert_or_replace(json!({"c": 3})).unwrap().await.unwrap();
        assert_eq!(written(entity.get().await.unwrap().entity), json!({"c": 3}));
    })
    .await;
}

#[tokio::test]
async fn every_type_goes_and_comes_back() {
    on_server(|server| async move {
        let table = server.with_key().table_client("People");
        table.create().await.unwrap();
        let values = json!({
            "string": "it's ünïcödé 😀 \" \\ \u{2028}", "empty": "", "yes": true, "no": false,
            "int": -5, "most": i32::MAX, "least": i32::MIN, "double": 2.5, "huge": f64::MAX,
            "big": i64::MAX.to_string(), "big@odata.type": "Edm.Int64",
            "date": "2020-02-29T12:30:45.1234567Z", "date@odata.type": "Edm.DateTime",
            "guid": "c9da6455-213d-42c9-9a79-3e9149a57833", "guid@odata.type": "Edm.Guid",
            "binary": "AAH/", "binary@odata.type": "Edm.Binary",
            "nan": "NaN", "nan@odata.type": "Edm.Double",
            "inf": "Infinity", "inf@odata.type": "Edm.Double",
            "neg": "-Infinity", "neg@odata.type": "Edm.Double",
        });
        let entity = table.partition_key_client("p").entity_client("r");
        entity.insert_or_replace(&values).unwrap().await.unwrap();
        assert_eq!(written(entity.get().await.unwrap().entity), values);
    })
    .await;
}

#[tokio::test]
async fn keys_of_many_characters() {
    on_server(|server| async move {
        let table = server.with_key().table_client("People");
        table.create().await.unwrap();
        // Addresses take quotes doubled, and the SDK leaves that to its caller.
        for key in ["it's", "a b", "ü日本😀", "a+b", "a&b=c", "a;b,c", "(x)", "100%", "%41"] {
            let body = json!({"PartitionKey": key, "RowKey": key, "n": 1});
            table.insert::<_, Value>(&body).unwrap().await.unwrap();
            let doubled = key.replace('\'', "''");
            let entity = table.partition_key_client(&doubled).entity_client(&doubled);
            let found = entity.get::<Value>().await.unwrap().entity;
            assert_eq!((&found["PartitionKey"], &found["n"]), (&json!(key), &json!(1)));
            entity.delete().await.unwrap();
        }
    })
    .await;
}
