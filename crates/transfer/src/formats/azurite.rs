//! Azurite's workspace file: a LokiJS database as one JSON object.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::assembly::Assembly;
use super::splitter::Splitter;
use super::staging::Staging;
use crate::contract::Rejected;
use crate::error::{TransferResult, failed, usage};
use crate::formats::files;
use crate::formats::splitter::Object;
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::protocol::codec::json_object;
use crate::protocol::codec::policies::{Policy, read_time};
use crate::protocol::codec::properties::{CorsRule, Logging, ServiceProperties};
use crate::protocol::codec::stored::ANNOTATION;
use crate::protocol::model::EdmType;
use crate::rows::Row;

const TABLES: &str = "$TABLES_COLLECTION$";
const SERVICES: &str = "$SERVICES_COLLECTION$";

/// Maximum other accounts that a message lists.
const MAX_ACCOUNTS: usize = 20;

/// Imports the tables of the account in the options, by default the development account.
pub(super) fn import(path: &Path, staging: &mut Staging) -> TransferResult<()> {
    staging.staged.has_settings = true;
    let account = staging.account.clone().unwrap_or_else(|| DEVELOPMENT_ACCOUNT.to_owned());
    let mut workspace =
        Workspace { account, tables: HashMap::new(), has_tables: false, others: BTreeSet::new(), staging };
    let mut file = Splitter::open(path)?;
    file.members(|file, name| match name {
        br#""collections""# => file.elements(|file| workspace.collection(file)),
        _ => file.skip(),
    })?;
    match file.peek()? {
        None => workspace.check(path),
        Some(_) => Err(file.wrong("text follows the end of the workspace")),
    }
}

/// The content that has been read so far.
struct Workspace<'s> {
    account: String,
    /// Table names in their original case, by their lower-case names.
    tables: HashMap<String, String>,
    has_tables: bool,
    /// Other accounts that have tables.
    others: BTreeSet<String>,
    staging: &'s mut Staging,
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

#[derive(Default, Deserialize)]
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

impl Workspace<'_> {
    fn table(&mut self, json: &[u8]) -> TransferResult<()> {
        let document: TableDocument = parse_json(json)?;
        if document.account != self.account {
            if self.others.len() < MAX_ACCOUNTS {
                self.others.insert(document.account);
            }
            return Ok(());
        }
        self.staging.begin(&document.table)?;
        self.tables.insert(document.table.to_ascii_lowercase(), document.table);
        let policies = document.acl.unwrap_or_default().into_iter().map(policy);
        let policies: Vec<Policy> = policies.collect::<Result<_, _>>()?;
        if policies.is_empty() { Ok(()) } else { self.staging.set_policies(&policies) }
    }

    /// Checks that the file has a list of tables, with tables of the account unless it is empty.
    fn check(self, path: &Path) -> TransferResult<()> {
        if !self.has_tables {
            return Err(files::file_error(
                path,
                &"has no list of tables, so it is not a workspace of Azurite",
            ));
        }
        if self.tables.is_empty() && !self.others.is_empty() {
            let others = Vec::from_iter(self.others);
            let (path, account) = (path.display(), self.account);
            return Err(usage!(
                "{path}: the account {account} has no tables; accounts with tables are {}: name one in the \
                 place, as in {path}#{}",
                others.join(", "),
                others[0]
            ));
        }
        Ok(())
    }

    /// Reads a collection, whose name precedes its documents.
    fn collection(&mut self, file: &mut Splitter) -> TransferResult<()> {
        let mut collection = None;
        file.members(|file, name| match (name, &collection) {
            (br#""name""#, _) => {
                collection = Some(parse_json::<String>(&file.value()?)?);
                Ok(())
            }
            (br#""data""#, None) => Err(file.wrong("a collection has its data before its name")),
            (br#""data""#, Some(name)) => self.documents(name, file),
            _ => file.skip(),
        })
    }

    fn documents(&mut self, collection: &str, file: &mut Splitter) -> TransferResult<()> {
        match collection {
            TABLES => {
                self.has_tables = true;
                return file.elements(|file| self.table(&file.value()?));
            }
            SERVICES => return file.elements(|file| self.service(&file.value()?)),
            _ => {}
        }
        let own = collection.split_once('$').filter(|(account, _)| *account == self.account);
        if own.is_some() && !self.has_tables {
            return Err(file.wrong("a table stands before the list of tables"));
        }
        let table = own.and_then(|(_, table)| self.tables.get(&table.to_ascii_lowercase()));
        if let Some(table) = table {
            self.staging.begin(table)?;
            return file.elements(|file| self.entity(&file.value()?));
        }
        let mut documents = 0_u64;
        file.elements(|file| {
            documents += 1;
            file.skip()
        })?;
        if own.is_some() && documents > 0 {
            let text = format!(
                "{collection}: its {documents} entities are not read, because no table has this name"
            );
            self.staging.leave_out(text);
        }
        Ok(())
    }

    fn service(&mut self, json: &[u8]) -> TransferResult<()> {
        let document: ServiceDocument = parse_json(json)?;
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
        self.staging.set_properties(&ServiceProperties {
            logging: document.logging.map(logging),
            cors: document.cors.map(|rules| rules.into_iter().map(rule).collect()),
            ..ServiceProperties::default()
        })
    }

    fn entity(&mut self, json: &[u8]) -> TransferResult<()> {
        let row =
            Object::parse(json).and_then(|document| row(&document, Assembly::new(self.staging.notes())));
        self.staging.add(row.map_err(|reason| Rejected::from_bytes(json, reason)))
    }
}

fn policy(AclDocument { id, policy }: AclDocument) -> TransferResult<Policy> {
    let time = |text: Option<String>| {
        let text = text.filter(|text| !text.is_empty());
        let wrong = |text: &str| failed!("the workspace file: policy {id}: '{text}' is not a date");
        text.map(|text| read_time(&text).ok_or_else(|| wrong(&text))).transpose()
    };
    let policy = policy.unwrap_or_default();
    let [start, expiry] = [time(policy.start)?, time(policy.expiry)?];
    let [start, expiry] = [start, expiry].map(|time| time.map(|time| time.to_canonical()));
    let permission = policy.permission.filter(|permission| !permission.is_empty());
    Ok(Policy { id, start, expiry, permission })
}

fn parse_json<'a, T: Deserialize<'a>>(json: &'a [u8]) -> TransferResult<T> {
    serde_json::from_slice(json).map_err(|error| failed!("the workspace file: {error}"))
}

/// Converts an entity, whose values are annotated as on the wire except for GUIDs.
fn row(document: &Object<'_>, mut entity: Assembly<'_>) -> Result<Row, String> {
    let mut member = |name, from| {
        if let Some(raw) = document.get(from) {
            entity.untyped(name, raw);
        }
    };
    member("PartitionKey", "PartitionKey");
    member("RowKey", "RowKey");
    entity.timestamp(document.string("lastModifiedTime").as_deref());
    let properties = Object::parse(document.get("properties").unwrap_or_default().as_bytes())
        .map_err(|reason| format!("properties: {reason}"))?;
    let is_key = |name: &str| {
        let name = name.trim_end_matches(ANNOTATION);
        matches!(name, "PartitionKey" | "RowKey" | "Timestamp") || name.starts_with("odata.")
    };
    for (name, raw) in properties.iter().filter(|(name, _)| !is_key(name)) {
        let stated = properties.string(&format!("{name}{ANNOTATION}"));
        match (stated.as_deref(), json_object::string(raw)) {
            (Some("Edm.Guid"), Some(text)) => {
                let text =
                    guid(&text).map_err(|reason| format!("{name}: '{text}' is not a GUID: {reason}"))?;
                entity.text(name, None, &text)?;
            }
            (Some(stated), _) => entity.annotated(name, EdmType::from_name(stated), raw)?,
            // Integers are Int32. A larger number without a type was sent as a Double.
            (None, _) if raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                let is_small = raw.parse::<i32>().is_ok() && raw != "-0";
                let edm_type = if is_small { EdmType::Int32 } else { EdmType::Double };
                entity.notes().value(name, edm_type, false);
                entity.typed(name, edm_type.name(), raw)?;
            }
            (None, _) => entity.untyped(name, raw),
        }
    }
    entity.row()
}

/// Decodes a GUID: the base64 of its text or, in older files, the text itself.
fn guid(text: &str) -> Result<String, String> {
    if text.len() == 36 && text.contains('-') {
        return Ok(text.to_owned());
    }
    let bytes = STANDARD.decode(text).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}
