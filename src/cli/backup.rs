//! `rowhouse backup`: copies a SQLite database, even while a server runs.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::database::read;
use super::output::{Done, OutputForm, Problem, block_on, interruption};
use crate::server::config::{DatabaseSettings, DatabaseUrl};
use crate::store::database::{Database, DatabaseError};
use crate::store::sqlite::{Backup, Copied, Location};

/// Pause between two progress messages.
const PROGRESS: Duration = Duration::from_secs(1);

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

/// Copies the database to a new file and checks the copy.
pub(crate) fn run(arguments: &BackupArguments) -> Done {
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

/// Returns the file to back up.
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
    let mut pause = tokio::time::interval(PROGRESS);
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
