//! `rowhouse expire …`: manages rules that delete entities some time after they were written.

use clap::{Args, Subcommand};

use super::database::{ListDatabase, NO_TABLES_IN_MEMORY, Opening, TableDatabase, list_or};
use super::output::Done;
use crate::operator::expiry::{self, ExpiryReport, NewRule};
use crate::protocol::model::Ticks;
use crate::store::Store;

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
    List(ListDatabase),
    /// Remove the rule of a table, so that its entities no longer expire
    #[command(after_help = "Example:\n  rowhouse expire clear Logs")]
    Clear(TableDatabase),
}

#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    #[command(flatten)]
    rule: NewRule,
    #[command(flatten)]
    of: TableDatabase,
}

pub(crate) fn run(command: &ExpireCommand) -> Done {
    match command {
        ExpireCommand::Set(SetArguments { rule, of: TableDatabase { table, account, database } }) => {
            // Checks the rule before the database is opened.
            rule.read()?;
            let set = async |store: &Store| expiry::set(store, account, table, rule, Ticks::now()).await;
            database.run(Opening::Change, NO_TABLES_IN_MEMORY, set, |set| {
                let (when, every) = (describe(rule), &set.every);
                format!("The entities of {table} expire {when}; servers look every {every}.")
            })
        }
        ExpireCommand::List(ListDatabase { account, database }) => {
            let list = async |store: &Store| expiry::list(store, account.as_deref(), Ticks::now()).await;
            database.run(Opening::Read, NO_TABLES_IN_MEMORY, list, |rules| {
                list_or("No entities expire.", rules.iter().map(columns).collect())
            })
        }
        ExpireCommand::Clear(TableDatabase { table, account, database }) => {
            let clear = async |store: &Store| expiry::clear(store, account, table).await;
            database.run(Opening::Change, NO_TABLES_IN_MEMORY, clear, |_| {
                format!("The entities of {table} stay.")
            })
        }
    }
}

/// Describes when entities expire by a rule.
fn describe(rule: &NewRule) -> String {
    let at = rule.at.as_deref().unwrap_or_default();
    match (&rule.after, &rule.plus) {
        (Some(after), _) => format!("{after} after they were written"),
        (None, Some(plus)) => format!("{plus} after the time in {at}"),
        (None, None) => format!("at the time in {at}"),
    }
}

fn columns(of: &ExpiryReport) -> [String; 2] {
    let ExpiryReport { account, table, every, expired, .. } = of;
    let (after, plus) = (of.after.as_deref().unwrap_or_default(), of.plus.as_deref().unwrap_or_default());
    let when = match &of.at {
        None => format!("after {after}"),
        Some(property) => format!("at {property} plus {plus}"),
    };
    let swept = of.swept_until.map_or("not swept yet".to_owned(), |at| format!("swept until {at}"));
    let behind = match of.behind_seconds {
        0 => String::new(),
        seconds => format!(", {seconds} s behind"),
    };
    [format!("{account}/{table}"), format!("{when}, every {every}; {swept}{behind}, {expired} deleted")]
}
