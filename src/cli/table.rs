//! `rowhouse table …`: changes the buckets of a table, and manages deleted tables.

use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;

use super::database::{self, ListDatabase, NO_TABLES_IN_MEMORY, Opening, TableDatabase, list_or};
use super::output::{OutputForm, Problem, TransferEnd, block_on, interruption};
use super::transfer::require_confirmation;
use crate::operator::deleted::{self, DeletedChoice, DeletedTableReport, MAX_LISTED, UndeletedTable};
use crate::protocol::auth::accounts::DEVELOPMENT_ACCOUNT;
use crate::protocol::model::{TableName, Ticks};
use crate::server::config::DatabaseSettings;
use crate::store::database::{Database, DatabaseError};
use crate::store::postgres::{PgOptions, RespreadEvent, RespreadRequest, RespreadSummary, respread};
use crate::store::{DeletedScan, DeletedTable, Store, TableSize};

const RESPREAD_EXAMPLES: &str = "Examples:
  rowhouse table respread Events 8 --database-url postgres://rowhouse@coordinator/rowhouse
  rowhouse table respread Events 8 --cancel --database-url postgres://rowhouse@coordinator/rowhouse

Servers read and write the table meanwhile; writes are slower. At the end, writes wait for less than a
second. All servers must run this version. After an interruption or a crash, run the command again to continue.

Exit status: 0 done; 1 failed; 2 wrong arguments; 130 interrupted.";
const UNDELETE_EXAMPLES: &str = "Examples:
  rowhouse table undelete Orders
  rowhouse table undelete Orders --as OrdersOfMay --newest

Servers keep deleted tables for the time in ROWHOUSE_KEEP_DELETED. On PostgreSQL, --as works from ten minutes after
the deletion on, and all servers must run this version.";
const PURGE_EXAMPLES: &str = "Example:
  rowhouse table purge Orders --number 81064793292668

Servers remove the entities of the table. A purge cannot be undone.";

/// Maximum number of entities to count in each listed table.
const MAX_COUNTED: u32 = 10_000;
/// Pause between two progress messages.
const PROGRESS_PAUSE: Duration = Duration::from_secs(2);

/// The subcommands of `rowhouse table`.
#[derive(Debug, Subcommand)]
pub(crate) enum TableCommand {
    /// Change the number of buckets of a table in PostgreSQL, while servers use the table
    #[command(after_help = RESPREAD_EXAMPLES)]
    Respread(RespreadArguments),
    /// List the deleted tables that can be restored, with their sizes
    #[command(after_help = "Example:\n  rowhouse table deleted --account myaccount --json")]
    Deleted(ListDatabase),
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

/// A deleted table.
#[derive(Debug, Args)]
pub(crate) struct DeletedName {
    /// Choose the table that was deleted last, if several deleted tables have this name
    #[arg(long)]
    newest: bool,
    /// Choose the table with this number, which `rowhouse table deleted` prints
    #[arg(long, conflicts_with = "newest")]
    number: Option<i64>,
    #[command(flatten)]
    of: TableDatabase,
}

#[derive(Debug, Args)]
pub(crate) struct UndeleteArguments {
    #[command(flatten)]
    deleted: DeletedName,
    /// Restore the table under another name
    #[arg(long = "as", value_name = "NAME")]
    new_name: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PurgeArguments {
    #[command(flatten)]
    deleted: DeletedName,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(command: &TableCommand) -> Result<(), TransferEnd> {
    match command {
        TableCommand::Respread(arguments) => run_respread(arguments),
        TableCommand::Deleted(arguments) => list_deleted(arguments),
        TableCommand::Undelete(arguments) => undelete(arguments),
        TableCommand::Purge(arguments) => purge(arguments),
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
    let text = describe_respread(&arguments.table, spread, &summary, began.elapsed());
    let value = json!({
        "table": arguments.table, "spread": spread, "changed": !summary.had_spread, "copied": summary.copied,
        "changes": summary.changes, "compared": summary.compared, "pauseMs": summary.pause.as_millis(),
    });
    Ok(arguments.form.print(&text, &value)?)
}

fn describe_respread(table: &str, spread: u16, summary: &RespreadSummary, took: Duration) -> String {
    let buckets = if spread == 1 { "1 bucket".to_owned() } else { format!("{spread} buckets") };
    if summary.had_spread {
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
    let is_due = last.is_none_or(|last| last.elapsed() >= PROGRESS_PAUSE);
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

impl DeletedName {
    fn choice(&self) -> DeletedChoice {
        match self.number {
            Some(number) => DeletedChoice::Number(number),
            None if self.newest => DeletedChoice::Newest,
            None => DeletedChoice::Only,
        }
    }
}

fn parse_table_name(text: &str) -> Result<TableName, TransferEnd> {
    crate::operator::parse_table_name(text).map_err(|error| TransferEnd::Usage(error.to_string()))
}

fn list_deleted(ListDatabase { account, database }: &ListDatabase) -> Result<(), TransferEnd> {
    let mut tables = database.ask(Opening::Read, NO_TABLES_IN_MEMORY, async |store| {
        let scan =
            DeletedScan { account: account.as_deref(), most: MAX_LISTED + 1, ..DeletedScan::default() };
        let mut tables = Vec::new();
        for table in store.deleted_tables(scan).await? {
            let size = store.deleted_size(table.table_no, MAX_COUNTED).await?;
            tables.push((table, size));
        }
        Ok(tables)
    })?;
    let more = tables.len() > MAX_LISTED as usize;
    tables.truncate(MAX_LISTED as usize);
    let lines = tables.iter().map(|(table, size)| columns(table, *size)).collect();
    let mut text = list_or("No deleted table can be brought back.", lines);
    if more {
        text.push_str(&format!("\nThere are more than these {MAX_LISTED}."));
    }
    let report = |(table, size): &(DeletedTable, Option<TableSize>)| DeletedTableReport::new(table, *size);
    let listed: Vec<_> = tables.iter().map(report).collect();
    Ok(database.form.print(&text, &json!({ "tables": listed, "more": more }))?)
}

fn columns(table: &DeletedTable, size: Option<TableSize>) -> [String; 3] {
    let contents = size.map_or_else(|| "gone meanwhile".into(), describe_size);
    let (deleted, until) = (table.deleted.to_canonical(), table.kept_until.to_canonical());
    [
        table.table_no.to_string(),
        format!("{}/{}", table.account, table.name),
        format!("deleted {deleted}, kept until {until}: {contents}"),
    ]
}

fn describe_size(size: TableSize) -> String {
    let TableSize { entities, bytes, complete } = size;
    let more = if complete { "" } else { "more than " };
    let noun = if entities == 1 { "entity" } else { "entities" };
    format!("{more}{entities} {noun}, {bytes} bytes")
}

fn undelete(arguments: &UndeleteArguments) -> Result<(), TransferEnd> {
    let UndeleteArguments { deleted: DeletedName { of, .. }, new_name } = arguments;
    let name = parse_table_name(&of.table)?;
    let new_name = new_name.as_deref().map(parse_table_name).transpose()?;
    let undelete = async |store: &Store| {
        let found = deleted::find(store, &of.account, &name, arguments.deleted.choice()).await?;
        deleted::undelete(store, found, new_name, Ticks::now()).await
    };
    let undeleted = of.database.ask(Opening::Change, NO_TABLES_IN_MEMORY, undelete)?;
    of.database.form.print(&describe_undeleted(&undeleted), &undeleted)?;
    match undeleted.indexes_left_out {
        0 => Ok(()),
        left_out => Err(TransferEnd::Failed(format!(
            "the table is back without {left_out} of its indexes: the table or the database has the maximum \
             number of indexes"
        ))),
    }
}

fn describe_undeleted(undeleted: &UndeletedTable) -> String {
    let mut text = format!("The table {} is back.", undeleted.table);
    if undeleted.indexes > 0 {
        text.push_str(&format!(" Servers build its indexes again: {}.", undeleted.indexes));
    }
    if undeleted.expires {
        text.push_str(" Its entities expire as before.");
    }
    text
}

fn purge(arguments: &PurgeArguments) -> Result<(), TransferEnd> {
    let PurgeArguments { deleted: named, yes } = arguments;
    let of = &named.of;
    let name = parse_table_name(&of.table)?;
    let (found, size) = of.database.ask(Opening::Read, NO_TABLES_IN_MEMORY, async |store| {
        let found = deleted::find(store, &of.account, &name, named.choice()).await?;
        let size = deleted::try_measure(store, &found).await?;
        Ok((found, size))
    })?;
    let contents = size.map_or_else(|| "an unknown number of entities".to_owned(), describe_size);
    let question = format!(
        "this removes the table {}, deleted {}, with {}, for good",
        found.name,
        found.deleted.to_canonical(),
        contents
    );
    require_confirmation(&question, *yes)?;
    let purged = block_on(async {
        let interrupted = interruption()?;
        let purge = async {
            let store = of.database.open(Opening::Change, NO_TABLES_IN_MEMORY).await?;
            Ok(deleted::purge(&store, &found, Ticks::now()).await?)
        };
        tokio::select! {
            done = purge => done.map(Some),
            () = interrupted => Ok(None),
        }
    })?;
    if purged.is_none() {
        return Err(TransferEnd::Interrupted(
            "interrupted; if `rowhouse table deleted` no longer lists the table, it is being purged".into(),
        ));
    }
    let text = format!("The table {} is being purged, with {contents}.", found.name);
    Ok(of.database.form.print(&text, &DeletedTableReport::new(&found, size))?)
}
