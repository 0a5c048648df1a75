//! What the admin listener and the command line print as JSON.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::deleted::UndeletedTable;
use super::durations;
use super::expiry::behind;
use super::totals::{TableTotal, TotalBasis};
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::store::contract::cluster::{Cluster, ClusterNode};
use crate::store::{
    AccountOptions, DeletedTable, IndexFigures, IndexState, StoredAccount, StoredIndex, TableExpiry,
    TableSize,
};

/// An account, without its keys.
pub(crate) fn account(account: &StoredAccount, options: &HashMap<String, AccountOptions>) -> Value {
    let options = options.get(&account.name);
    json!({
        "requestsPerSecond": options.and_then(|options| options.requests_per_second),
        "extendedQueries": options.and_then(|options| options.extended_queries).unwrap_or(false),
        "name": account.name,
        "disabled": account.disabled,
        "created": account.created.to_canonical(),
        "rotated": account.rotated.map(Ticks::to_canonical),
    })
}

pub(crate) fn index(stored: &StoredIndex, figures: IndexFigures) -> Value {
    let StoredIndex { account, table, index, state, changed } = stored;
    let state = match state {
        IndexState::Building => "building",
        IndexState::Ready => "ready",
    };
    json!({
        "id": index.index_no,
        "account": account,
        "table": table,
        "property": index.property,
        "kind": index.kind.name(),
        "state": state,
        "since": changed.to_canonical(),
        "bytes": figures.bytes,
        "uses": figures.uses,
        "progress": figures.progress,
    })
}

/// A deleted table that can be brought back, and its size, if it was measured.
pub(crate) fn deleted_table(table: &DeletedTable, size: Option<TableSize>) -> Value {
    json!({
        "id": table.table_no,
        "account": table.account,
        "table": table.name,
        "created": table.created.to_canonical(),
        "deleted": table.deleted.to_canonical(),
        "keptUntil": table.kept_until.to_canonical(),
        "entities": size.map(|size| size.entities),
        "bytes": size.map(|size| size.bytes),
        "complete": size.is_some_and(|size| size.complete),
    })
}

/// A table that was brought back.
pub(crate) fn undeleted_table(undeleted: &UndeletedTable) -> Value {
    let UndeletedTable { table, name, records, left_out } = undeleted;
    json!({
        "id": table.table_no,
        "account": table.account,
        "table": name,
        "indexes": records.indexes.as_ref().map_or(0, Vec::len) - left_out,
        "indexesLeftOut": left_out,
        "expires": records.expiry.is_some(),
    })
}

/// A rule, and how far its passes have come.
pub(crate) fn expiry(of: &TableExpiry, now: Ticks) -> Value {
    let TableExpiry { account, table, rule, made, sweep, .. } = of;
    let (after, plus) = match rule.property {
        None => (Some(durations::display(rule.delay)), None),
        Some(_) => (None, Some(durations::display(rule.delay))),
    };
    json!({
        "account": account,
        "table": table,
        "after": after,
        "at": rule.property,
        "plus": plus,
        "every": durations::display(rule.pause),
        "set": made.to_canonical(),
        "sweptUntil": sweep.clean.map(Ticks::to_canonical),
        "sweeping": sweep.began.is_some(),
        "behindSeconds": behind(of, now) / TICKS_PER_SECOND,
        "expired": sweep.expired,
    })
}

pub(crate) fn total(total: &TableTotal) -> Value {
    let basis = match total.basis {
        TotalBasis::Exact => "exact",
        TotalBasis::Estimated => "estimated",
        TotalBasis::AtLeast => "atLeast",
    };
    json!({ "entities": total.entities, "basis": basis, "bytes": total.bytes })
}

/// The nodes of a cluster.
pub(crate) fn cluster(cluster: &Cluster) -> Value {
    let node = |node: &ClusterNode| {
        let mut value = json!({
            "address": node.address, "group": node.group, "role": node.role(), "holdsShards": node.holds_shards,
            "answers": node.answer.is_ok(),
        });
        match &node.answer {
            Err(reason) => value["reason"] = reason.as_str().into(),
            Ok(facts) => {
                value["inRecovery"] = facts.is_standby.into();
                value["standbys"] = facts.standbys.into();
                value["shards"] = facts.shards.into();
                value["bytes"] = facts.bytes.into();
                value["entitiesAbout"] = facts.entities.into();
            }
        }
        value
    };
    let nodes: Vec<Value> = cluster.nodes.iter().map(node).collect();
    json!({ "citus": cluster.version, "nodes": nodes, "unused": cluster.unused })
}
