//! Defines the command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use super::account::AccountCommand;
use super::backup::BackupArguments;
use super::check::CheckArguments;
use super::distribute::DistributeArguments;
use super::expire::ExpireCommand;
use super::explain::ExplainArguments;
use super::healthcheck::HealthcheckArguments;
use super::index::IndexCommand;
use super::migrate::MigrateArguments;
use super::output::OutputForm;
use super::sas::SasCommand;
use super::table::TableCommand;
use super::transfer::{CopyArguments, CountArguments, DeleteArguments, VerifyArguments};
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

/// What the program does.
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
    /// Copy tables between endpoints, databases and dumps; you can interrupt and resume a copy
    #[command(after_help = COPY_EXAMPLES)]
    Copy(Box<CopyArguments>),
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
    /// Restore or purge deleted tables, or change the number of buckets of a table
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
  rowhouse copy env:AZURE_CONNECTION_STRING sqlite://rowhouse.db --to-account myaccount
  rowhouse copy 'UseDevelopmentStorage=true' dump:/backups/monday --progress plain
  rowhouse copy dump:/backups/monday postgres://rowhouse@localhost/rowhouse --verify

Exit status: 0 everything was copied; 1 failed; 2 wrong arguments; 3 some entities were rejected;
4 --verify found differences; 130 interrupted. After 1 and 130, continue with --resume.";
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
    /// Returns mistakes in the settings of a server that clap does not detect.
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
