//! `rowhouse migrate`, `distribute` and `backup`: change the schema of a database, distribute its tables over the
//! nodes of a Citus cluster, and copy a SQLite file.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::database::{read, read_lasting};
use super::output::{Done, OutputForm, Problem, block_on, interruption};
use crate::server::config::{DatabaseSettings, DatabaseUrl};
use crate::store::database::{self, Database, DatabaseError};
use crate::store::postgres::{self, DistributionRequest, DistributionStep};
use crate::store::sqlite::{Backup, Copied, Location};

/// The arguments of `rowhouse migrate`.
#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    #[command(flatten)]
    storage: DatabaseSettings,
    #[command(flatten)]
    form: OutputForm,
}

/// Migrates the schema. Does nothing if it is already up to date.
pub(crate) fn migrate(arguments: &MigrateArguments) -> Done {
    let database =
        read_lasting(&arguments.storage, "a schema in memory would be lost when this command ends")?;
    let found = block_on(async {
        drop(database::open_primary(&database).await?);
        Ok(database::inspect_primary(&database).await?)
    })?;
    let name = database.display();
    let schema = found.schema.ok_or_else(|| {
        Problem(format!(
            "the schema of {name} is current, but its version may not be read by this role; GRANT SELECT on \
             _sqlx_migrations to the role"
        ))
    })?;
    arguments.form.print(
        &format!("The schema of {name} is version {schema}."),
        &json!({ "database": name, "schema": schema }),
    )
}

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
pub(crate) fn distribute(arguments: &DistributeArguments) -> Done {
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
    let text = summarize(&steps, arguments.dry_run, began.elapsed().as_secs_f64());
    let listed: Vec<String> = steps.iter().map(ToString::to_string).collect();
    arguments.form.print(&text, &json!({ "dry_run": arguments.dry_run, "steps": listed }))
}

fn summarize(steps: &[DistributionStep], dry_run: bool, seconds: f64) -> String {
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

/// Pause between two progress messages.
const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

/// The arguments of `rowhouse backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// The new file; an existing file is never replaced
    file: PathBuf,
    #[command(flatten)]
    url: DatabaseUrl,
    #[command(flatten)]
    form: OutputForm,
}

pub(crate) fn backup(arguments: &BackupArguments) -> Done {
    let settings = DatabaseSettings { url: arguments.url.clone(), ..DatabaseSettings::default() };
    let database = read(&settings)?;
    let source = source(&database)?;
    let file = &arguments.file;
    let Copied { bytes, tables, entities } = block_on(copy(source, file))?;
    let (source, file) = (database.display(), file.display().to_string());
    arguments.form.print(
        &format!("{file} is a backup of {source}: {tables} tables, {entities} entities, {bytes} bytes."),
        &json!({ "database": source, "file": file, "tables": tables, "entities": entities, "bytes": bytes }),
    )
}

fn source(database: &Database) -> Done<&Path> {
    match database {
        Database::Postgres { .. } => Err(Problem(
            "--database-url: `rowhouse backup` copies only SQLite; use pg_dump for PostgreSQL, or base \
             backups with WAL archiving"
                .into(),
        )),
        Database::Sqlite(options) => match (&options.location, database.missing_file()) {
            (Location::Memory, _) => {
                Err(Problem("--database-url: a database in memory has no backup; name a SQLite file".into()))
            }
            (_, Some(path)) => Err(DatabaseError::Missing(path.display().to_string()).into()),
            (Location::File(path), None) => Ok(path),
        },
    }
}

/// Copies the database on another thread, until the copy is complete or a signal stops it.
async fn copy(source: &Path, file: &Path) -> Done<Copied> {
    let mut interrupted = pin!(interruption()?);
    let backup = Backup::new(source, file)?;
    let (partial, stop) = (backup.partial(), backup.stop());
    let mut work = tokio::task::spawn_blocking(|| backup.run());
    let mut pause = tokio::time::interval(PROGRESS_PAUSE);
    pause.tick().await;
    loop {
        tokio::select! {
            done = &mut work => return Ok(done??),
            () = &mut interrupted, if !stop.load(Ordering::Relaxed) => stop.store(true, Ordering::Relaxed),
            _ = pause.tick() => print_progress(&partial),
        }
    }
}

/// Prints the number of bytes written so far, if standard error is a terminal.
fn print_progress(partial: &Path) {
    if stderr().is_terminal()
        && let Ok(found) = partial.metadata()
    {
        let _ = writeln!(stderr(), "rowhouse: {} MiB written", found.len() >> 20);
    }
}
