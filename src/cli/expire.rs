//! `rowhouse expire …`: manages rules that delete entities some time after they were written.

use clap::{Args, Subcommand};

use super::database::{DatabaseArguments, TableDatabase};
use super::output::{Done, aligned, block_on};
use crate::operator::expiry::{self, NewRule};
use crate::operator::reports::{ExpiryReport, NamedTable};
use crate::operator::{OperatorError, durations};
use crate::protocol::model::Ticks;
use crate::protocol::model::ticks::TICKS_PER_SECOND;
use crate::store::TableExpiry;

const SET_EXAMPLES: &str = "Examples:
  rowhouse expire set Logs --after 30d               # 30 days after they were last written
  rowhouse expire set Sessions --at Expires          # at the DateTime property Expires
  rowhouse expire set Orders --at Closed --plus 52w --every 6h

Servers delete in small steps. Clients see an expired entity until a server deletes it, which takes at most the time of
--every and of one pass over the table.";

/// The subcommands of `rowhouse expire`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExpireCommand {
    /// Set when the entities of a table expire: at an age, or at the time in one of their properties
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArguments),
    /// List the tables whose entities expire, with the progress of the deletion
    #[command(after_help = "Example:\n  rowhouse expire list --json")]
    List(ExpiryListArguments),
    /// Remove the rule of a table, so that its entities no longer expire
    #[command(after_help = "Example:\n  rowhouse expire clear Logs")]
    Clear(ClearArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// The table
    table: String,
    #[command(flatten)]
    rule: NewRule,
    #[command(flatten)]
    of: TableDatabase,
}

#[derive(Debug, Args)]
pub(crate) struct ExpiryListArguments {
    /// List only the tables of this account
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    database: DatabaseArguments,
}

#[derive(Debug, Args)]
pub(crate) struct ClearArguments {
    /// The table
    table: String,
    #[command(flatten)]
    of: TableDatabase,
}

/// Runs the command.
pub(crate) fn run(command: &ExpireCommand) -> Done {
    match command {
        ExpireCommand::Set(arguments) => set(arguments),
        ExpireCommand::List(arguments) => list(arguments),
        ExpireCommand::Clear(ClearArguments { table, of }) => {
            block_on(async { Ok(expiry::clear(&of.database.open().await?, &of.account, table).await?) })?;
            let cleared = NamedTable { account: &of.account, table };
            of.database.form.print(&format!("The entities of {table} stay."), &cleared)
        }
    }
}

fn set(arguments: &SetArguments) -> Done {
    let SetArguments { table, rule, of } = arguments;
    // Checks the rule before the database is opened.
    rule.read()?;
    let now = Ticks::now();
    let set = block_on(async {
        Ok(expiry::set(&of.database.open().await?, &of.account, table, rule, now).await?)
    })?;
    let when = match rule {
        NewRule { after: Some(after), .. } => format!("{after} after they were written"),
        NewRule { at, plus: Some(plus), .. } => {
            format!("{plus} after the time in {}", at.as_deref().unwrap_or_default())
        }
        NewRule { at, .. } => format!("at the time in {}", at.as_deref().unwrap_or_default()),
    };
    let every = durations::display(set.rule.pause);
    let text = format!("The entities of {table} expire {when}; servers look every {every}.");
    of.database.form.print(&text, &ExpiryReport::new(&set, now))
}

fn list(arguments: &ExpiryListArguments) -> Done {
    let ExpiryListArguments { account, database } = arguments;
    let rules = block_on(async {
        let store = database.open_to_read().await?;
        Ok(store.expiries(account.as_deref()).await.map_err(OperatorError::from)?)
    })?;
    let now = Ticks::now();
    let lines: Vec<_> = rules.iter().map(|rule| columns(rule, now)).collect();
    let text = if lines.is_empty() { "No entities expire.".into() } else { aligned(&lines) };
    database.form.print(&text, &rules.iter().map(|rule| ExpiryReport::new(rule, now)).collect::<Vec<_>>())
}

fn columns(of: &TableExpiry, now: Ticks) -> [String; 2] {
    let TableExpiry { account, table, rule, sweep, .. } = of;
    let delay = durations::display(rule.delay);
    let when = match &rule.property {
        None => format!("after {delay}"),
        Some(property) => format!("at {property} plus {delay}"),
    };
    let swept =
        sweep.clean.map_or("not swept yet".to_owned(), |at| format!("swept until {}", at.to_canonical()));
    let behind = match expiry::behind(of, now) / TICKS_PER_SECOND {
        0 => String::new(),
        seconds => format!(", {seconds} s behind"),
    };
    let (every, expired) = (durations::display(rule.pause), sweep.expired);
    [format!("{account}/{table}"), format!("{when}, every {every}; {swept}{behind}, {expired} deleted")]
}
