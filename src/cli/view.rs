//! `rowhouse view sql`: prints the statements that create SQL views of tables, with typed columns.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::database::{NO_TABLES_IN_MEMORY, Opening, TableDatabase};
use super::output::Done;
use crate::operator::views::{self, PrintedView};
use crate::store::Store;

/// Interval between progress messages.
const PROGRESS_PAUSE: Duration = Duration::from_secs(5);

const SQL_EXAMPLES: &str = "Examples:
  rowhouse view sql People
  rowhouse view sql People --full --account myaccount | psql --single-transaction -v ON_ERROR_STOP=1 URL
  rowhouse view sql People | sqlite3 rowhouse.db

On PostgreSQL the view is ACCOUNT.\"TABLE\"; on SQLite it is ACCOUNT__TABLE, in the same file. Its columns are the
properties of the first 1000 entities and of at least the first 20 entities in each later partition, up to 10000 more.
With --full, they are the properties of all entities. The command writes nothing to the database.";

/// The subcommands of `rowhouse view`.
#[derive(Debug, Subcommand)]
pub(crate) enum ViewCommand {
    /// Print the statements that create the view of a table, for psql or sqlite3
    #[command(after_help = SQL_EXAMPLES)]
    Sql(SqlArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SqlArguments {
    /// Read all entities to find the columns
    #[arg(long)]
    full: bool,
    #[command(flatten)]
    of: TableDatabase,
}

pub(crate) fn run(command: &ViewCommand) -> Done {
    let ViewCommand::Sql(SqlArguments { full, of: TableDatabase { table, account, database } }) = command;
    let print = async |store: &Store| views::print(store, account, table, *full, &mut progress()).await;
    let printed = database.ask(Opening::Read, NO_TABLES_IN_MEMORY, print)?;
    let mut text = printed.script.sql.clone();
    if printed.left_out > 0 {
        text.push_str(&format!(
            "\n-- {} properties have no column, because a view cannot have more columns.",
            printed.left_out
        ));
    }
    database.form.print(&text, &to_json(account, &printed))
}

fn to_json(account: &str, printed: &PrintedView) -> Value {
    let PrintedView { definition, script, left_out } = printed;
    json!({
        "account": account,
        "table": definition.table,
        "schema": script.schema,
        "view": script.name,
        "columns": definition.columns,
        "entitiesLookedAt": definition.seen,
        "full": definition.is_full,
        "leftOut": left_out,
        "sql": script.sql,
    })
}

/// Prints the number of entities read so far on standard error.
fn progress() -> impl FnMut(u64) + Send {
    let (begun, mut last) = (Instant::now(), Instant::now());
    let pause = if stderr().is_terminal() { PROGRESS_PAUSE / 5 } else { PROGRESS_PAUSE };
    move |entities| {
        if last.elapsed() >= pause {
            last = Instant::now();
            let seconds = begun.elapsed().as_secs();
            // A failure to print progress is ignored.
            let _ = writeln!(stderr().lock(), "rowhouse: examined {entities} entities in {seconds} s");
        }
    }
}
