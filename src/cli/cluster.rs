//! `rowhouse cluster …`: the nodes of a Citus cluster.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::database::{self, DatabaseArguments};
use super::distribute::on_progress;
use super::output::{Problem, block_on, interruption};
use super::transfer::TransferEnd;
use crate::operator::to_json;
use crate::server::config::Database;
use crate::server::database::DatabaseError;
use crate::store::contract::cluster::Cluster;
use crate::store::postgres::{ClusterChange, ClusterEvent, ClusterOutcome, NodeAddress, PgOptions, members};

const STATUS_EXAMPLE: &str = "Example:
  rowhouse cluster status --database-url postgres://rowhouse@coordinator/rowhouse

Ends with status 1 if a node does not answer.";
const ADD_EXAMPLES: &str = "Examples:
  rowhouse cluster add worker-3:5432 --database-url postgres://owner@coordinator/rowhouse
  rowhouse cluster rebalance --database-url postgres://owner@coordinator/rowhouse

The database, with the extension citus, must be there on the new node. Servers use the node when it has shards.";
const DRAIN_EXAMPLES: &str = "Examples:
  rowhouse cluster drain worker-3:5432 --database-url postgres://owner@coordinator/rowhouse
  rowhouse cluster remove worker-3:5432 --database-url postgres://owner@coordinator/rowhouse

Servers read and write meanwhile. Interrupted, the moves go on; the same command waits for them.";
const REBALANCE_EXAMPLE: &str = "Example:
  rowhouse cluster rebalance --database-url postgres://owner@coordinator/rowhouse

Servers read and write meanwhile. Interrupted, the moves go on; the same command waits for them.";
const RESTORE_POINT_EXAMPLE: &str = "Example:
  rowhouse cluster restore-point before-upgrade --database-url postgres://postgres@coordinator/rowhouse";

/// The subcommands of `rowhouse cluster`.
#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    /// List the nodes: whether they answer, their shards, bytes and entities
    #[command(after_help = STATUS_EXAMPLE)]
    Status(DatabaseArguments),
    /// Make a server of PostgreSQL a node of the cluster
    #[command(after_help = ADD_EXAMPLES)]
    Add(NodeArguments),
    /// Move all shards away from a node
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(NodeArguments),
    /// Take a node without shards out of the cluster
    #[command(after_help = DRAIN_EXAMPLES)]
    Remove(NodeArguments),
    /// Spread the shards evenly over the nodes
    #[command(after_help = REBALANCE_EXAMPLE)]
    Rebalance(DatabaseArguments),
    /// Name a point of time to which all nodes can be restored together
    #[command(after_help = RESTORE_POINT_EXAMPLE)]
    RestorePoint(RestorePointArguments),
}

#[derive(Debug, Args)]
pub(crate) struct NodeArguments {
    /// The node, as the other nodes reach it
    #[arg(value_name = "HOST:PORT", value_parser = node_address)]
    node: NodeAddress,
    #[command(flatten)]
    of: DatabaseArguments,
}

#[derive(Debug, Args)]
pub(crate) struct RestorePointArguments {
    /// The name, which recovery_target_name takes
    #[arg(value_parser = point_name)]
    name: String,
    #[command(flatten)]
    of: DatabaseArguments,
}

/// Maximum bytes of the name of a restore point in PostgreSQL.
const MAX_POINT_NAME: usize = 63;

fn node_address(text: &str) -> Result<NodeAddress, &'static str> {
    NodeAddress::parse(text).ok_or("the address of a node is HOST:PORT, as in worker-1:5432")
}

fn point_name(text: &str) -> Result<String, String> {
    match (1..=MAX_POINT_NAME).contains(&text.len()) {
        true => Ok(text.to_owned()),
        false => Err(format!("a name has 1 to {MAX_POINT_NAME} bytes")),
    }
}

/// Runs the command.
///
/// # Errors
/// How it ended, unless all is well.
pub(crate) fn run(command: &ClusterCommand) -> Result<(), TransferEnd> {
    let (of, change) = match command {
        ClusterCommand::Status(of) => return status(of),
        ClusterCommand::Add(NodeArguments { node, of }) => (of, ClusterChange::Add(node.clone())),
        ClusterCommand::Drain(NodeArguments { node, of }) => (of, ClusterChange::Drain(node.clone())),
        ClusterCommand::Remove(NodeArguments { node, of }) => (of, ClusterChange::Remove(node.clone())),
        ClusterCommand::Rebalance(of) => (of, ClusterChange::Rebalance),
        ClusterCommand::RestorePoint(RestorePointArguments { name, of }) => {
            (of, ClusterChange::RestorePoint(name.clone()))
        }
    };
    carry_out(of, &change)
}

fn options(of: &DatabaseArguments) -> Result<PgOptions, TransferEnd> {
    match database::read(&of.storage).map_err(|Problem(text)| TransferEnd::Usage(text))? {
        Database::Postgres { options, .. } => Ok(options),
        Database::Sqlite { .. } => Err(TransferEnd::Usage("--database-url: SQLite is no cluster".into())),
    }
}

fn carry_out(of: &DatabaseArguments, change: &ClusterChange) -> Result<(), TransferEnd> {
    let options = options(of)?;
    let outcome = block_on(async {
        let interrupted = interruption()?;
        let mut last = None;
        let mut on_progress = |event: ClusterEvent<'_>| print_progress(event, &mut last);
        tokio::select! {
            done = members::change(&options, change, &mut on_progress) => {
                Ok(Some(done.map_err(DatabaseError::Cluster)?))
            }
            () = interrupted => Ok(None),
        }
    })?;
    let Some(outcome) = outcome else {
        if matches!(change, ClusterChange::Drain(_) | ClusterChange::Rebalance) {
            eprintln!(
                "rowhouse: the moves go on, and the same command waits for them; on the coordinator, SELECT \
                 citus_rebalance_stop() ends them"
            );
        }
        return Err(TransferEnd::Interrupted("interrupted".into()));
    };
    let (text, value) = described(change, &outcome);
    Ok(of.form.print(&text, &value)?)
}

/// Prints what is new.
fn print_progress(event: ClusterEvent<'_>, last: &mut Option<(i64, Option<String>)>) {
    let ClusterEvent::Moved { done, problem, .. } = event else { return on_progress(event) };
    let new = Some((done, problem.map(str::to_owned)));
    if *last != new {
        on_progress(event);
        *last = new;
    }
}

fn described(change: &ClusterChange, outcome: &ClusterOutcome) -> (String, Value) {
    let text = match (outcome, change) {
        (ClusterOutcome::Unchanged, ClusterChange::Drain(node)) => format!("{node} has no shards."),
        (ClusterOutcome::Unchanged, ClusterChange::Add(node)) => format!("{node} is a node already."),
        (ClusterOutcome::Unchanged, _) => "The shards are spread evenly already.".to_owned(),
        (ClusterOutcome::Added, _) => "It is a node now: run `rowhouse cluster rebalance`.".to_owned(),
        (ClusterOutcome::Removed, _) => "It is a node no longer.".to_owned(),
        (ClusterOutcome::Moved(moves), ClusterChange::Drain(node)) => {
            format!(
                "{node} has no shards any more, after {moves} moves: run `rowhouse cluster remove {node}`."
            )
        }
        (ClusterOutcome::Moved(moves), _) => format!("{moves} moves were made."),
        (ClusterOutcome::RestorePoint(position), _) => {
            format!("It was written to the log of each node, at {position} by the coordinator.")
        }
    };
    let value = match outcome {
        ClusterOutcome::Moved(moves) => json!({ "changed": true, "moves": moves }),
        ClusterOutcome::RestorePoint(position) => json!({ "changed": true, "position": position }),
        outcome => json!({ "changed": *outcome != ClusterOutcome::Unchanged }),
    };
    (text, value)
}

fn status(of: &DatabaseArguments) -> Result<(), TransferEnd> {
    let options = options(of)?;
    let cluster = block_on(async { Ok(members::status(&options).await.map_err(DatabaseError::Cluster)?) })?;
    let Some(cluster) = cluster else {
        return Err(Problem("the database has no extension citus: it is a single server".into()).into());
    };
    of.form.print(&listed(&cluster), &to_json::cluster(&cluster))?;
    match cluster.silent().count() {
        0 => Ok(()),
        silent => Err(Problem(format!("{silent} of {} nodes do not answer", cluster.nodes.len())).into()),
    }
}

fn listed(cluster: &Cluster) -> String {
    let mut text = format!("Citus {}", cluster.version);
    for node in &cluster.nodes {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n{}: {}", node.address, node.role());
        let _ = match &node.answer {
            Err(reason) => write!(text, ", does not answer: {reason}"),
            Ok(facts) => write!(
                text,
                "{}, {} shards with about {} entities in {:.1} MB, {} standbys{}",
                if facts.is_standby { ", in recovery: it refuses writes" } else { "" },
                facts.shards,
                facts.entities,
                facts.bytes as f64 / 1e6,
                facts.standbys,
                if node.holds_shards { "" } else { ", gets no shards" },
            ),
        };
    }
    for address in &cluster.unused {
        let _ = write!(text, "\n{address}: a standby, or disabled");
    }
    text
}
