//! The JSON that the admin listener and the command line print. The doc comments are the descriptions in the OpenAPI
//! document.

use std::borrow::Cow;
use std::collections::HashMap;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use super::deleted::UndeletedTable;
use super::durations;
use super::expiry::behind;
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::protocol::plan::index::IndexKind;
use crate::store::contract::cluster::{Cluster, ClusterNode};
use crate::store::{
    AccountOptions, DeletedTable, IndexFigures, IndexState, StoredAccount, StoredIndex, TableExpiry,
    TableSize,
};

/// A time in UTC, with seven decimal places of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Time(pub Ticks);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_canonical())
    }
}

impl JsonSchema for Time {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Account")]
pub struct AccountReport {
    #[schemars(regex(pattern = "^[a-z0-9]{3,24}$"))]
    name: String,
    disabled: bool,
    created: Time,
    /// When each key was made.
    rotated: [Time; 2],
    /// Requests per second of the account on each server. Null: the limit of the settings applies.
    #[schemars(range(min = 1, max = 1_000_000))]
    requests_per_second: Option<u32>,
    /// Whether clients of the account may use extended queries. Off by default.
    extended_queries: bool,
}

impl AccountReport {
    pub fn new(account: &StoredAccount, options: &HashMap<String, AccountOptions>) -> Self {
        let options = options.get(&account.name);
        Self {
            name: account.name.clone(),
            disabled: account.disabled,
            created: Time(account.created),
            rotated: account.rotated.map(Time),
            requests_per_second: options.and_then(|options| options.requests_per_second),
            extended_queries: options.and_then(|options| options.extended_queries).unwrap_or(false),
        }
    }
}

/// An account that was disabled or enabled.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AccountSwitch<'a> {
    pub name: &'a str,
    pub disabled: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct AccountLimit<'a> {
    pub name: &'a str,
    /// Requests per second of the account on each server. Null: the limit of the settings applies.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub requests_per_second: Option<u32>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AccountQueries<'a> {
    pub name: &'a str,
    /// Whether clients of the account may use extended queries.
    pub extended: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RemovedAccount<'a> {
    /// The name of the account.
    pub removed: &'a str,
}

/// The key that was replaced, shown once.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct RotatedKey<'a> {
    pub name: &'a str,
    /// 1 or 2.
    pub slot: u8,
    /// The new key in base64.
    pub key: &'a str,
    pub connection_string: String,
}

#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
enum BuildState {
    Building,
    Ready,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Index")]
pub struct IndexReport {
    id: i64,
    account: String,
    /// In lower case.
    table: String,
    property: String,
    #[schemars(extend("enum" = IndexKind::ALL.map(IndexKind::name)))]
    kind: &'static str,
    state: BuildState,
    /// The time at which the index got into this state.
    since: Time,
    /// Its size in the database.
    bytes: Option<u64>,
    /// The number of reads: on PostgreSQL since its statistics began, on SQLite by this server.
    uses: Option<u64>,
    /// The part that is built, from 0 to 1; null on SQLite.
    progress: Option<f64>,
}

impl IndexReport {
    pub fn new(stored: &StoredIndex, figures: IndexFigures) -> Self {
        let StoredIndex { account, table, index, state, changed } = stored;
        Self {
            id: index.index_no,
            account: account.clone(),
            table: table.clone(),
            property: index.property.clone(),
            kind: index.kind.name(),
            state: match state {
                IndexState::Building => BuildState::Building,
                IndexState::Ready => BuildState::Ready,
            },
            since: Time(*changed),
            bytes: figures.bytes,
            uses: figures.uses,
            progress: figures.progress,
        }
    }
}

/// A deleted table that can be restored, and its size, if it was measured.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DeletedTable")]
pub struct DeletedTableReport {
    /// Its number.
    id: i64,
    account: String,
    /// Its last name.
    table: String,
    created: Time,
    deleted: Time,
    /// The table is purged after this time.
    kept_until: Time,
    entities: Option<u64>,
    /// Bytes of keys and stored properties, without indexes.
    bytes: Option<u64>,
    /// Whether the numbers are exact. Otherwise they are lower bounds.
    complete: bool,
}

impl DeletedTableReport {
    pub fn new(table: &DeletedTable, size: Option<TableSize>) -> Self {
        Self {
            id: table.table_no,
            account: table.account.clone(),
            table: table.name.clone(),
            created: Time(table.created),
            deleted: Time(table.deleted),
            kept_until: Time(table.kept_until),
            entities: size.map(|size| size.entities),
            bytes: size.map(|size| size.bytes),
            complete: size.is_some_and(|size| size.complete),
        }
    }
}

/// A table that was restored.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct UndeletedTableReport {
    id: i64,
    account: String,
    /// Its name now.
    table: String,
    /// The number of indexes that a server builds again.
    pub indexes: usize,
    /// The number of indexes for which the database has no room.
    indexes_left_out: usize,
    /// Whether its entities expire.
    expires: bool,
}

impl UndeletedTableReport {
    pub fn new(undeleted: &UndeletedTable) -> Self {
        let UndeletedTable { table, name, records, left_out } = undeleted;
        Self {
            id: table.table_no,
            account: table.account.clone(),
            table: name.clone(),
            indexes: records.indexes.as_ref().map_or(0, Vec::len) - left_out,
            indexes_left_out: *left_out,
            expires: records.expiry.is_some(),
        }
    }
}

/// A table by its account and name.
#[derive(Debug, Serialize, JsonSchema)]
pub struct NamedTable<'a> {
    pub account: &'a str,
    pub table: &'a str,
}

/// A rule, and how far its passes have come.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Expiry")]
pub struct ExpiryReport {
    account: String,
    table: String,
    /// The age at which entities expire; null if they expire at the time in a property.
    after: Option<String>,
    /// The property; null if entities expire by age.
    at: Option<String>,
    /// The duration that is added to the time in the property.
    plus: Option<String>,
    /// The minimum time between the starts of two passes.
    every: String,
    set: Time,
    /// Entities that had expired at this time are deleted; null before the end of the first pass.
    swept_until: Option<Time>,
    /// Whether a pass is under way.
    sweeping: bool,
    /// Seconds since the next pass should have begun.
    behind_seconds: i64,
    /// Entities deleted since the rule was set.
    expired: u64,
}

impl ExpiryReport {
    pub fn new(of: &TableExpiry, now: Ticks) -> Self {
        let TableExpiry { account, table, rule, made, sweep, .. } = of;
        let (after, plus) = match rule.property {
            None => (Some(durations::display(rule.delay)), None),
            Some(_) => (None, Some(durations::display(rule.delay))),
        };
        Self {
            account: account.clone(),
            table: table.clone(),
            after,
            at: rule.property.clone(),
            plus,
            every: durations::display(rule.pause),
            set: Time(*made),
            swept_until: sweep.clean.map(Time),
            sweeping: sweep.began.is_some(),
            behind_seconds: behind(of, now) / TICKS_PER_SECOND,
            expired: sweep.expired,
        }
    }
}

/// The nodes of a cluster, each asked now.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Cluster")]
pub struct ClusterReport {
    /// The version of the extension.
    citus: String,
    /// Active primaries, the coordinator first.
    nodes: Vec<NodeReport>,
    /// Standbys, and nodes that were disabled.
    unused: Vec<String>,
    /// How this server uses the nodes.
    server: ClusterUse,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct NodeReport {
    address: String,
    /// The number of the node; 0 is the coordinator.
    group: i32,
    role: &'static str,
    /// Whether the node may hold shards.
    holds_shards: bool,
    answers: bool,
    /// Why the node did not answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(flatten)]
    facts: Option<NodeState>,
}

/// Facts about a node that answers.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
struct NodeState {
    /// Whether the node refuses writes.
    in_recovery: bool,
    standbys: i64,
    shards: i64,
    bytes: i64,
    /// By the statistics of PostgreSQL.
    entities_about: i64,
}

/// How a server uses the nodes of a cluster.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ClusterUse {
    /// Nodes that do not answer: the server refuses requests that need their buckets.
    pub silent_nodes: i64,
    /// Lanes on a node other than the one that has their buckets.
    pub substituted_lanes: i64,
    /// When the server last read which node has which buckets.
    pub bucket_map_read: Option<String>,
}

impl ClusterReport {
    pub fn new(cluster: &Cluster, server: ClusterUse) -> Self {
        Self {
            citus: cluster.version.clone(),
            nodes: cluster.nodes.iter().map(NodeReport::new).collect(),
            unused: cluster.unused.clone(),
            server,
        }
    }
}

impl NodeReport {
    fn new(node: &ClusterNode) -> Self {
        Self {
            address: node.address.clone(),
            group: node.group,
            role: node.role(),
            holds_shards: node.holds_shards,
            answers: node.answer.is_ok(),
            reason: node.answer.as_ref().err().cloned(),
            facts: node.answer.as_ref().ok().map(|facts| NodeState {
                in_recovery: facts.is_standby,
                standbys: facts.standbys,
                shards: facts.shards,
                bytes: facts.bytes,
                entities_about: facts.entities,
            }),
        }
    }
}
