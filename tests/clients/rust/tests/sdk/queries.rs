//! Filters, projections, and pages.

use crate::server::{on_server, refused, written};
use azure_core::prelude::Continuable;
use azure_data_tables::prelude::*;
use futures::TryStreamExt;
use serde_json::{Value, json};

/// The row keys of each page.
async fn pages(table: &TableClient, filter: &str, top: u32) -> Vec<Vec<String>> {
    let query = table.query().filter(filter.to_owned()).top(top);
    let pages: Vec<_> = query.into_stream::<Value>().try_collect().await.unwrap();
    pages
        .into_iter()
        .map(|page| {
            page.entities.iter().map(|entity| entity["RowKey"].as_str().unwrap().to_owned()).collect()
        })
        .collect()
}

#[tokio::test]
async fn filters_of_every_type() {
    on_server(|server| async move {
        let table = server.with_key().table_client("People");
        table.create().await.unwrap();
        let guid = "c9da6455-213d-42c9-9a79-3e9149a5783";
        for n in 0..5_i32 {
            let mut body = json!({
                "PartitionKey": "p", "RowKey": n.to_string(), "n": n, "d": f64::from(n) + 0.5,
                "s": format!("it's {n}"), "even": n % 2 == 0,
                "big": (i64::from(n) * 1_000_000_000_000).to_string(), "big@odata.type": "Edm.Int64",
                "t": format!("2020-01-01T00:00:0{n}Z"), "t@odata.type": "Edm.DateTime",
                "g": format!("{guid}{n}"), "g@odata.type": "Edm.Guid",
                "x": azure_core::base64::encode([n.to_le_bytes()[0]]), "x@odata.type": "Edm.Binary",
            });
            if n == 4 {
                body["only"] = json!("here");
            }
            table.insert::<_, Value>(&body).unwrap().await.unwrap();
        }
        for (filter, expected) in [
            ("PartitionKey eq 'p' and RowKey ge '3'", "34"),
            ("n gt 0 and n le 2 or n eq 4", "124"),
            ("not (n gt 1)", "01"),
            ("big ge 3000000000000L", "34"),
            ("d lt 1.75", "01"),
            ("s eq 'it''s 3'", "3"),
            ("even eq true", "024"),
            ("t gt datetime'2020-01-01T00:00:02Z'", "34"),
            ("g eq guid'c9da6455-213d-42c9-9a79-3e9149a57832'", "2"),
            ("x ge X'03'", "34"),
            ("only ne 'there'", "4"),
            ("n eq 99", ""),
        ] {
            assert_eq!(pages(&table, filter, 1000).await.concat().concat(), expected, "{filter}");
        }
        refused(table.query().filter("n eq").into_stream::<Value>().try_next().await, 400, "InvalidInput");
    })
    .await;
}

#[tokio::test]
async fn select_pages_and_their_tokens() {
    on_server(|server| async move {
        let table = server.with_key().table_client("People");
        table.create().await.unwrap();
        let all: Vec<String> = (0..1100).map(|number| format!("{number:04}")).collect();
        for rows in all.chunks(100) {
            let mut transaction = table.partition_key_client("p").transaction();
            for row in rows {
                transaction =
                    transaction.insert(json!({"PartitionKey": "p", "RowKey": row, "a": 1, "b": 2})).unwrap();
            }
            transaction.await.unwrap();
        }
        for (top, sizes) in [(1000, vec![1000, 100]), (400, vec![400, 400, 300])] {
            let found = pages(&table, "PartitionKey eq 'p'", top).await;
            assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), sizes);
            assert_eq!(found.concat(), all);
        }
        let first =
            table.query().top(2).select("a").into_stream::<Value>().try_next().await.unwrap().unwrap();
        let (partition, row) = first.continuation().unwrap();
        assert_eq!(
            first.entities.into_iter().map(written).collect::<Vec<_>>(),
            [json!({"a": 1}), json!({"a": 1})]
        );
        let rest = table.query().initial_partition_key(partition).initial_row_key(row.unwrap());
        let next = rest.into_stream::<Value>().try_next().await.unwrap().unwrap();
        assert_eq!(next.entities[0]["RowKey"], json!("0002"));
    })
    .await;
}
