//! JSON files: an array of entities, an object with a list of them, or one on each line.

use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::staging::Staging;
use super::{FileOptions, members, opening};
use crate::transfer::endpoint::{Rejected, TransferError, TransferResult};

/// Members that hold the list of entities.
const LISTS: [&str; 3] = ["value", "items", "entities"];

/// Reads the entities of a file.
///
/// # Errors
/// [`TransferError`] if it is not JSON.
pub(super) fn import(
    path: &Path,
    table: &str,
    options: &FileOptions,
    staging: &mut Staging,
) -> TransferResult<()> {
    staging.begin(table)?;
    let mut failure = None;
    let mut about = AboutFile { before: staging.taken(), documents: 0, last: None };
    let mut documents = serde_json::Deserializer::from_reader(opening::open_text(path)?);
    // The end, or another document.
    while documents.end().is_err() {
        let document = Document { options, staging, failure: &mut failure, is_member: false };
        let read = document.deserialize(&mut documents).map_err(|error| {
            let wrong = || TransferError::Endpoint(format!("{}: {error}", path.display()));
            failure.take().unwrap_or_else(wrong)
        })?;
        about.next(read, staging)?;
    }
    about.check(staging).map_err(|reason| TransferError::Endpoint(format!("{}: {reason}", path.display())))
}

/// Documents that are no entities: some dumps begin and end with what they tell about the file.
struct AboutFile {
    documents: u64,
    last: Option<Value>,
    /// Entities that were staged before the file.
    before: u64,
}

impl AboutFile {
    /// Takes the next document, if it is no entity. One between entities is rejected.
    fn next(&mut self, document: Option<Value>, staging: &mut Staging) -> TransferResult<()> {
        if let Some(between) = self.last.take().filter(|_| self.documents > 1) {
            let reason = "it has no PartitionKey and RowKey".into();
            staging.add(Err(Rejected { entity: between.to_string(), reason }))?;
        }
        self.documents += 1;
        self.last = document;
        Ok(())
    }

    /// Checks that there are entities, and as many as the end of the file states, if it does.
    fn check(&self, staging: &Staging) -> Result<(), String> {
        let Some(last) = &self.last else { return Ok(()) };
        let has = staging.taken() - self.before;
        if self.documents == 1 {
            return Err("it has no entities".into());
        }
        match number(last, "RecordCount").filter(|told| *told != has) {
            Some(told) => Err(format!("it states {told} entities, and has {has}")),
            None => Ok(()),
        }
    }
}

/// Finds a number by its name, in an object or in a member of it.
fn number(value: &Value, name: &str) -> Option<u64> {
    let members = value.as_object()?;
    let own = members
        .get(name)
        .and_then(|found| found.as_u64().or_else(|| found.as_str().and_then(|text| text.parse().ok())));
    own.or_else(|| members.values().find_map(|member| number(member, name)))
}

/// A document of the file, or a member of one that may be a list of entities.
struct Document<'a, 's> {
    options: &'a FileOptions,
    staging: &'s mut Staging,
    /// Why writing to the temporary database failed; a serde error cannot carry this.
    failure: &'s mut Option<TransferError>,
    is_member: bool,
}

impl Document<'_, '_> {
    fn add(&mut self, value: &Value) -> Result<(), &'static str> {
        let row = members::entity(value, self.options, self.staging.inferences());
        self.staging.add(row).map_err(|error| {
            *self.failure = Some(error);
            "staging failed"
        })
    }

    /// Handles a value that is not a list: a property with the name of one.
    fn property<E: serde::de::Error>(&self, value: Value) -> Result<Option<Value>, E> {
        if self.is_member { Ok(Some(value)) } else { Err(E::custom("an entity must be an object")) }
    }
}

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<Value>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Stages entities; returns a member that is no list of them, or a document that is no entity.
impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("entities")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Option<Value>, A::Error> {
        while let Some(value) = list.next_element::<Value>()? {
            self.add(&value).map_err(serde::de::Error::custom)?;
        }
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Option<Value>, A::Error> {
        let mut members = Map::new();
        let mut is_list = false;
        while let Some(name) = map.next_key::<String>()? {
            let has_keys = members.contains_key("PartitionKey") || members.contains_key("RowKey");
            if self.is_member || has_keys || !LISTS.contains(&name.as_str()) {
                members.insert(name, map.next_value()?);
                continue;
            }
            let Document { options, staging, failure, .. } = &mut self;
            let member = Document { options, staging, failure, is_member: true };
            match map.next_value_seed(member)? {
                Some(value) => drop(members.insert(name, value)),
                None => is_list = true,
            }
        }
        if self.is_member {
            return Ok(Some(Value::Object(members)));
        }
        if members.get("nextMarker").is_some_and(|next| next.as_object().is_some_and(|next| !next.is_empty()))
        {
            return Err(serde::de::Error::custom("it has a nextMarker: the list continues in another file"));
        }
        if is_list {
            return Ok(None);
        }
        if !members.contains_key("PartitionKey") && !members.contains_key("RowKey") {
            return Ok(Some(Value::Object(members)));
        }
        self.add(&Value::Object(members)).map_err(serde::de::Error::custom)?;
        Ok(None)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Option<Value>, E> {
        self.property(value.into())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Option<Value>, E> {
        self.property(value.into())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Option<Value>, E> {
        self.property(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Option<Value>, E> {
        self.property(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Option<Value>, E> {
        self.property(value.into())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Option<Value>, E> {
        self.property(Value::Null)
    }
}
