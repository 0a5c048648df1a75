//! `rowhouse table …`: changes the buckets of a table, and manages deleted tables.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;

use super::database;
use super::deleted::{
    self, DeletedArguments, PURGE_EXAMPLES, PurgeArguments, UNDELETE_EXAMPLES, UndeleteArguments,
};
use super::output::{OutputForm, Problem, block_on, interruption};
use super::transfer::TransferEnd;
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::protocol::model::{TableName, Ticks};
use crate::server::config::DatabaseSettings;
use crate::store::database::{Database, DatabaseError};
use crate::store::postgres::{PgOptions, RespreadEvent, RespreadRequest, RespreadSummary, respread};

const RESPREAD_EXAMPLES: &str = "Examples:
  rowhouse table respread Events 8 --database-url postgres://rowhouse@coordinator/rowhouse
  rowhouse table respread Events 8 --cancel --database-url postgres://rowhouse@coordinator/rowhouse

Servers read and write the table meanwhile; writes are slower. At the end, writes wait for less than a
second. All servers must run this version. After an interruption or a crash, run the command again to go on.

Exit status: 0 done; 1 failed; 2 wrong arguments; 130 interrupted.";
/// Pause between two progress messages.
const PROGRESS: Duration = Duration::from_secs(2);

/// The subcommands of `rowhouse table`.
#[derive(Debug, Subcommand)]
pub(crate) enum TableCommand {
    /// Change the number of buckets of a table in PostgreSQL, while servers use the table
    #[command(after_help = RESPREAD_EXAMPLES)]
    Respread(RespreadArguments),
    /// List the deleted tables that can be restored, with their sizes
    #[command(after_help = "Example:\n  rowhouse table deleted --account myaccount --json")]
    Deleted(DeletedArguments),
    /// Restore a deleted table with its entities, policies, expiry rule and indexes
    #[command(after_help = UNDELETE_EXAMPLES)]
    Undelete(UndeleteArguments),
    /// Remove a deleted table for good before its time has ended
    #[command(after_help = PURGE_EXAMPLES)]
    Purge(PurgeArguments),
}

#[derive(Debug, Args)]
pub(crate) struct RespreadArguments {
    /// The table
    table: String,
    /// The number of buckets; ignored with --cancel
    #[arg(value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), required_unless_present = "cancel")]
    spread: Option<u16>,
    /// Cancel an unfinished change; the table keeps its buckets
    #[arg(long)]
    cancel: bool,
    /// The account of the table
    #[arg(long, default_value = DEVELOPMENT_ACCOUNT)]
    account: String,
    #[command(flatten)]
    storage: DatabaseSettings,
    #[command(flatten)]
    form: OutputForm,
}

pub(crate) fn run(command: &TableCommand) -> Result<(), TransferEnd> {
    match command {
        TableCommand::Respread(arguments) => run_respread(arguments),
        TableCommand::Deleted(arguments) => deleted::list(arguments),
        TableCommand::Undelete(arguments) => deleted::undelete(arguments),
        TableCommand::Purge(arguments) => deleted::purge(arguments),
    }
}

fn run_respread(arguments: &RespreadArguments) -> Result<(), TransferEnd> {
    let table = TableName::parse(&arguments.table)
        .map_err(|_| TransferEnd::Usage(format!("the table name {:?} is not valid", arguments.table)))?;
    let database = database::read(&arguments.storage).map_err(|Problem(text)| TransferEnd::Usage(text))?;
    let Database::Postgres { options, .. } = &database else {
        return Err(TransferEnd::Usage(
            "--database-url: SQLite keeps each table in one bucket, so `rowhouse table respread` needs \
             PostgreSQL"
                .into(),
        ));
    };
    match arguments.spread.filter(|_| !arguments.cancel) {
        Some(spread) => change(arguments, options, &table, spread),
        None => cancel(arguments, options, &table),
    }
}

fn change(
    arguments: &RespreadArguments,
    options: &PgOptions,
    table: &TableName,
    spread: u16,
) -> Result<(), TransferEnd> {
    let began = Instant::now();
    let mut last = None;
    let mut on_progress = |event: RespreadEvent| print_progress(event, &mut last);
    let request = RespreadRequest { table: table.in_account(&arguments.account), spread };
    let summary = block_on(async {
        let interrupted = interruption()?;
        tokio::select! {
            done = respread::respread(options, request, Ticks::now, &mut on_progress) => {
                Ok(Some(done.map_err(DatabaseError::Respread)?))
            }
            () = interrupted => Ok(None),
        }
    })?;
    let Some(summary) = summary else {
        eprintln!(
            "rowhouse: servers still use the table, and record its changes: run the same command again to \
             go on, or with --cancel to give up"
        );
        return Err(TransferEnd::Interrupted("interrupted".into()));
    };
    let text = described(&arguments.table, spread, &summary, began.elapsed());
    let value = json!({
        "table": arguments.table, "spread": spread, "changed": !summary.was_there, "copied": summary.copied,
        "changes": summary.changes, "compared": summary.compared, "pauseMs": summary.pause.as_millis(),
    });
    Ok(arguments.form.print(&text, &value)?)
}

fn described(table: &str, spread: u16, summary: &RespreadSummary, took: Duration) -> String {
    let buckets = if spread == 1 { "1 bucket".to_owned() } else { format!("{spread} buckets") };
    if summary.was_there {
        return format!("{table} has {buckets} already.");
    }
    format!(
        "{table} has {buckets} now: copied {} entities and {} changes, and compared {}, in {:.1} s. Its writers \
         waited {} ms.",
        summary.copied,
        summary.changes,
        summary.compared,
        took.as_secs_f64(),
        summary.pause.as_millis(),
    )
}

fn cancel(arguments: &RespreadArguments, options: &PgOptions, table: &TableName) -> Result<(), TransferEnd> {
    block_on(async {
        let done = respread::cancel(options, table.in_account(&arguments.account), Ticks::now()).await;
        Ok(done.map_err(DatabaseError::Respread)?)
    })?;
    let text = format!("{} keeps its buckets; a server removes the copy.", arguments.table);
    Ok(arguments.form.print(&text, &json!({ "table": arguments.table, "cancelled": true }))?)
}

/// Prints progress on standard error at intervals, in addition to the summary on standard output.
fn print_progress(event: RespreadEvent, last: &mut Option<Instant>) {
    let is_due = last.is_none_or(|last| last.elapsed() >= PROGRESS);
    if !is_due && matches!(event, RespreadEvent::Copied { .. } | RespreadEvent::Compared { .. }) {
        return;
    }
    *last = Some(Instant::now());
    match event {
        RespreadEvent::Resumed => eprintln!("going on with an unfinished change"),
        RespreadEvent::Copied { entities } => eprintln!("copied {entities} entities"),
        RespreadEvent::ChangesCopied { keys } => eprintln!("copied {keys} changes"),
        RespreadEvent::Compared { entities } => {
            eprintln!("compared {entities} entities, of the table and of the copy")
        }
    }
}
