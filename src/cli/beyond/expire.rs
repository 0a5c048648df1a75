//! `rowhouse expire …`: rules by which entities are deleted some time after they were written.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::place::{TablesDatabase, TablesPlace};
use crate::cli::output::{Done, block_on};
use crate::operator::expiry::{self, RuleText};
use crate::protocol::model::Ticks;
use crate::store::TableExpiry;

const SET_EXAMPLES: &str = "Examples:
  rowhouse expire set Logs --after 30d               # 30 days after they were last written
  rowhouse expire set Sessions --at Expires          # at the DateTime property Expires
  rowhouse expire set Orders --at Closed --plus 52w --every 6h

Servers delete in small steps. Expired entities are seen until they are deleted: up to the time of --every and of a
pass over the table later.";

/// The subcommands of `rowhouse expire`.
#[derive(Debug, Subcommand)]
pub(crate) enum ExpireCommand {
    /// Let the entities of a table expire, by their age or at a time that they carry
    #[command(after_help = SET_EXAMPLES)]
    Set(SetArguments),
    /// List the tables whose entities expire, and how far the deletion has come
    #[command(after_help = "Example:\n  rowhouse expire list --json")]
    List(ExpiryListArguments),
    /// Let the entities of a table stay from now on
    #[command(after_help = "Example:\n  rowhouse expire clear Logs")]
    Clear(ClearArguments),
}

#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// The table
    table: String,
    /// Age by Timestamp at which entities expire, such as 90s, 15m, 12h, 30d or 4w
    #[arg(long, value_name = "DURATION", required_unless_present = "at", conflicts_with_all = ["at", "plus"])]
    after: Option<String>,
    /// DateTime property at whose time they expire; entities without it, or with another type, stay
    #[arg(long, value_name = "PROPERTY")]
    at: Option<String>,
    /// How long after that time
    #[arg(long, value_name = "DURATION", requires = "at")]
    plus: Option<String>,
    /// Time from the start of a pass over the table to that of the next, at least [default: a
    /// fiftieth of the age, 1m to 6h]
    #[arg(long, value_name = "DURATION")]
    every: Option<String>,
    #[command(flatten)]
    place: TablesPlace,
}

#[derive(Debug, Args)]
pub(crate) struct ExpiryListArguments {
    /// Only the tables of this account
    #[arg(long)]
    account: Option<String>,
    #[command(flatten)]
    database: TablesDatabase,
}

#[derive(Debug, Args)]
pub(crate) struct ClearArguments {
    /// The table
    table: String,
    #[command(flatten)]
    place: TablesPlace,
}

/// Runs the command.
///
/// # Errors
/// [`Problem`](crate::cli::output::Problem), to be shown.
pub(crate) fn run(command: &ExpireCommand) -> Done {
    match command {
        ExpireCommand::Set(arguments) => set(arguments),
        ExpireCommand::List(arguments) => list(arguments),
        ExpireCommand::Clear(ClearArguments { table, place }) => {
            block_on(async {
                Ok(expiry::clear(&place.database.open().await?, &place.account, table).await?)
            })?;
            let shown = json!({ "account": place.account, "table": table });
            place.database.form.print(&format!("The entities of {table} stay."), &shown)
        }
    }
}

fn set(arguments: &SetArguments) -> Done {
    let SetArguments { table, after, at, plus, every, place } = arguments;
    let rule = RuleText { after: after.clone(), at: at.clone(), plus: plus.clone(), every: every.clone() };
    // Before the database is opened.
    rule.read()?;
    let set = block_on(async {
        Ok(expiry::set(&place.database.open().await?, &place.account, table, &rule, Ticks::now()).await?)
    })?;
    let when = match (after, at) {
        (Some(after), _) => format!("{after} after they were written"),
        (None, at) => {
            let plus = plus.as_ref().map(|plus| format!("{plus} after ")).unwrap_or_default();
            format!("{plus}at the time in {}", at.as_deref().unwrap_or_default()).replace("after at", "after")
        }
    };
    let text = format!("The entities of {table} expire {when}; servers look every {}.", text(&set["every"]));
    place.database.form.print(&text, &set)
}

fn list(arguments: &ExpiryListArguments) -> Done {
    let rules = block_on(async {
        Ok(arguments
            .database
            .open_to_read()
            .await?
            .expiries(arguments.account.as_deref())
            .await
            .map_err(crate::operator::BeyondError::from)?)
    })?;
    let now = Ticks::now();
    let lines: Vec<String> = rules.iter().map(|rule| line(rule, &expiry::shown(rule, now))).collect();
    let printed = if lines.is_empty() { "No entities expire.".into() } else { lines.join("\n") };
    arguments
        .database
        .form
        .print(&printed, &rules.iter().map(|rule| expiry::shown(rule, now)).collect::<Value>())
}

fn line(rule: &TableExpiry, shown: &Value) -> String {
    let when = match &rule.rule.property {
        None => format!("after {}", text(&shown["after"])),
        Some(property) => format!("at {property} plus {}", text(&shown["plus"])),
    };
    let swept =
        shown["sweptUntil"].as_str().map_or("not swept yet".to_owned(), |at| format!("swept until {at}"));
    let behind = shown["behindSeconds"].as_i64().filter(|seconds| *seconds > 0);
    let behind = behind.map(|seconds| format!(", {seconds} s behind")).unwrap_or_default();
    format!(
        "{}/{:<24} {when}, every {}; {swept}{behind}, {} deleted",
        rule.account,
        rule.table,
        text(&shown["every"]),
        rule.sweep.expired
    )
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
