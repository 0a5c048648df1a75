//! One table and what cases do with it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::answer::Answer;
use super::batch::Batch;
use super::client::{Client, Request};
use super::encode::{entity_path, escape};

/// A table made for one case.
pub struct Table<'a> {
    pub client: &'a Client,
    pub name: String,
}

impl<'a> Table<'a> {
    /// Names a table that exists, or one that does not.
    pub fn new(client: &'a Client, name: impl Into<String>) -> Self {
        Self { client, name: name.into() }
    }

    /// Inserts entities of one partition, a hundred in each transaction.
    pub fn seed_many(&self, entities: impl IntoIterator<Item = Value>) {
        let entities: Vec<Value> = entities.into_iter().collect();
        for part in entities.chunks(100) {
            let batch = part.iter().fold(Batch::new(), |batch, entity| batch.insert(self, entity));
            batch.commit(self.client);
        }
    }

    /// Path of the entity set.
    pub fn set(&self) -> String {
        format!("/{}", self.name)
    }

    /// Path of one entity.
    pub fn path(&self, partition: &str, row: &str) -> String {
        entity_path(&self.name, partition, row)
    }

    /// A request for one entity.
    pub fn on(&self, verb: &str, partition: &str, row: &str) -> Request<'a> {
        self.client.request(verb, &self.path(partition, row))
    }

    /// An insert, not yet sent.
    pub fn inserting(&self, entity: &Value) -> Request<'a> {
        self.client.request("POST", &self.set()).json(entity)
    }

    /// An insert that the server has begun to read, and the bytes that it still
    /// waits for.
    pub fn half_inserted(&self, entity: &Value) -> (TcpStream, Vec<u8>) {
        const BEGUN: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut bytes = self.inserting(entity).header("Expect", "100-continue").bytes();
        let tail = bytes.split_off(bytes.len() - 5);
        let mut stream = self.client.wire().connect();
        stream.write_all(&bytes).expect("the server listens");
        let mut said = [0; BEGUN.len()];
        stream.read_exact(&mut said).expect("the server waits for the rest");
        assert_eq!(said, BEGUN, "{}", String::from_utf8_lossy(&said));
        (stream, tail)
    }

    /// Inserts.
    #[track_caller]
    pub fn insert(&self, entity: &Value) -> Answer {
        self.inserting(entity).send()
    }

    /// Inserts what must succeed; returns the ETag.
    #[track_caller]
    pub fn seed(&self, entity: Value) -> String {
        let answer = self.inserting(&entity).header("Prefer", "return-no-content").send().expect(204);
        answer.need("ETag").to_owned()
    }

    /// Inserts entities without properties under these row keys.
    #[track_caller]
    pub fn seed_rows<'r>(&self, partition: &str, rows: impl IntoIterator<Item = &'r str>) {
        for row in rows {
            self.seed(json!({ "PartitionKey": partition, "RowKey": row }));
        }
    }

    /// Inserts one entity under `p`, `r`, with the given properties in
    /// addition; returns the ETag.
    #[track_caller]
    pub fn seed_one(&self, properties: Value) -> String {
        self.seed(with_keys("p", "r", properties))
    }

    /// Reads one entity.
    #[track_caller]
    pub fn get(&self, partition: &str, row: &str) -> Answer {
        self.on("GET", partition, row).send()
    }

    /// The entity as minimal metadata shows it.
    #[track_caller]
    pub fn entity(&self, partition: &str, row: &str) -> Value {
        self.get(partition, row).expect_json()
    }

    /// The custom properties of `p`, `r`, with their annotations.
    #[track_caller]
    pub fn properties(&self) -> Value {
        custom(self.entity("p", "r"))
    }

    /// PUT.
    #[track_caller]
    pub fn replace(&self, partition: &str, row: &str, entity: &Value, etag: Option<&str>) -> Answer {
        self.on("PUT", partition, row).json(entity).if_match(etag).send()
    }

    /// MERGE.
    #[track_caller]
    pub fn merge(&self, partition: &str, row: &str, entity: &Value, etag: Option<&str>) -> Answer {
        self.on("MERGE", partition, row).json(entity).if_match(etag).send()
    }

    /// DELETE.
    #[track_caller]
    pub fn delete(&self, partition: &str, row: &str, etag: Option<&str>) -> Answer {
        self.on("DELETE", partition, row).if_match(etag).send()
    }

    /// A query with these options, sent as they are.
    #[track_caller]
    pub fn query(&self, options: &str) -> Answer {
        self.client.get(&format!("/{}(){options}", self.name))
    }

    /// The pages of a query, up to the last one.
    #[track_caller]
    pub fn pages(&self, options: &str) -> Vec<Vec<Value>> {
        let (mut pages, mut token) = (Vec::new(), String::new());
        for _ in 0..2000 {
            let answer = self.query(&format!("?{options}{token}"));
            let following = next_page(&answer);
            pages.push(rows(answer.expect_json()));
            match following {
                Some(more) => token = more,
                None => return pages,
            }
        }
        panic!("the pages do not end: {options}");
    }

    /// A query by filter.
    #[track_caller]
    pub fn filter(&self, filter: &str) -> Answer {
        self.query(&format!("?$filter={}", escape(filter)))
    }

    /// Entities that match, all on one page.
    #[track_caller]
    pub fn matches(&self, filter: &str) -> Vec<Value> {
        let answer = self.filter(filter);
        assert_eq!(answer.header("x-ms-continuation-NextPartitionKey"), None, "{answer}");
        rows(answer.expect_json())
    }

    /// RowKeys of what matches, joined by commas.
    #[track_caller]
    pub fn matching_rows(&self, filter: &str) -> String {
        row_keys(&self.matches(filter))
    }

    /// Number of entities in the table, as far as one page goes.
    #[track_caller]
    pub fn count(&self) -> usize {
        rows(self.query("").expect_json()).len()
    }
}

/// The items of a feed.
#[track_caller]
pub fn rows(feed: Value) -> Vec<Value> {
    match feed {
        Value::Object(mut feed) => match feed.remove("value") {
            Some(Value::Array(rows)) => rows,
            other => panic!("not a feed: {other:?}"),
        },
        other => panic!("not a feed: {other}"),
    }
}

/// RowKeys of entities, joined by commas.
#[track_caller]
pub fn row_keys(entities: &[Value]) -> String {
    let key = |e: &Value| e["RowKey"].as_str().unwrap_or_else(|| panic!("no RowKey in {e}")).to_owned();
    entities.iter().map(key).collect::<Vec<_>>().join(",")
}

/// PartitionKey and RowKey of entities.
#[track_caller]
pub fn keys_of(entities: &[Value]) -> Vec<(String, String)> {
    let text = |entity: &Value, name: &str| entity[name].as_str().expect("a key").to_owned();
    entities.iter().map(|entity| (text(entity, "PartitionKey"), text(entity, "RowKey"))).collect()
}

/// The keys of entities, as `p/r`, joined by blanks.
#[track_caller]
pub fn keys_shown(entities: &[Value]) -> String {
    keys_of(entities)
        .iter()
        .map(|(partition, row)| format!("{partition}/{row}"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The query parameters of the next page, if there is one.
pub fn next_page(answer: &Answer) -> Option<String> {
    let partition = answer.header("x-ms-continuation-NextPartitionKey")?;
    let row = answer.need("x-ms-continuation-NextRowKey");
    for token in [partition, row] {
        assert!(!token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic()), "{answer}");
    }
    Some(format!("&NextPartitionKey={}&NextRowKey={}", escape(partition), escape(row)))
}

/// The properties with keys in front.
pub fn with_keys(partition: &str, row: &str, mut properties: Value) -> Value {
    properties["PartitionKey"] = partition.into();
    properties["RowKey"] = row.into();
    properties
}

/// What is left of an entity without metadata and system properties.
#[track_caller]
pub fn custom(mut entity: Value) -> Value {
    let members = entity.as_object_mut().unwrap_or_else(|| panic!("not an entity"));
    members.retain(|name, _| {
        !name.starts_with("odata.")
            && !["PartitionKey", "RowKey", "Timestamp", "Timestamp@odata.type"].contains(&name.as_str())
    });
    entity
}
