//! Azurite's workspace file: a LokiJS database as one JSON object.

use std::collections::HashMap;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::opening;
use super::staging::Staging;
use crate::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::codec::policies::{Policy, read_time};
use crate::codec::properties::{CorsRule, Logging, ServiceProperties};
use crate::codec::stored::ANNOTATION;
use crate::transfer::endpoint::{Rejected, TransferError, TransferResult};
use crate::transfer::row::Row;

/// The collection of tables.
const TABLES: &str = "$TABLES_COLLECTION$";
/// The collection of service properties.
const SERVICES: &str = "$SERVICES_COLLECTION$";

/// Imports the tables of the account in the options, or of the development account.
///
/// # Errors
/// [`TransferError`] if it is not such a file.
pub(super) fn import(path: &Path, staging: &mut Staging) -> TransferResult<()> {
    let account = staging.account.clone().unwrap_or_else(|| DEVELOPMENT_ACCOUNT.to_owned());
    let mut workspace = Workspace { account, tables: HashMap::new(), staging, failure: None };
    let mut deserializer = serde_json::Deserializer::from_reader(opening::open_text(path)?);
    let read = Level::Top.of(&mut workspace).deserialize(&mut deserializer);
    let failure = workspace.failure.take();
    read.map_err(|error| {
        failure.unwrap_or_else(|| TransferError::Endpoint(format!("{}: {error}", path.display())))
    })
}

/// What has been read of the file so far.
struct Workspace<'s> {
    account: String,
    /// Table names in their original case, by their lower-case names.
    tables: HashMap<String, String>,
    staging: &'s mut Staging,
    failure: Option<TransferError>,
}

#[derive(Deserialize)]
struct TableDocument {
    account: String,
    table: String,
    #[serde(rename = "tableAcl", default)]
    acl: Option<Vec<AclDocument>>,
}

#[derive(Deserialize)]
struct AclDocument {
    id: String,
    #[serde(rename = "accessPolicy", default)]
    policy: Option<PolicyDocument>,
}

#[derive(Deserialize)]
struct PolicyDocument {
    start: Option<String>,
    expiry: Option<String>,
    permission: Option<String>,
}

#[derive(Deserialize)]
struct ServiceDocument {
    #[serde(rename = "accountName")]
    account: String,
    logging: Option<LoggingDocument>,
    cors: Option<Vec<CorsDocument>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoggingDocument {
    version: String,
    #[serde(default)]
    delete_property: bool,
    #[serde(default)]
    read: bool,
    #[serde(default)]
    write: bool,
    retention_policy: Option<RetentionDocument>,
}

#[derive(Deserialize)]
struct RetentionDocument {
    enabled: bool,
    days: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CorsDocument {
    allowed_origins: String,
    allowed_methods: String,
    #[serde(default)]
    allowed_headers: String,
    #[serde(default)]
    exposed_headers: String,
    max_age_in_seconds: u32,
}

#[derive(Deserialize)]
struct EntityDocument {
    #[serde(rename = "PartitionKey")]
    partition: String,
    #[serde(rename = "RowKey")]
    row: String,
    properties: Map<String, Value>,
    #[serde(rename = "lastModifiedTime")]
    modified: Option<String>,
}

impl Workspace<'_> {
    fn table(&mut self, value: Value) -> TransferResult<()> {
        let document: TableDocument = parsed(value)?;
        if document.account != self.account {
            return Ok(());
        }
        self.staging.begin(&document.table)?;
        self.tables.insert(document.table.to_ascii_lowercase(), document.table);
        let time = |text: Option<String>| text.as_deref().and_then(read_time).map(|time| time.to_canonical());
        let policies: Vec<Policy> = document
            .acl
            .unwrap_or_default()
            .into_iter()
            .map(|AclDocument { id, policy }| match policy {
                Some(PolicyDocument { start, expiry, permission }) => {
                    let permission = permission.filter(|permission| !permission.is_empty());
                    Policy { id, start: time(start), expiry: time(expiry), permission }
                }
                None => Policy { id, start: None, expiry: None, permission: None },
            })
            .collect();
        if policies.is_empty() { Ok(()) } else { self.staging.policies(&policies) }
    }

    fn service(&mut self, value: Value) -> TransferResult<()> {
        let document: ServiceDocument = parsed(value)?;
        if document.account != self.account {
            return Ok(());
        }
        let list = |text: &str| -> Vec<String> {
            text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
        };
        let rule = |rule: CorsDocument| CorsRule {
            methods: list(&rule.allowed_methods),
            origins: list(&rule.allowed_origins),
            allowed_headers: list(&rule.allowed_headers),
            exposed_headers: list(&rule.exposed_headers),
            max_age: rule.max_age_in_seconds,
        };
        let logging = |logging: LoggingDocument| Logging {
            version: logging.version,
            read: logging.read,
            write: logging.write,
            delete: logging.delete_property,
            retention: logging
                .retention_policy
                .filter(|policy| policy.enabled)
                .and_then(|policy| policy.days),
        };
        self.staging.properties(&ServiceProperties {
            logging: document.logging.map(logging),
            cors: document.cors.map(|rules| rules.into_iter().map(rule).collect()),
            ..ServiceProperties::default()
        })
    }

    fn entity(&mut self, value: Value) -> TransferResult<()> {
        let shown = value.to_string();
        if let Some(properties) = value["properties"].as_object() {
            self.staging.note_numbers(properties);
        }
        let row = serde_json::from_value(value).map_err(|error| error.to_string()).and_then(row);
        self.staging.add(row.map_err(|reason| Rejected { entity: shown, reason }))
    }
}

fn parsed<T: for<'de> Deserialize<'de>>(value: Value) -> TransferResult<T> {
    serde_json::from_value(value)
        .map_err(|error| TransferError::Endpoint(format!("the workspace file: {error}")))
}

/// Converts an entity. Its values are annotated as on the wire, except GUIDs.
fn row(document: EntityDocument) -> Result<Row, String> {
    let mut members = Map::new();
    members.insert("PartitionKey".into(), document.partition.into());
    members.insert("RowKey".into(), document.row.into());
    members.extend(document.modified.map(|time| ("Timestamp".to_owned(), Value::String(time))));
    let is_key = |name: &str| {
        let name = name.trim_end_matches(ANNOTATION);
        matches!(name, "PartitionKey" | "RowKey" | "Timestamp") || name.starts_with("odata.")
    };
    let annotation =
        |name: &str| document.properties.get(&format!("{name}{ANNOTATION}")).and_then(Value::as_str);
    for (name, value) in document.properties.iter().filter(|(name, _)| !is_key(name)) {
        let value = match value {
            Value::String(text) if annotation(name) == Some("Edm.Guid") => Value::String(guid(text)?),
            // Integers are Int32; a larger one without a type was sent as a double.
            Value::Number(number) if annotation(name).is_none() && is_beyond_int32(number) => {
                members.insert(format!("{name}{ANNOTATION}"), "Edm.Double".into());
                value.clone()
            }
            other => other.clone(),
        };
        members.insert(name.clone(), value);
    }
    Row::from_json(&Value::Object(members).to_string())
}

fn is_beyond_int32(number: &serde_json::Number) -> bool {
    !number.is_f64() && number.as_i64().is_none_or(|number| i32::try_from(number).is_err())
}

/// Decodes a GUID: base64 of its text, or in older files the text itself.
fn guid(text: &str) -> Result<String, String> {
    if text.len() == 36 && text.contains('-') {
        return Ok(text.to_owned());
    }
    let bytes = STANDARD.decode(text).map_err(|error| format!("a GUID: {error}"))?;
    String::from_utf8(bytes).map_err(|error| format!("a GUID: {error}"))
}

/// The nesting levels of the file.
enum Level {
    Top,
    Collections,
    Collection,
    /// The documents of a collection.
    Documents(String),
}

impl Level {
    fn of<'a, 's>(self, workspace: &'a mut Workspace<'s>) -> LevelVisitor<'a, 's> {
        LevelVisitor { level: self, workspace }
    }
}

struct LevelVisitor<'a, 's> {
    level: Level,
    workspace: &'a mut Workspace<'s>,
}

impl<'de> DeserializeSeed<'de> for LevelVisitor<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for LevelVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a LokiJS database")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut name = String::new();
        while let Some(member) = map.next_key::<String>()? {
            match (&self.level, member.as_str()) {
                (Level::Top, "collections") => map.next_value_seed(Level::Collections.of(self.workspace))?,
                (Level::Collection, "name") => name = map.next_value()?,
                (Level::Collection, "data") if name.is_empty() => {
                    return Err(serde::de::Error::custom("a collection has its data before its name"));
                }
                (Level::Collection, "data") => {
                    map.next_value_seed(Level::Documents(std::mem::take(&mut name)).of(self.workspace))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Level::Documents(name) = self.level else {
            while list.next_element_seed(Level::Collection.of(self.workspace))?.is_some() {}
            return Ok(());
        };
        let workspace = self.workspace;
        let table = name.split_once('$').filter(|(account, _)| *account == workspace.account);
        let table = table.and_then(|(_, table)| workspace.tables.get(&table.to_ascii_lowercase()).cloned());
        let begun = table.as_ref().map_or(Ok(()), |table| workspace.staging.begin(table));
        let mut done = begun;
        while let Some(value) = list.next_element::<Value>()? {
            done = match name.as_str() {
                _ if done.is_err() => break,
                TABLES => workspace.table(value),
                SERVICES => workspace.service(value),
                _ if table.is_some() => workspace.entity(value),
                _ => Ok(()),
            };
        }
        done.map_err(|error| {
            workspace.failure = Some(error);
            serde::de::Error::custom("staging failed")
        })
    }
}
