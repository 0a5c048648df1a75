//! Plans the distribution of the tables from the catalogue.

use std::fmt;

use crate::contract::cluster::{COLOCATED, Cluster, DISTRIBUTION_COLUMN, TablePlacement};

/// Settings of a distribution.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DistributionSettings {
    /// Number of shards of `entities`; `None` for the cluster's `citus.shard_count`.
    pub shards: Option<u32>,
    pub role: String,
    /// The role's limits on each node in milliseconds, by setting name.
    pub timeouts: Vec<(&'static str, u128)>,
}

/// One statement of a distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DistributionStep {
    /// Create the schema of SQL views on every node. Citus distributes a view through a session that does not see a
    /// schema created in the same transaction.
    Schema(String),
    /// Disable statistics of the key columns of a table that is not distributed yet.
    NoStatistics,
    /// Disable these statistics in each shard of a distributed table. The next move of a shard reverts this step.
    NoStatisticsInShards,
    /// Limit a timeout setting of the sessions that other nodes open for the servers' role.
    Limit { role: String, setting: &'static str, milliseconds: u128 },
    /// Copy a table to each node.
    Reference(&'static str),
    /// Distribute `entities`.
    Distribute { shards: Option<u32> },
    /// Distribute a table, colocated with `entities`.
    Colocate(&'static str),
    /// Remove the rows that remain on the coordinator and are no longer read.
    Truncate(&'static str),
}

impl DistributionStep {
    /// Whether the step copies or moves a table to other nodes.
    pub(crate) fn places(&self) -> bool {
        use DistributionStep::*;
        matches!(self, Reference(_) | Distribute { .. } | Colocate(_))
    }

    /// Whether the step locks a table and changes the location of its rows.
    pub(crate) fn moves_rows(&self) -> bool {
        self.places() || matches!(self, DistributionStep::Truncate(_))
    }

    /// Reference tables precede `entities`, and `entities` precedes its colocated tables. Citus propagates settings of
    /// a role to other nodes only after it has propagated a table of that role. Rows are removed only after all tables
    /// are in place.
    fn order(&self) -> u8 {
        use DistributionStep::*;
        match self {
            Schema(_) | NoStatistics | NoStatisticsInShards => 0,
            Reference(_) => 1,
            Distribute { .. } => 2,
            Colocate(_) => 3,
            Limit { .. } => 4,
            Truncate(_) => 5,
        }
    }
}

/// Returns the limits of the servers' role on each node, in milliseconds. A role that also moves shards gets no
/// statement timeout, which would abort the moves.
pub(crate) fn timeouts(servers: &str, owner: &str, lock: u128, statement: u128) -> Vec<(&'static str, u128)> {
    let mut timeouts = vec![("lock_timeout", lock)];
    if servers != owner {
        timeouts.push(("statement_timeout", statement));
    }
    timeouts
}

impl fmt::Display for DistributionStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entities = COLOCATED[0];
        let parts = |shards: &Option<u32>| shards.map_or(String::new(), |n| format!(" into {n} shards"));
        match self {
            DistributionStep::Schema(name) => write!(f, "make the schema {name} of SQL views on every node"),
            DistributionStep::NoStatistics => write!(f, "keep no statistics of the keys of {entities}"),
            DistributionStep::NoStatisticsInShards => {
                write!(f, "keep no statistics of the keys in the shards of {entities}, until they are moved")
            }
            DistributionStep::Reference(table) => write!(f, "copy {table} to every node"),
            DistributionStep::Distribute { shards } => {
                write!(f, "distribute {entities} by {DISTRIBUTION_COLUMN}{}", parts(shards))
            }
            DistributionStep::Colocate(table) => write!(f, "distribute {table} beside {entities}"),
            DistributionStep::Truncate(table) => {
                write!(f, "remove the copy of {table} that stays on the coordinator")
            }
            DistributionStep::Limit { role, setting, milliseconds } => {
                write!(f, "set {setting} of the role {role} to {milliseconds} ms on every node")
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotDistribute {
    #[error(
        "the database has no extension citus: install Citus on every node, and run CREATE EXTENSION citus in \
         this database on each of them"
    )]
    NoExtension,
    #[error("this is a worker: give the coordinator's URL as --migrate-url, or as --database-url")]
    OnWorker,
    #[error(
        "no node holds shards: run SELECT citus_set_coordinator_host(..) and SELECT citus_add_node(..) for each \
         worker first"
    )]
    NoNodes,
    #[error("the node {0} does not answer: {1}")]
    NodeAway(String, String),
    #[error("the schema is {0}, but this program needs version {1}: run `rowhouse migrate` first")]
    Unmigrated(String, i64),
    #[error("the schema is version {0}, newer than this program's {1}: use the newer program")]
    Newer(i64, i64),
    #[error("{0} is distributed in another way: see citus_tables, and run SELECT undistribute_table('{0}')")]
    PlacedDifferently(&'static str),
}

/// Plans the steps, in order. Completed steps are omitted, so the command can be repeated.
pub(crate) fn plan(
    cluster: Option<&Cluster>,
    schema: (Option<i64>, i64),
    settings: &DistributionSettings,
) -> Result<Vec<DistributionStep>, CannotDistribute> {
    let cluster = cluster.ok_or(CannotDistribute::NoExtension)?;
    check(cluster, schema)?;
    let mut steps = placements(cluster, settings)?;
    steps.extend(limits(cluster, settings));
    steps.sort_by_key(DistributionStep::order);
    Ok(steps)
}

fn check(cluster: &Cluster, (found, known): (Option<i64>, i64)) -> Result<(), CannotDistribute> {
    if !cluster.is_coordinator {
        return Err(CannotDistribute::OnWorker);
    }
    match found {
        None => return Err(CannotDistribute::Unmigrated("missing".into(), known)),
        Some(version) if version < known => {
            return Err(CannotDistribute::Unmigrated(format!("version {version}"), known));
        }
        Some(version) if version > known => return Err(CannotDistribute::Newer(version, known)),
        Some(_) => {}
    }
    if !cluster.nodes.iter().any(|node| node.holds_shards) {
        return Err(CannotDistribute::NoNodes);
    }
    match cluster.silent().next() {
        Some((node, reason)) => Err(CannotDistribute::NodeAway(node.address.clone(), reason.clone())),
        None => Ok(()),
    }
}

/// Plans the steps that place each table, in order.
pub(crate) fn placements(
    cluster: &Cluster,
    settings: &DistributionSettings,
) -> Result<Vec<DistributionStep>, CannotDistribute> {
    let mut steps = Vec::new();
    if cluster.keeps_statistics() {
        // A distributed table does not accept this setting, but its shards do.
        steps.push(match cluster.is_distributed() {
            true => DistributionStep::NoStatisticsInShards,
            false => DistributionStep::NoStatistics,
        });
    }
    for table in &cluster.tables {
        match table.placement {
            TablePlacement::Missing => {}
            TablePlacement::Local => steps.push(match table.name {
                name if name == COLOCATED[0] => DistributionStep::Distribute { shards: settings.shards },
                name if COLOCATED.contains(&name) => DistributionStep::Colocate(name),
                name => DistributionStep::Reference(name),
            }),
            _ if cluster.is_in_place(table.name) => {}
            _ => return Err(CannotDistribute::PlacedDifferently(table.name)),
        }
    }
    if steps.iter().any(DistributionStep::places) {
        steps.splice(..0, cluster.view_schemas.iter().cloned().map(DistributionStep::Schema));
    }
    let left = cluster.tables.iter().filter(|table| table.local_bytes > 0).map(|table| table.name);
    steps.extend(left.map(DistributionStep::Truncate));
    steps.sort_by_key(DistributionStep::order);
    Ok(steps)
}

fn limits(cluster: &Cluster, settings: &DistributionSettings) -> Vec<DistributionStep> {
    let outdated = |(setting, milliseconds): &&(&'static str, u128)| {
        cluster.answers().any(|(_, facts)| {
            let found = match *setting {
                "lock_timeout" => &facts.lock_timeout,
                _ => &facts.statement_timeout,
            };
            found.as_deref().and_then(in_milliseconds) != Some(*milliseconds)
        })
    };
    let limit = |(setting, milliseconds): &(&'static str, u128)| DistributionStep::Limit {
        role: settings.role.clone(),
        setting,
        milliseconds: *milliseconds,
    };
    settings.timeouts.iter().filter(outdated).map(limit).collect()
}

/// Parses a limit as a role setting may contain it. Citus omits the unit when it propagates the setting to other
/// nodes.
fn in_milliseconds(text: &str) -> Option<u128> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1000,
        "min" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return None,
    };
    number.parse::<u128>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::cluster::REFERENCE;
    use crate::contract::cluster::fixture::{self, placed, table};

    const KNOWN: (Option<i64>, i64) = (Some(5), 5);

    fn cluster() -> Cluster {
        fixture::cluster(&["w:1"])
    }

    fn settings() -> DistributionSettings {
        DistributionSettings {
            shards: Some(64),
            role: "rowhouse".into(),
            timeouts: timeouts("rowhouse", "rowhouse", 10_000, 30_000),
        }
    }

    fn steps(cluster: &Cluster, settings: &DistributionSettings) -> Vec<DistributionStep> {
        plan(Some(cluster), KNOWN, settings).expect("a plan")
    }

    #[test]
    fn statistics_go_first_and_entities_follow_what_is_on_every_node() {
        let mut found = cluster();
        found.tables[0].local_bytes = 8192;
        let steps = steps(&found, &settings());
        let at = |step: &DistributionStep| {
            steps.iter().position(|other| other == step).unwrap_or_else(|| panic!("no {step}"))
        };
        let distribute = at(&DistributionStep::Distribute { shards: Some(64) });
        assert_eq!(at(&DistributionStep::NoStatistics), 0);
        for table in REFERENCE {
            assert!(at(&DistributionStep::Reference(table)) < distribute, "{table}");
        }
        assert!(at(&DistributionStep::Colocate("buckets")) > distribute);
        assert!(at(&DistributionStep::Truncate("tables")) > distribute);
        assert_eq!(steps.iter().filter(|step| matches!(step, DistributionStep::Truncate(_))).count(), 1);
        assert_eq!(steps.len(), 1 + REFERENCE.len() + COLOCATED.len() + 2);
    }

    #[test]
    fn what_is_done_is_left_out() {
        let done = placed(cluster());
        assert!(steps(&done, &settings()).is_empty());
        let mut added = done.clone();
        table(&mut added, "doomed").placement = TablePlacement::Local;
        assert_eq!(steps(&added, &settings()), [DistributionStep::Reference("doomed")]);
        let mut copied = done.clone();
        table(&mut copied, "entities").local_bytes = 1;
        assert_eq!(steps(&copied, &settings()), [DistributionStep::Truncate("entities")]);
        let mut planned = done;
        planned.columns_with_statistics = vec!["rk".into()];
        assert_eq!(steps(&planned, &settings()), [DistributionStep::NoStatisticsInShards]);
    }

    /// A killed command leaves some steps undone. Repeating the command completes them.
    #[test]
    fn steps_that_are_left_follow_in_the_same_order() {
        let whole = steps(&cluster(), &settings());
        let mut begun = cluster();
        begun.columns_with_statistics.clear();
        for table in begun.tables.iter_mut().filter(|table| REFERENCE.contains(&table.name)) {
            table.placement = TablePlacement::Reference;
        }
        assert!(begun.has_begun());
        let left: Vec<_> = whole
            .iter()
            .filter(|step| !matches!(step, DistributionStep::NoStatistics | DistributionStep::Reference(_)))
            .cloned()
            .collect();
        assert_eq!(steps(&begun, &settings()), left);
        let by_hash = TablePlacement::ByHash { column: DISTRIBUTION_COLUMN.into(), group: 1 };
        table(&mut begun, "entities").placement = by_hash;
        assert!(!begun.has_begun());
        assert!(!steps(&begun, &settings()).contains(&DistributionStep::Distribute { shards: Some(64) }));
    }

    #[test]
    fn servers_may_run_during_steps_that_move_no_rows() {
        let mut moved = placed(cluster());
        moved.columns_with_statistics = vec!["rk".into()];
        moved.nodes[0].answer.as_mut().expect("it answers").lock_timeout = None;
        let after_a_move = steps(&moved, &settings());
        assert_eq!(after_a_move.len(), 2, "{after_a_move:?}");
        assert!(!after_a_move.iter().any(DistributionStep::moves_rows));
        for step in steps(&cluster(), &settings()).iter().filter(|step| step.places()) {
            assert!(step.moves_rows(), "{step}");
        }
        assert!(DistributionStep::Truncate("entities").moves_rows());
    }

    #[test]
    fn schemas_of_views_are_made_before_anything_is_brought_to_other_nodes() {
        let schema = DistributionStep::Schema("acme".into());
        let viewed = |cluster: Cluster| Cluster { view_schemas: vec!["acme".into()], ..cluster };
        assert_eq!(steps(&viewed(cluster()), &settings())[0], schema);
        assert!(steps(&viewed(placed(cluster())), &settings()).is_empty(), "nothing is left to do");
    }

    #[test]
    fn limits_are_compared_in_milliseconds() {
        for text in ["10000", "10000ms", "10s", "10 s"] {
            let mut done = placed(cluster());
            for node in &mut done.nodes {
                node.answer.as_mut().expect("it answers").lock_timeout = Some(text.into());
            }
            assert!(steps(&done, &settings()).is_empty(), "{text}");
        }
        assert_eq!(in_milliseconds("2min"), Some(120_000));
        assert_eq!(in_milliseconds("1h"), Some(3_600_000));
        for text in ["", "ms", "10x", "-1", "1.5s"] {
            assert_eq!(in_milliseconds(text), None, "{text}");
        }
    }

    #[test]
    fn what_cannot_be_distributed_is_refused_before_anything_is_done() {
        let refused =
            |cluster: Option<&Cluster>, schema| plan(cluster, schema, &settings()).expect_err("refused");
        assert_eq!(refused(None, KNOWN), CannotDistribute::NoExtension);
        let worker = Cluster { is_coordinator: false, ..cluster() };
        assert_eq!(refused(Some(&worker), KNOWN), CannotDistribute::OnWorker);
        assert!(matches!(refused(Some(&cluster()), (None, 5)), CannotDistribute::Unmigrated(..)));
        assert!(matches!(refused(Some(&cluster()), (Some(4), 5)), CannotDistribute::Unmigrated(..)));
        assert_eq!(refused(Some(&cluster()), (Some(6), 5)), CannotDistribute::Newer(6, 5));
        let mut alone = cluster();
        alone.nodes[0].holds_shards = false;
        assert_eq!(refused(Some(&alone), KNOWN), CannotDistribute::NoNodes);
        let mut away = cluster();
        away.nodes[0].answer = Err("refused".into());
        assert!(matches!(refused(Some(&away), KNOWN), CannotDistribute::NodeAway(..)));
        let mut elsewhere = placed(cluster());
        table(&mut elsewhere, "buckets").placement =
            TablePlacement::ByHash { column: "bucket".into(), group: 7 };
        assert_eq!(refused(Some(&elsewhere), KNOWN), CannotDistribute::PlacedDifferently("buckets"));
    }

    #[test]
    fn a_role_that_also_moves_shards_has_no_limit_of_statements() {
        assert_eq!(timeouts("a", "a", 1, 2), [("lock_timeout", 1)]);
        assert_eq!(timeouts("a", "owner", 1, 2), [("lock_timeout", 1), ("statement_timeout", 2)]);
    }
}
