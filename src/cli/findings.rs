//! The findings of `rowhouse check`, and the checks of the PostgreSQL version and of a Citus cluster.

use std::ops::RangeInclusive;

use crate::store::contract::cluster::{Cluster, ClusterNode};
use crate::store::postgres::ConnectionDemand;

pub(super) struct Finding {
    pub name: &'static str,
    pub verdict: CheckResult,
    pub found: String,
    /// The action that solves the problem; `None` if there is no problem.
    pub advice: Option<String>,
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckResult {
    Ok,
    /// A server works, but possibly not as intended.
    Warning,
    Problem,
}

pub(super) fn ok(name: &'static str, found: impl Into<String>) -> Finding {
    Finding { name, verdict: CheckResult::Ok, found: found.into(), advice: None }
}

pub(super) fn warning(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { name, verdict: CheckResult::Warning, found: found.into(), advice: Some(advice.into()) }
}

pub(super) fn problem(name: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { name, verdict: CheckResult::Problem, found: found.into(), advice: Some(advice.into()) }
}

/// The major versions that the tests cover.
const TESTED: RangeInclusive<u32> = 14..=18;

pub(super) fn check_product(product: &str, place: &str) -> Finding {
    let (oldest, newest) = (TESTED.start(), TESTED.end());
    let found = format!("{product} answers at {place}");
    match major_version(product) {
        Some(version) if version < *oldest => {
            let why = format!("{found}; before PostgreSQL {oldest}, statements on partitions are slow");
            problem("database", why, format!("upgrade it to PostgreSQL {oldest} or newer"))
        }
        Some(version) if version > *newest => {
            let advice = format!(
                "test your programs with it before you rely on it: Rowhouse was tested with PostgreSQL up \
                 to {newest}"
            );
            warning("database", found, advice)
        }
        _ => ok("database", found),
    }
}

/// Returns the major version of PostgreSQL, such as 14 of `PostgreSQL 14.20` or 19 of `PostgreSQL 19beta1`.
fn major_version(product: &str) -> Option<u32> {
    let version = product.strip_prefix("PostgreSQL ")?;
    version.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

const DISTRIBUTE: &str = "run `rowhouse distribute`";

/// Judges a cluster. `demand` is the number of connections to a node that a server may open.
pub(super) fn check_cluster(cluster: &Cluster, demand: Option<ConnectionDemand>) -> Vec<Finding> {
    let mut findings = vec![check_placements(cluster)];
    findings.extend(check_membership(cluster));
    findings.extend(cluster.nodes.iter().map(check_node));
    findings.extend(check_unused(cluster));
    findings.extend(check_connections(cluster, demand));
    findings.extend(check_processes(cluster));
    if cluster.is_distributed() {
        findings.extend(check_statistics(cluster));
        findings.extend(check_leftovers(cluster));
        findings.extend(check_lock_timeout(cluster));
    }
    findings
}

fn check_placements(cluster: &Cluster) -> Finding {
    let holding = cluster.nodes.iter().filter(|node| node.holds_shards).count();
    let role = if cluster.is_coordinator { "coordinator" } else { "worker" };
    let found =
        format!("Citus {}: {role} of {} nodes, {holding} with shards", cluster.version, cluster.nodes.len());
    let misplaced = cluster.misplaced();
    match (cluster.is_distributed(), misplaced.as_slice()) {
        (true, []) => ok("cluster", found),
        (true, names) => problem(
            "cluster",
            format!("{found}; not distributed: {}", names.join(", ")),
            distribute_advice(cluster),
        ),
        (false, _) if cluster.has_begun() => {
            let advice = format!(
                "if no `rowhouse distribute` is running, stop the servers and run it again{}",
                on_coordinator(cluster)
            );
            problem("cluster", format!("{found}; a distribution has begun and is not complete"), advice)
        }
        (false, _) => {
            let advice =
                format!("{}, or do nothing if one node should hold all tables", distribute_advice(cluster));
            warning("cluster", format!("{found}; the tables are not distributed"), advice)
        }
    }
}

/// Reports a removed or replaced node, which still has its old catalogue.
fn check_membership(cluster: &Cluster) -> Option<Finding> {
    let strangers = cluster.which_do_not_name_it();
    (!strangers.is_empty()).then(|| {
        let found = format!("the catalogues of these nodes do not name this node: {}", strangers.join(", "));
        problem(
            "membership",
            found,
            "remove the URL of this node from --database-url: the node was removed or replaced",
        )
    })
}

fn distribute_advice(cluster: &Cluster) -> String {
    format!("{DISTRIBUTE}{}", on_coordinator(cluster))
}

fn on_coordinator(cluster: &Cluster) -> &'static str {
    if cluster.is_coordinator { "" } else { " through the coordinator (--migrate-url)" }
}

fn check_node(node: &ClusterNode) -> Finding {
    let found = format!("{}: {}", node.address, node.role());
    let facts = match &node.answer {
        Ok(facts) => facts,
        Err(reason) => {
            let advice = "see that it is up, and that the other nodes can connect to it";
            return problem("node", format!("{found}, does not answer: {reason}"), advice);
        }
    };
    let found = format!(
        "{found}, {} shards with about {} entities in {:.1} MB, standbys: {}{}",
        facts.shards,
        facts.entities,
        facts.bytes as f64 / 1e6,
        facts.standbys,
        if node.holds_shards { "" } else { ", gets no shards" },
    );
    if facts.is_standby {
        let advice =
            "promote it, or set the address of the primary in the cluster: SELECT citus_update_node(..)";
        return problem("node", format!("{found}, in recovery: it refuses writes"), advice);
    }
    ok("node", found)
}

fn check_unused(cluster: &Cluster) -> impl Iterator<Item = Finding> {
    cluster.unused.iter().map(|address| ok("node", format!("{address}: a standby, or disabled")))
}

/// Judges the connection limits. Each session on a node keeps a connection to every other node that it has used.
fn check_connections(cluster: &Cluster, demand: Option<ConnectionDemand>) -> Vec<Finding> {
    let Some(demand) = demand else { return Vec::new() };
    let advice = "raise max_connections of the node, or lower --max-connections or --workers";
    let short = cluster.answers().filter(|(_, facts)| facts.connections < demand.most);
    short
        .map(|(node, facts)| {
            let found = format!(
                "{} allows {} connections, but one server may open {} there",
                node.address, facts.connections, demand.most
            );
            warning("connections", found, advice)
        })
        .collect()
}

fn check_processes(cluster: &Cluster) -> Vec<Finding> {
    let short = cluster.answers().filter(|(_, facts)| facts.processes < facts.needed_processes());
    short
        .map(|(node, facts)| {
            let found = format!(
                "max_worker_processes of {} is {}, too few for {} databases: shards may never move",
                node.address, facts.processes, facts.databases
            );
            let advice = format!("set it to {} or more, and restart the node", facts.needed_processes());
            warning("processes", found, advice)
        })
        .collect()
}

fn check_statistics(cluster: &Cluster) -> Option<Finding> {
    cluster.keeps_statistics().then(|| {
        let columns = cluster.columns_with_statistics.join(", ");
        let found = format!(
            "the planner keeps statistics of {columns}: reads of new tables may scan the whole table"
        );
        warning(
            "statistics",
            found,
            format!("{}, and again after each move of shards", distribute_advice(cluster)),
        )
    })
}

fn check_leftovers(cluster: &Cluster) -> Option<Finding> {
    let left: Vec<_> = cluster.tables.iter().filter(|table| table.local_bytes > 0).collect();
    (!left.is_empty()).then(|| {
        let bytes: i64 = left.iter().map(|table| table.local_bytes).sum();
        let names: Vec<&str> = left.iter().map(|table| table.name).collect();
        let found = format!(
            "this node still has {bytes} bytes from before the distribution, which nothing reads: {}",
            names.join(", ")
        );
        warning("leftovers", found, distribute_advice(cluster))
    })
}

fn check_lock_timeout(cluster: &Cluster) -> Option<Finding> {
    let without = cluster.answers().filter(|(_, facts)| facts.lock_timeout.is_none());
    let addresses: Vec<&str> = without.map(|(node, _)| node.address.as_str()).collect();
    (!addresses.is_empty()).then(|| {
        let found = format!(
            "the servers' role has no lock_timeout on {}: requests wait for locked rows until they fail \
             with 500",
            addresses.join(", ")
        );
        warning("timeouts", found, distribute_advice(cluster))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::contract::cluster::fixture::{self, placed, table};
    use crate::store::contract::cluster::{NodeFacts, TablePlacement};

    #[test]
    fn versions_that_are_not_tested_are_told() {
        for (product, expected) in [
            ("PostgreSQL 9.6.24", CheckResult::Problem),
            ("PostgreSQL 13.23", CheckResult::Problem),
            ("PostgreSQL 14.20", CheckResult::Ok),
            ("PostgreSQL 18.1", CheckResult::Ok),
            ("PostgreSQL 19beta1", CheckResult::Warning),
            ("PostgreSQL", CheckResult::Ok),
            ("SQLite 3.50.4", CheckResult::Ok),
        ] {
            assert_eq!(check_product(product, "here").verdict, expected, "{product}");
        }
    }

    fn cluster() -> Cluster {
        placed(fixture::cluster(&["c:1", "w:2"]))
    }

    fn facts(cluster: &mut Cluster) -> &mut NodeFacts {
        cluster.nodes[1].answer.as_mut().expect("it answers")
    }

    /// Returns the names and severities of the problems after a change.
    fn found(change: impl FnOnce(&mut Cluster)) -> Vec<(&'static str, CheckResult)> {
        let mut changed = cluster();
        change(&mut changed);
        let findings = check_cluster(&changed, Some(ConnectionDemand { most: 38, allowed: 97 }));
        let findings = findings.into_iter().filter(|finding| finding.verdict != CheckResult::Ok);
        findings.map(|finding| (finding.name, finding.verdict)).collect()
    }

    #[test]
    fn each_state_of_a_cluster_has_its_verdict() {
        use CheckResult::{Problem, Warning};
        assert!(found(|_| {}).is_empty());
        assert!(found(|cluster| cluster.is_coordinator = false).is_empty());
        let local =
            |cluster: &mut Cluster, name: &str| table(cluster, name).placement = TablePlacement::Local;
        assert_eq!(found(|c| local(c, "doomed")), [("cluster", Problem)]);
        assert_eq!(found(|c| local(c, "buckets")), [("cluster", Problem)]);
        let elsewhere = TablePlacement::ByHash { column: "bucket".into(), group: 3 };
        assert_eq!(found(|c| table(c, "buckets").placement = elsewhere), [("cluster", Problem)]);
        let all_local = |cluster: &mut Cluster| {
            cluster.tables.iter_mut().for_each(|t| t.placement = TablePlacement::Local)
        };
        assert_eq!(found(all_local), [("cluster", Warning)]);
        let begun = |cluster: &mut Cluster| {
            all_local(cluster);
            table(cluster, "tables").placement = TablePlacement::Reference;
        };
        assert_eq!(found(begun), [("cluster", Problem)]);
        assert_eq!(found(|c| c.nodes[1].answer = Err("refused".into())), [("node", Problem)]);
        assert_eq!(found(|c| facts(c).is_standby = true), [("node", Problem)]);
        assert_eq!(found(|c| facts(c).addresses.clear()), [("membership", Problem)]);
        let promoted = |cluster: &mut Cluster| facts(cluster).addresses.insert(1, "standby:1".into());
        assert_eq!(found(|c| drop(promoted(c))), [("membership", Problem)]);
        let unnamed = |cluster: &mut Cluster| (cluster.group, cluster.address) = (0, None);
        assert!(found(unnamed).is_empty(), "a coordinator without an address");
        assert_eq!(found(|c| facts(c).connections = 37), [("connections", Warning)]);
        assert!(found(|c| facts(c).connections = 38).is_empty());
        assert_eq!(found(|c| facts(c).databases = 5), [("processes", Warning)]);
        assert!(found(|c| facts(c).databases = 4).is_empty());
        assert_eq!(found(|c| c.columns_with_statistics = vec!["pk".into()]), [("statistics", Warning)]);
        assert_eq!(found(|c| table(c, "entities").local_bytes = 8192), [("leftovers", Warning)]);
        assert_eq!(found(|c| facts(c).lock_timeout = None), [("timeouts", Warning)]);
    }

    #[test]
    fn each_node_is_named_with_what_it_has() {
        let mut cluster = cluster();
        (facts(&mut cluster).shards, facts(&mut cluster).bytes) = (16, 2_400_000);
        (facts(&mut cluster).entities, facts(&mut cluster).standbys) = (1000, 1);
        cluster.nodes[1].holds_shards = false;
        cluster.unused.push("s:3".into());
        let findings = check_cluster(&cluster, None);
        let nodes: Vec<&str> = findings.iter().filter(|f| f.name == "node").map(|f| &*f.found).collect();
        let drained =
            "w:2: worker, 16 shards with about 1000 entities in 2.4 MB, standbys: 1, gets no shards";
        assert_eq!(nodes[1..], [drained, "s:3: a standby, or disabled"]);
    }

    #[test]
    fn a_worker_is_told_where_to_distribute() {
        let mut worker = cluster();
        (worker.is_coordinator, table(&mut worker, "doomed").placement) = (false, TablePlacement::Missing);
        let findings = check_cluster(&worker, None);
        let finding = findings.iter().find(|finding| finding.name == "cluster").expect("a finding");
        assert!(
            finding.found.contains("worker of 2 nodes") && finding.found.ends_with("doomed"),
            "{}",
            finding.found
        );
        assert!(finding.advice.as_deref().expect("advice").contains("--migrate-url"));
    }
}
