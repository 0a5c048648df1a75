//! Defines and parses the command line. All invalid values are reported, whereas clap stops at the first one.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use super::account::AccountCommand;
use super::check::CheckArguments;
use super::expire::ExpireCommand;
use super::explain::ExplainArguments;
use super::healthcheck::HealthcheckArguments;
use super::index::IndexCommand;
use super::maintenance::{BackupArguments, DistributeArguments, MigrateArguments};
use super::output::OutputForm;
use super::sas::SasCommand;
use super::table::TableCommand;
use super::transfer::{CopyArguments, CountArguments, DeleteArguments, FollowArguments, VerifyArguments};
use super::view::ViewCommand;
use crate::server::config::Settings;

/// Self-hosted server for the Azure Table storage REST API, on PostgreSQL or SQLite.
///
/// Without a command, rowhouse runs `serve`.
#[derive(Debug, Parser)]
#[command(name = "rowhouse", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub settings: Settings,
}

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run the server until SIGTERM or SIGINT
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Settings>),
    /// Create or update the schema of the database, and exit
    #[command(after_help = MIGRATE_EXAMPLES)]
    Migrate(Box<MigrateArguments>),
    /// Distribute the tables over the nodes of a Citus cluster, while all servers are stopped
    #[command(after_help = DISTRIBUTE_EXAMPLES)]
    Distribute(Box<DistributeArguments>),
    /// Copy a SQLite database to a new file, even while a server runs
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(Box<BackupArguments>),
    /// Check the settings and the database for problems; exit with status 1 if there are any
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Box<CheckArguments>),
    /// Manage the accounts in the database: their keys, limits and extended queries
    #[command(subcommand)]
    Account(Box<AccountCommand>),
    /// Create, list, drop and suggest property indexes, which make filters fast
    #[command(subcommand)]
    Index(Box<IndexCommand>),
    /// Print or inspect a shared access signature, without contacting the server
    #[command(subcommand)]
    Sas(Box<SasCommand>),
    /// Explain how the server answers a query, and measure the cost of one page
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainArguments>),
    /// Check whether the server with these settings is ready; for containers
    #[command(after_help = "Example:\n  rowhouse healthcheck --listen 127.0.0.1:10002")]
    Healthcheck(HealthcheckArguments),
    /// Copy tables between endpoints, databases and dumps; an interrupted copy continues when it is run again
    #[command(after_help = COPY_EXAMPLES)]
    Copy(Box<CopyArguments>),
    /// Copy tables and then what changes in them, until the users of FROM move to TO
    #[command(after_help = FOLLOW_EXAMPLES)]
    Follow(Box<FollowArguments>),
    /// Compare the tables of two places; exit with status 4 if they differ
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Box<VerifyArguments>),
    /// Count the entities of tables
    #[command(after_help = COUNT_EXAMPLES)]
    Count(Box<CountArguments>),
    /// Delete the entities of a table that match a filter
    #[command(after_help = DELETE_EXAMPLES)]
    DeleteWhere(Box<DeleteArguments>),
    /// Delete entities automatically, at an age or at the time in one of their properties
    #[command(subcommand)]
    Expire(Box<ExpireCommand>),
    /// Print the statements that create SQL views of tables, with typed columns
    #[command(subcommand)]
    View(Box<ViewCommand>),
    /// Restore or purge deleted tables, or change into how many buckets PostgreSQL divides a table
    #[command(subcommand)]
    Table(Box<TableCommand>),
    /// Print the version
    #[command(after_help = "Example:\n  rowhouse version --json")]
    Version(OutputForm),
    /// Print the completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Write the manual page of each command into a folder; for packages
    #[command(hide = true)]
    Man {
        /// The folder, which must exist
        folder: PathBuf,
    },
}

const EXAMPLES: &str = "Examples:
  rowhouse                                   # serves on 127.0.0.1:10002, stores in rowhouse.db
  rowhouse check                             # checks the settings and the database
  rowhouse account add myaccount --master-key-file master.key
  rowhouse sas table People --permissions r --expiry 12h --account myaccount --master-key-file master.key

Every command has its own --help.";
const MIGRATE_EXAMPLES: &str = "Example:
  rowhouse migrate --database-url postgres://owner@localhost/rowhouse";
const DISTRIBUTE_EXAMPLES: &str = "Examples:
  rowhouse distribute --dry-run --database-url postgres://rowhouse@worker1/rowhouse --migrate-url postgres://owner@coordinator/rowhouse
  rowhouse distribute --shards 64 --database-url postgres://rowhouse@coordinator/rowhouse";
const BACKUP_EXAMPLES: &str = "Examples:
  rowhouse backup copy.db
  rowhouse backup --json --database-url sqlite:///var/lib/rowhouse/rowhouse.db /backups/monday.db";
const CHECK_EXAMPLES: &str = "Examples:
  rowhouse check
  rowhouse check --json --database-url postgres://rowhouse@localhost/rowhouse";
const COMPLETIONS_EXAMPLES: &str = "Examples:
  rowhouse completions bash > /etc/bash_completion.d/rowhouse
  rowhouse completions zsh > ~/.zfunc/_rowhouse
  rowhouse completions fish > ~/.config/fish/completions/rowhouse.fish";
const COPY_EXAMPLES: &str = "Examples:
  rowhouse copy env:AZURE_CONNECTION_STRING sqlite://rowhouse.db#myaccount
  rowhouse copy 'UseDevelopmentStorage=true' dump:/backups/monday --progress plain
  rowhouse copy dump:/backups/monday postgres://rowhouse@localhost/rowhouse --verify

Exit status: 0 everything was copied; 1 failed; 2 wrong arguments; 3 some entities were rejected;
4 --verify found differences; 130 interrupted. After 1 and 130, the same command continues the copy.";
const FOLLOW_EXAMPLES: &str = "Examples:
  rowhouse follow env:AZURE_CONNECTION_STRING env:ROWHOUSE_CONNECTION_STRING
  rowhouse follow env:AZURE_CONNECTION_STRING env:ROWHOUSE_CONNECTION_STRING --finish

After all writers of FROM have stopped, SIGUSR1 or the Enter key requests the last round, as --finish does.
Exit status: 0 FROM and TO are proved to be equal; 1 failed; 2 wrong arguments; 3 TO did not accept some
entities; 4 not proved equal; 130 interrupted. After 1 and 130, the same command continues.";
const VERIFY_EXAMPLES: &str = "Example:
  rowhouse verify env:AZURE_CONNECTION_STRING env:ROWHOUSE_CONNECTION_STRING

Exit status: 0 equal; 1 failed; 2 wrong arguments; 4 different; 130 interrupted.";
const EXPLAIN_EXAMPLES: &str = "Examples:
  rowhouse explain People \"PartitionKey eq 'jones'\"
  rowhouse explain People 'Age gt 30' --account myaccount --json";
const COUNT_EXAMPLES: &str = "Example:
  rowhouse count sqlite://rowhouse.db --filter \"PartitionKey eq 'a'\"";
const DELETE_EXAMPLES: &str = "Example:
  rowhouse delete-where sqlite://rowhouse.db Logs \"Timestamp lt datetime'2026-01-01T00:00:00Z'\" --dry-run";
const SERVE_EXAMPLES: &str = "Examples:
  rowhouse serve
  rowhouse serve --listen 127.0.0.1:10002 --database-url sqlite:///var/lib/rowhouse/rowhouse.db
  DATABASE_URL=postgres://rowhouse@localhost/rowhouse rowhouse serve --master-key-file master.key";

impl Arguments {
    /// Returns the mistakes in a server's settings that clap does not detect.
    pub(crate) fn mistakes(&self) -> Option<String> {
        let settings = match &self.command {
            None => &self.settings,
            Some(Command::Serve(settings)) => settings,
            Some(Command::Check(arguments)) => &arguments.settings,
            Some(_) => return None,
        };
        settings.read().err().map(|mistakes| mistakes.to_string())
    }
}

/// The reason why a command line was not accepted.
pub(crate) enum Refused {
    /// An error from clap, or a request for help or the version.
    Arguments(clap::Error),
    /// Invalid values, one per line.
    Values(String),
}

pub(crate) fn parse(mut arguments: Vec<OsString>) -> Result<Arguments, Refused> {
    let mut command = Arguments::command();
    let mut mistakes: Vec<String> = Vec::new();
    let mut left_out: Vec<String> = Vec::new();
    loop {
        let read = parse_by_precedence(&mut command, &arguments);
        let error = match read.and_then(|mut matches| Arguments::from_arg_matches_mut(&mut matches)) {
            Ok(line) if mistakes.is_empty() => return Ok(line),
            Ok(line) => {
                mistakes.extend(line.mistakes());
                return Err(Refused::Values(mistakes.join("\n")));
            }
            Err(error) => error,
        };
        let flag = match error.kind() {
            ErrorKind::InvalidValue | ErrorKind::ValueValidation => flag_of(&error),
            _ => None,
        };
        match flag {
            // The command line is parsed again without the flag.
            Some(flag) if !left_out.contains(&flag) => {
                mistakes.push(invalid_value(&error, &flag, &arguments, &command));
                arguments = without(arguments, &flag);
                command = without_variable(command, &flag);
                left_out.push(flag);
            }
            // The argument is missing only because this loop left it out. Its invalid value is in `mistakes` already.
            _ if error.kind() == ErrorKind::MissingRequiredArgument && !mistakes.is_empty() => {
                return Err(Refused::Values(mistakes.join("\n")));
            }
            _ if mistakes.is_empty() => return Err(Refused::Arguments(error)),
            _ => {
                mistakes.push(first_line(&error));
                return Err(Refused::Values(mistakes.join("\n")));
            }
        }
    }
}

/// Returns clap's message and its tips on one line, without the usage.
pub(crate) fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let on_one_line = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut paragraphs = text.split("\n\n").map(on_one_line);
    let mut line = paragraphs.next().unwrap_or_default().trim_start_matches("error: ").to_owned();
    for tip in paragraphs.filter_map(|paragraph| paragraph.strip_prefix("tip: ").map(str::to_owned)) {
        line.push_str("; ");
        line.push_str(&tip);
    }
    if matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand) {
        line.push_str("; try --help");
    }
    line
}

/// Describes an invalid value. It comes from an environment variable unless the flag is among the arguments.
fn invalid_value(error: &clap::Error, flag: &str, arguments: &[OsString], command: &clap::Command) -> String {
    let line = first_line(error).replace("invalid digit found in string", "not a whole number");
    let is_given = arguments.iter().any(|argument| argument == flag || has_value(argument, flag));
    let variable = if is_given { None } else { variable_of(command, flag) };
    match (variable, error.get(ContextKind::InvalidValue), line.split_once("': ")) {
        (Some(name), Some(ContextValue::String(value)), Some((_, reason))) => {
            format!("{name}={value}: {reason}")
        }
        (Some(name), ..) => format!("{name}: {line}"),
        (None, ..) => line,
    }
}

/// Returns the environment variable that sets an option, if it is set.
fn variable_of(command: &clap::Command, flag: &str) -> Option<String> {
    let is_flag = |argument: &&clap::Arg| argument.get_long() == flag.strip_prefix("--");
    let own = command.get_arguments().find(is_flag).and_then(|argument| argument.get_env());
    let own =
        own.filter(|name| std::env::var_os(name).is_some()).map(|name| name.to_string_lossy().into_owned());
    own.or_else(|| command.get_subcommands().find_map(|inner| variable_of(inner, flag)))
}

/// Parses the command line and the environment. If a flag gives a setting, `command` ignores environment variables
/// that give the setting in another way (see [`alternatives`]).
pub(crate) fn parse_by_precedence(
    command: &mut clap::Command,
    arguments: &[OsString],
) -> Result<ArgMatches, clap::Error> {
    loop {
        let matches = command.clone().try_get_matches_from(arguments)?;
        let overridden = overridden(innermost(&matches));
        if overridden.is_empty() {
            return Ok(matches);
        }
        for id in overridden {
            *command = without_variable(command.clone(), &id.replace('_', "-"));
        }
    }
}

fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, inner)| innermost(inner))
}

/// Returns the options that an environment variable sets although a flag sets an alternative.
fn overridden(matches: &ArgMatches) -> Vec<String> {
    let is_set_from = |id: &str, from: ValueSource| {
        matches.try_contains_id(id).unwrap_or(false) && matches.value_source(id) == Some(from)
    };
    let flags = matches.ids().map(|id| id.as_str()).filter(|id| is_set_from(id, ValueSource::CommandLine));
    flags.flat_map(alternatives).filter(|id| is_set_from(id, ValueSource::EnvVariable)).collect()
}

/// Returns the alternatives of an option: its value inline or in a file.
fn alternatives(id: &str) -> Vec<String> {
    let (base, other) = match id.strip_suffix("_file") {
        Some(base) => (base, base.to_owned()),
        None => (id, format!("{id}_file")),
    };
    // A connection string contains an account and its key.
    let others: &[&str] = match base {
        "connection_string" => &["account", "key", "key_file"],
        "key" => &["connection_string", "connection_string_file"],
        _ => &[],
    };
    others.iter().map(|id| (*id).to_owned()).chain([other]).collect()
}

/// Returns the flag (`--name`) with the invalid value.
fn flag_of(error: &clap::Error) -> Option<String> {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => {
            argument.split([' ', '=']).next().filter(|flag| flag.starts_with("--")).map(str::to_owned)
        }
        _ => None,
    }
}

/// Returns whether an argument is this flag with a value, as in `--name=value`.
fn has_value(argument: &OsStr, flag: &str) -> bool {
    argument.to_str().and_then(|text| text.strip_prefix(flag)).is_some_and(|rest| rest.starts_with('='))
}

fn without(arguments: Vec<OsString>, flag: &str) -> Vec<OsString> {
    let mut kept = Vec::with_capacity(arguments.len());
    let mut given = arguments.into_iter();
    while let Some(argument) = given.next() {
        if argument == flag {
            given.next();
        } else if !has_value(&argument, flag) {
            kept.push(argument);
        }
    }
    kept
}

/// Returns the command with this option changed: it ignores its environment variable and is not required.
fn without_variable(command: clap::Command, flag: &str) -> clap::Command {
    let name = flag.trim_start_matches('-');
    let command = command.mut_args(|argument| {
        if argument.get_long() == Some(name) {
            argument.env(Resettable::Reset).required(false)
        } else {
            argument
        }
    });
    command.mut_subcommands(|inner| without_variable(inner, flag))
}
