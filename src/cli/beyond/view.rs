//! `rowhouse view …`: SQL views of tables, with typed columns.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::place::{TablesDatabase, TablesPlace};
use crate::cli::output::{Done, block_on};
use crate::operator::BeyondError;
use crate::operator::views::{self, ViewRequest};
use crate::protocol::model::Ticks;

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
    /// PostgreSQL: schema of the view, created if it does not exist [default: the account]
    #[arg(long)]
    schema: Option<String>,
    /// PostgreSQL: role that may read the view; may be given several times
    #[arg(long, value_name = "ROLE")]
    grant: Vec<String>,
    /// Read all entities to find the columns
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    place: TablesPlace,
}

#[derive(Debug, Args)]
pub(crate) struct RefreshArguments {
    /// The table [default: all tables of the account that have a view]
    table: Option<String>,
    /// Read all entities to find the columns, and remove columns whose property no entity has any more
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    place: TablesPlace,
}

#[derive(Debug, Args)]
pub(crate) struct ViewListArguments {
    /// Only the views of this account
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    database: TablesDatabase,
}

#[derive(Debug, Args)]
pub(crate) struct DropArguments {
    /// The table
    table: String,
    #[command(flatten)]
    place: TablesPlace,
}

/// Runs the command.
///
/// # Errors
/// [`Problem`](crate::cli::output::Problem), to be shown.
pub(crate) fn run(command: &ViewCommand) -> Done {
    match command {
        ViewCommand::Create(arguments) => create(arguments),
        ViewCommand::Refresh(arguments) => refresh(arguments),
        ViewCommand::List(arguments) => list(arguments),
        ViewCommand::Drop(DropArguments { table, place }) => {
            block_on(async { Ok(views::drop(&place.database.open().await?, &place.account, table).await?) })?;
            let shown = json!({ "account": place.account, "table": table });
            place.database.form.print(&format!("Dropped the view of {table}."), &shown)
        }
    }
}

fn create(arguments: &CreateArguments) -> Done {
    let CreateArguments { table, schema, grant, full, place } = arguments;
    let request = ViewRequest { schema: schema.clone(), grants: grant.clone(), is_full: *full };
    let made = block_on(async {
        let store = place.database.open().await?;
        Ok(views::put(&store, &place.account, table, &request, Ticks::now(), &mut progress()).await?)
    })?;
    place.database.form.print(&line(&made), &made)
}

fn refresh(arguments: &RefreshArguments) -> Done {
    let RefreshArguments { table, full, place } = arguments;
    let done = block_on(async {
        let store = place.database.open().await?;
        let table = table.as_deref();
        Ok(views::refresh(&store, &place.account, table, *full, Ticks::now(), &mut progress()).await?)
    })?;
    place.database.form.print(&lines(&done), &Value::Array(done.clone()))
}

fn list(arguments: &ViewListArguments) -> Done {
    let found = block_on(async {
        let store = arguments.database.open_to_read().await?;
        Ok(store.views(arguments.account.as_deref()).await.map_err(BeyondError::from)?)
    })?;
    let shown: Vec<Value> = found.iter().map(views::shown).collect();
    arguments.database.form.print(&lines(&shown), &Value::Array(shown.clone()))
}

fn lines(views: &[Value]) -> String {
    let lines: Vec<String> = views.iter().map(line).collect();
    if lines.is_empty() { "There are no views.".into() } else { lines.join("\n") }
}

fn line(view: &Value) -> String {
    let text = |name: &str| view[name].as_str().unwrap_or_default().to_owned();
    let name = match view["schema"].as_str() {
        Some(schema) => format!("{schema}.\"{}\"", text("view")),
        None => text("view"),
    };
    let columns = view["columns"].as_array().map_or(&[][..], Vec::as_slice);
    let mixed: Vec<&str> = columns
        .iter()
        .filter(|column| column["kind"] == "mixed")
        .filter_map(|column| column["name"].as_str())
        .collect();
    let mut line = format!(
        "{name} shows {} with {} columns for properties of {} entities",
        text("table"),
        columns.len(),
        view["entitiesLookedAt"]
    );
    if !mixed.is_empty() {
        line.push_str(&format!("; of mixed types, so shown as text: {}", mixed.join(", ")));
    }
    if let Some(left_out) = view["leftOut"].as_u64().filter(|many| *many > 0) {
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
            let _ = writeln!(stderr().lock(), "rowhouse: looked at {entities} entities in {seconds} s");
        }
    }
}
