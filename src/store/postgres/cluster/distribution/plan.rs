//! What has to be done to distribute the tables, decided from the catalogue.

use std::fmt;

use crate::store::contract::cluster::{COLOCATED, Cluster, DISTRIBUTION_COLUMN, REFERENCE, TablePlacement};

/// Tables that statements for entities use.
pub(crate) const REQUEST_TABLES: [&str; 3] = ["tables", COLOCATED[0], COLOCATED[1]];

/// How tables are to be distributed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DistributionSettings {
    /// Shards of `entities`; the cluster's `citus.shard_count` if `None`.
    pub shards: Option<u32>,
    /// Copy `entities` while it is written to.
    pub concurrently: bool,
    /// The role that servers connect as.
    pub role: String,
    /// Its limits in milliseconds on each node, by the name of the setting.
    pub timeouts: Vec<(&'static str, u128)>,
}

/// What has to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DistributionPlan {
    /// Steps that no transaction can hold, in order.
    pub before: Vec<DistributionStep>,
    /// Steps of one transaction.
    pub together: Vec<DistributionStep>,
}

impl DistributionPlan {
    /// All steps in order.
    pub(crate) fn steps(&self) -> impl Iterator<Item = &DistributionStep> {
        self.before.iter().chain(&self.together)
    }
}

/// One statement of a distribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DistributionStep {
    /// Make the schema of SQL views known to every node. Citus distributes a view by a session that does
    /// not see a schema of the same transaction.
    Schema(String),
    /// Keep no statistics of the key columns of a table that is not distributed yet.
    NoStatistics,
    /// The same in each shard of a distributed table, where the next move of the shard undoes it.
    NoStatisticsInShards,
    /// Copy a table to each node.
    Reference(&'static str),
    /// Distribute `entities`. Writers wait meanwhile.
    Distribute { shards: Option<u32> },
    /// Distribute `entities` while it is written to.
    DistributeConcurrently { shards: Option<u32> },
    /// Distribute a table beside `entities`.
    Colocate(&'static str),
    /// Remove the rows that stay behind on the coordinator, which nothing reads any more.
    Truncate(&'static str),
    /// Limit a wait of the sessions that other nodes open for the role of the servers.
    Limit { role: String, setting: &'static str, milliseconds: u128 },
}

impl DistributionStep {
    /// Whether the step brings a table to other nodes.
    pub(crate) fn places(&self) -> bool {
        use DistributionStep::*;
        matches!(self, Reference(_) | Distribute { .. } | DistributeConcurrently { .. } | Colocate(_))
    }

    /// Whether requests for entities wait for the step: it locks one of [`REQUEST_TABLES`].
    pub(crate) fn blocks_requests(&self) -> bool {
        use DistributionStep::*;
        match self {
            Distribute { .. } | Colocate(_) => true,
            Reference(table) | Truncate(table) => REQUEST_TABLES.contains(table),
            _ => false,
        }
    }

    /// Steps that requests do not feel come first, so that the others are soon over. Reference
    /// tables come before distributed ones: afterwards, statements of the transaction may run on all
    /// nodes at once. A table comes before those beside it.
    fn order(&self) -> u8 {
        use DistributionStep::*;
        match self {
            Schema(_) | NoStatistics | NoStatisticsInShards => 0,
            DistributeConcurrently { .. } => 1,
            Limit { .. } => 2,
            Reference(table) if !REQUEST_TABLES.contains(table) => 3,
            Truncate(table) if !REQUEST_TABLES.contains(table) => 4,
            Reference(_) => 5,
            Distribute { .. } => 6,
            Colocate(_) => 7,
            Truncate(_) => 8,
        }
    }
}

/// The limits that the role of the servers gets on each node, in milliseconds. A role that also
/// moves shards has none for statements: it would end the moves.
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
            DistributionStep::DistributeConcurrently { shards } => write!(
                f,
                "distribute {entities} by {DISTRIBUTION_COLUMN}{}, while it is written to",
                parts(shards)
            ),
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

/// Why tables cannot be distributed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CannotDistribute {
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
    #[error("the schema is {0}, and this program's is version {1}: run `rowhouse migrate` first")]
    Unmigrated(String, i64),
    #[error("the schema is version {0}, newer than this program's {1}: use the newer program")]
    Newer(i64, i64),
    #[error("{0} is distributed in another way: see citus_tables, and run SELECT undistribute_table('{0}')")]
    PlacedDifferently(&'static str),
    #[error("--concurrently is not possible: {0}")]
    NotConcurrently(String),
}

/// Decides what has to be done. Steps that are done already are left out, so that the command can
/// be repeated.
///
/// # Errors
/// [`CannotDistribute`], before anything was changed.
pub(crate) fn plan(
    cluster: Option<&Cluster>,
    schema: (Option<i64>, i64),
    settings: &DistributionSettings,
) -> Result<DistributionPlan, CannotDistribute> {
    let cluster = cluster.ok_or(CannotDistribute::NoExtension)?;
    check(cluster, schema)?;
    let mut plan = placements(cluster, settings)?;
    plan.together.extend(limits(cluster, settings));
    plan.together.sort_by_key(DistributionStep::order);
    Ok(plan)
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

/// The steps that bring each table where it belongs.
///
/// # Errors
/// [`CannotDistribute`] where a table is in a place of another kind.
pub(crate) fn placements(
    cluster: &Cluster,
    settings: &DistributionSettings,
) -> Result<DistributionPlan, CannotDistribute> {
    let mut plan = DistributionPlan::default();
    // A table that Citus knows takes no such setting. Its shards have it afterwards.
    if cluster.keeps_statistics() && !cluster.has_begun() {
        let step = match cluster.is_distributed() {
            true => DistributionStep::NoStatisticsInShards,
            false => DistributionStep::NoStatistics,
        };
        plan.together.push(step);
    }
    for table in &cluster.tables {
        let in_place = cluster.is_in_place(table.name);
        let is_begun = table.placement == TablePlacement::Begun && table.name == COLOCATED[0];
        let will_be = is_begun || table.placement == TablePlacement::Local;
        if table.placement == TablePlacement::Missing {
            continue;
        }
        if !in_place && !will_be {
            return Err(CannotDistribute::PlacedDifferently(table.name));
        }
        if will_be {
            plan.together.push(match table.name {
                name if name == COLOCATED[0] => DistributionStep::Distribute { shards: settings.shards },
                name if COLOCATED.contains(&name) => DistributionStep::Colocate(name),
                name => DistributionStep::Reference(name),
            });
        }
    }
    let left = cluster.tables.iter().filter(|table| table.local_bytes > 0).map(|table| table.name);
    plan.together.extend(left.map(DistributionStep::Truncate));
    plan.together.sort_by_key(DistributionStep::order);
    let mut plan = if settings.concurrently { concurrently(cluster, plan)? } else { plan };
    if plan.steps().any(DistributionStep::places) {
        plan.before.splice(..0, cluster.view_schemas.iter().cloned().map(DistributionStep::Schema));
    }
    Ok(plan)
}

/// Moves the distribution of `entities` before the transaction. While it lasts, all tables must be
/// local, and afterwards, statements work for the moment in which only `entities` is distributed.
fn concurrently(cluster: &Cluster, plan: DistributionPlan) -> Result<DistributionPlan, CannotDistribute> {
    let is_first = |step: &DistributionStep| {
        matches!(step, DistributionStep::NoStatistics | DistributionStep::Distribute { .. })
    };
    let (before, together): (Vec<DistributionStep>, Vec<DistributionStep>) =
        plan.together.into_iter().partition(is_first);
    let before: Vec<DistributionStep> = before
        .into_iter()
        .map(|step| match step {
            DistributionStep::Distribute { shards } => DistributionStep::DistributeConcurrently { shards },
            other => other,
        })
        .collect();
    if before.is_empty() {
        return Ok(DistributionPlan { before, together });
    }
    if let Some(reason) = &cluster.no_logical_copy {
        return Err(CannotDistribute::NotConcurrently(reason.clone()));
    }
    let elsewhere = REFERENCE.iter().find(|name| cluster.is_in_place(name));
    match elsewhere {
        Some(name) => Err(CannotDistribute::NotConcurrently(format!("{name} is on every node already"))),
        None => Ok(DistributionPlan { before, together }),
    }
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

/// A limit as a role's setting may spell it. Citus leaves out the unit where it brings the setting to
/// other nodes.
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
    use crate::store::contract::cluster::fixture::{self, placed, table};

    const KNOWN: (Option<i64>, i64) = (Some(5), 5);

    fn cluster() -> Cluster {
        fixture::cluster(&["w:1"])
    }

    fn settings() -> DistributionSettings {
        DistributionSettings {
            shards: Some(64),
            concurrently: false,
            role: "rowhouse".into(),
            timeouts: timeouts("rowhouse", "rowhouse", 10_000, 30_000),
        }
    }

    fn steps(cluster: &Cluster, settings: &DistributionSettings) -> Vec<DistributionStep> {
        plan(Some(cluster), KNOWN, settings).expect("a plan").steps().cloned().collect()
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

    #[test]
    fn a_copy_beside_writers_comes_before_everything_else() {
        let settings = DistributionSettings { concurrently: true, ..settings() };
        let plan = |cluster: &Cluster| plan(Some(cluster), KNOWN, &settings);
        let whole = plan(&cluster()).expect("a plan");
        let copy = DistributionStep::DistributeConcurrently { shards: Some(64) };
        assert_eq!(whole.before, [DistributionStep::NoStatistics, copy]);
        assert!(whole.together.contains(&DistributionStep::Colocate("buckets")));
        let mut without = cluster();
        without.no_logical_copy = Some("wal_level is replica".into());
        assert!(matches!(plan(&without), Err(CannotDistribute::NotConcurrently(_))));
        // Statements would fail for as long as the copy takes.
        let mut begun = cluster();
        table(&mut begun, "tables").placement = TablePlacement::Reference;
        assert!(matches!(plan(&begun), Err(CannotDistribute::NotConcurrently(_))));
        assert_eq!(plan(&placed(cluster())).expect("a plan").steps().count(), 0, "nothing is left to do");
    }

    #[test]
    fn a_copy_that_was_interrupted_is_taken_up_again() {
        let mut begun = cluster();
        table(&mut begun, "entities").placement = TablePlacement::Begun;
        let copy = DistributionStep::DistributeConcurrently { shards: Some(64) };
        let concurrently = DistributionSettings { concurrently: true, ..settings() };
        assert_eq!(plan(Some(&begun), KNOWN, &concurrently).expect("a plan").before, [copy]);
        let waiting = steps(&begun, &settings());
        assert!(waiting.contains(&DistributionStep::Distribute { shards: Some(64) }), "{waiting:?}");
        assert!(!waiting.contains(&DistributionStep::NoStatistics), "Citus refuses it by now");
        // Nothing of ours begins with another table.
        let mut other = cluster();
        table(&mut other, "tables").placement = TablePlacement::Begun;
        let refused = plan(Some(&other), KNOWN, &settings());
        assert_eq!(refused.expect_err("refused"), CannotDistribute::PlacedDifferently("tables"));
    }

    #[test]
    fn schemas_of_views_are_made_before_anything_is_brought_to_other_nodes() {
        let schema = DistributionStep::Schema("acme".into());
        let viewed = |cluster: Cluster| Cluster { view_schemas: vec!["acme".into()], ..cluster };
        for concurrently in [false, true] {
            let settings = DistributionSettings { concurrently, ..settings() };
            assert_eq!(steps(&viewed(cluster()), &settings)[0], schema);
            assert!(steps(&viewed(placed(cluster())), &settings).is_empty(), "nothing is left to do");
        }
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
