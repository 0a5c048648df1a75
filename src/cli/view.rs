//! `rowhouse view …`: SQL views of tables, with typed columns.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::json;

use super::database::{DatabaseArguments, TableDatabase};
use super::output::{Done, block_on};
use crate::operator::views::{self, NewView};
use crate::operator::{OperatorError, to_json};
use crate::protocol::model::Ticks;
use crate::store::{ColumnKind, SqlView, ViewDefinition};

/// Interval of lines of progress.
const LINE_PAUSE: Duration = Duration::from_secs(5);

const CREATE_EXAMPLES: &str = "Examples:
  rowhouse view create People
  rowhouse view create People --full --grant grafana    # on PostgreSQL

On PostgreSQL the view is ACCOUNT.\"TABLE\"; on SQLite it is ACCOUNT__TABLE, in the same file. Its columns are the
properties of the first 1000 entities and of at least the first 20 in each partition after them, up to 10000 more, or
with --full those of all entities.";

/// The subcommands of `rowhouse view`.
#[derive(Debug, Subcommand)]
pub(crate) enum ViewCommand {
    /// Make a view of a table for programs that use SQL, or change the existing one
    #[command(after_help = CREATE_EXAMPLES)]
    Create(CreateArguments),
    /// Add columns to views for properties that have appeared since
    #[command(
        after_help = "Examples:\n  rowhouse view refresh People\n  rowhouse view refresh --full   # all views of the account"
    )]
    Refresh(RefreshArguments),
    /// List the views and their columns
    #[command(after_help = "Example:\n  rowhouse view list --json")]
    List(ViewListArguments),
    /// Drop the view of a table
    #[command(after_help = "Example:\n  rowhouse view drop People")]
    Drop(DropArguments),
}

#[derive(Debug, Args)]
pub(crate) struct CreateArguments {
    /// The table
    table: String,
    #[command(flatten)]
    view: NewView,
    #[command(flatten)]
    of: TableDatabase,
}

#[derive(Debug, Args)]
pub(crate) struct RefreshArguments {
    /// The table [default: all tables of the account that have a view]
    table: Option<String>,
    /// Read all entities to find the columns, and remove columns whose property no entity has any more
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    of: TableDatabase,
}

#[derive(Debug, Args)]
pub(crate) struct ViewListArguments {
    /// Only the views of this account
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    database: DatabaseArguments,
}

#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    /// The table
    table: String,
    #[command(flatten)]
    of: TableDatabase,
}

/// Runs the command.
///
/// # Errors
/// [`Problem`](super::output::Problem), to be shown.
pub(crate) fn run(command: &ViewCommand) -> Done {
    match command {
        ViewCommand::Create(arguments) => create(arguments),
        ViewCommand::Refresh(arguments) => refresh(arguments),
        ViewCommand::List(arguments) => list(arguments),
        ViewCommand::Drop(DropArguments { table, of }) => {
            block_on(async { Ok(views::drop(&of.database.open().await?, &of.account, table).await?) })?;
            let dropped = json!({ "account": of.account, "table": table });
            of.database.form.print(&format!("Dropped the view of {table}."), &dropped)
        }
    }
}

fn create(arguments: &CreateArguments) -> Done {
    let CreateArguments { table, view, of } = arguments;
    let (made, left_out) = block_on(async {
        let store = of.database.open().await?;
        Ok(views::put(&store, &of.account, table, view, Ticks::now(), &mut progress()).await?)
    })?;
    of.database.form.print(&line(&made, left_out), &to_json::made_view(&made, left_out))
}

fn refresh(arguments: &RefreshArguments) -> Done {
    let RefreshArguments { table, full, of } = arguments;
    let done = block_on(async {
        let store = of.database.open().await?;
        let table = table.as_deref();
        Ok(views::refresh(&store, &of.account, table, *full, Ticks::now(), &mut progress()).await?)
    })?;
    let lines = done.iter().map(|(view, left_out)| line(view, *left_out));
    let values = done.iter().map(|(view, left_out)| to_json::made_view(view, *left_out));
    of.database.form.print(&text(lines), &values.collect())
}

fn list(arguments: &ViewListArguments) -> Done {
    let ViewListArguments { account, database } = arguments;
    let found = block_on(async {
        let store = database.open_to_read().await?;
        Ok(store.views(account.as_deref()).await.map_err(OperatorError::from)?)
    })?;
    database
        .form
        .print(&text(found.iter().map(|view| line(view, 0))), &found.iter().map(to_json::view).collect())
}

fn text(lines: impl Iterator<Item = String>) -> String {
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() { "There are no views.".into() } else { lines.join("\n") }
}

fn line(view: &SqlView, left_out: usize) -> String {
    let ViewDefinition { schema, name, columns, seen, .. } = &view.definition;
    let name = schema.as_ref().map_or_else(|| name.clone(), |schema| format!("{schema}.\"{name}\""));
    let mixed = columns.iter().filter(|column| column.kind == ColumnKind::Mixed);
    let mixed: Vec<&str> = mixed.map(|column| column.name.as_str()).collect();
    let mut line = format!(
        "{name} shows {} with {} columns for properties of {seen} entities",
        view.table,
        columns.len()
    );
    if !mixed.is_empty() {
        line.push_str(&format!("; of mixed types, so shown as text: {}", mixed.join(", ")));
    }
    if left_out > 0 {
        line.push_str(&format!("; {left_out} properties have no column, since there are too many"));
    }
    line
}

/// Shows on standard error how many entities were read.
fn progress() -> impl FnMut(u64) + Send {
    let (begun, mut last) = (Instant::now(), Instant::now());
    let pause = if stderr().is_terminal() { LINE_PAUSE / 5 } else { LINE_PAUSE };
    move |entities| {
        if last.elapsed() >= pause {
            last = Instant::now();
            let seconds = begun.elapsed().as_secs();
            // Progress that nobody can read is no reason to fail.
            let _ = writeln!(stderr().lock(), "rowhouse: examined {entities} entities in {seconds} s");
        }
    }
}
