//! `rowhouse distribute`: distributes the tables over the nodes of a Citus cluster.

use std::io::Write as _;
use std::time::Instant;

use clap::Args;
use serde_json::json;

use super::database::read;
use super::output::{Done, OutputForm, Problem, block_on};
use crate::server::config::DatabaseSettings;
use crate::store::database::{Database, DatabaseError};
use crate::store::postgres::{self, DistributionRequest, DistributionStep};

/// Maximum number of shards in Citus.
const MAX_SHARDS: i64 = 64_000;

/// The arguments of `rowhouse distribute`.
#[derive(Debug, Args)]
pub(crate) struct DistributeArguments {
    /// Print the steps, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Number of shards of entities, which is also the maximum number of nodes that can ever hold entities
    /// [default: citus.shard_count of the coordinator]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=MAX_SHARDS))]
    shards: Option<u32>,

    #[command(flatten)]
    storage: DatabaseSettings,
    #[command(flatten)]
    form: OutputForm,
}

/// Distributes the tables that are not distributed yet, and prints each step.
pub(crate) fn run(arguments: &DistributeArguments) -> Done {
    let database = read(&arguments.storage)?;
    let Database::Postgres { options, .. } = &database else {
        return Err(Problem(
            "--database-url: SQLite cannot be distributed; `rowhouse copy` copies a SQLite database to \
             PostgreSQL"
                .into(),
        ));
    };
    let request = DistributionRequest { dry_run: arguments.dry_run, shards: arguments.shards };
    let began = Instant::now();
    let steps = block_on(async {
        // Steps go to standard error, the summary to standard output. A closed terminal does not stop a step.
        let mut on_step = |step: &DistributionStep| {
            let _ = writeln!(std::io::stderr().lock(), "{step}");
        };
        let distributed = postgres::distribute(options, request, &mut on_step).await;
        Ok(distributed.map_err(DatabaseError::Distribution)?)
    })?;
    let text = summary(&steps, arguments.dry_run, began.elapsed().as_secs_f64());
    let listed: Vec<String> = steps.iter().map(ToString::to_string).collect();
    arguments.form.print(&text, &json!({ "dry_run": arguments.dry_run, "steps": listed }))
}

fn summary(steps: &[DistributionStep], dry_run: bool, seconds: f64) -> String {
    match (steps.len(), dry_run) {
        (0, _) => "Everything is distributed already.".into(),
        (_, true) => {
            let lines: Vec<String> = steps.iter().map(|step| format!("would {step}")).collect();
            lines.join("\n")
        }
        (1, false) => format!("1 step was taken in {seconds:.1} s."),
        (count, false) => format!("{count} steps were taken in {seconds:.1} s."),
    }
}
