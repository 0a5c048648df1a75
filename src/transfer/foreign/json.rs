//! JSON files: an array of entities, an object with a list of them, or one on each line.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::staging::Staging;
use super::{FileOptions, members};
use crate::transfer::endpoint::{TransferError, TransferResult};

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
    let mut reader = BufReader::new(File::open(path)?);
    skip_mark(&mut reader)?;
    let mut failure = None;
    let mut documents = serde_json::Deserializer::from_reader(reader);
    // Until the end; otherwise another document follows.
    while documents.end().is_err() {
        let document = Document { options, staging, failure: &mut failure, is_member: false };
        if let Err(error) = document.deserialize(&mut documents) {
            let wrong = || TransferError::Endpoint(format!("{}: {error}", path.display()));
            return Err(failure.take().unwrap_or_else(wrong));
        }
    }
    Ok(())
}

/// Skips a byte order mark.
fn skip_mark(reader: &mut BufReader<File>) -> TransferResult<()> {
    use std::io::{BufRead as _, Seek as _};
    if !reader.fill_buf()?.starts_with(b"\xef\xbb\xbf") {
        return Ok(());
    }
    reader.rewind()?;
    Ok(reader.read_exact(&mut [0; 3])?)
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
        let added = self.staging.add(members::entity(value, self.options));
        added.map_err(|error| {
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

/// Imports entities; returns the value of a member that is not a list of them.
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
        // The first and last lines of some dumps describe the file.
        let is_about_file = !members.contains_key("PartitionKey") && !members.contains_key("RowKey");
        if !is_list && !is_about_file {
            self.add(&Value::Object(members)).map_err(serde::de::Error::custom)?;
        }
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
