//! The command line.

mod account;
mod azurite;
mod backup;
mod check;
mod cluster;
mod cluster_findings;
mod database;
mod deleted;
mod distribute;
mod endpoint;
mod expire;
mod explain;
mod finding;
mod healthcheck;
mod index;
mod inspect;
mod migrate;
mod output;
mod parse;
mod sas;
mod serve;
mod signer;
mod suggest;
mod table;
mod transfer;
mod versions;
mod view;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use account::AccountCommand;
use azurite::Named;
use backup::BackupArguments;
use check::CheckArguments;
use cluster::ClusterCommand;
use distribute::DistributeArguments;
use expire::ExpireCommand;
use explain::ExplainArguments;
use healthcheck::HealthcheckArguments;
use index::IndexCommand;
use migrate::MigrateArguments;
use output::{OutputForm, Problem};
use parse::{Refused, parse};
use sas::SasCommand;
use table::TableCommand;
use transfer::{CopyArguments, CountArguments, DeleteArguments, TransferEnd, VerifyArguments};
use view::ViewCommand;

use crate::server::config::Settings;
use crate::server::file::read_text;

/// The Azure Table storage API, self-hosted, on PostgreSQL or SQLite.
///
/// Without a command, it runs `serve`.
#[derive(Debug, Parser)]
#[command(name = "rowhouse", version, args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server until SIGTERM or SIGINT
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Settings>),
    /// Create or update the schema of the database, and exit
    #[command(after_help = MIGRATE_EXAMPLES)]
    Migrate(Box<MigrateArguments>),
    /// Distribute the tables over the nodes of a Citus cluster, even while servers run
    #[command(after_help = DISTRIBUTE_EXAMPLES)]
    Distribute(Box<DistributeArguments>),
    /// Show the nodes of a Citus cluster; add, drain and remove them, and move shards
    #[command(subcommand)]
    Cluster(Box<ClusterCommand>),
    /// Copy a SQLite database to a new file, even while a server runs
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(Box<BackupArguments>),
    /// Check the settings and the database for problems; exits with status 1 if there are any
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Box<CheckArguments>),
    /// Add, list, rotate, disable, enable, limit, remove and reseal accounts that are stored in the
    /// database
    #[command(subcommand)]
    Account(Box<AccountCommand>),
    /// Make, list, drop and suggest property indexes, which make filters fast
    #[command(subcommand)]
    Index(Box<IndexCommand>),
    /// Print or inspect a shared access signature, without contacting the server
    #[command(subcommand)]
    Sas(Box<SasCommand>),
    /// Tell how a query will be answered, and what a page costs
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(Box<ExplainArguments>),
    /// Check whether the server with these settings is ready; for containers
    #[command(after_help = "Example:\n  rowhouse healthcheck --listen 127.0.0.1:10002")]
    Healthcheck(HealthcheckArguments),
    /// Copy tables between endpoints, databases and dumps; can be interrupted and resumed
    #[command(after_help = COPY_EXAMPLES)]
    Copy(Box<CopyArguments>),
    /// Compare the tables of two places; exits with status 4 if they differ
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Box<VerifyArguments>),
    /// Count the entities of tables
    #[command(after_help = COUNT_EXAMPLES)]
    Count(Box<CountArguments>),
    /// Delete the entities of a table that match a filter
    #[command(after_help = DELETE_EXAMPLES)]
    DeleteWhere(Box<DeleteArguments>),
    /// Let the entities of a table expire, by their age or at a time that they carry
    #[command(subcommand)]
    Expire(Box<ExpireCommand>),
    /// Make SQL views of tables, with typed columns
    #[command(subcommand)]
    View(Box<ViewCommand>),
    /// Bring deleted tables back, or purge them; change the number of buckets of a table
    #[command(subcommand)]
    Table(Box<TableCommand>),
    /// Print the version
    #[command(after_help = "Example:\n  rowhouse version --json")]
    Version(OutputForm),
    /// Print a script that completes commands and options in a shell
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
  rowhouse distribute --concurrently --shards 64 --database-url postgres://rowhouse@coordinator/rowhouse";
const BACKUP_EXAMPLES: &str = "Examples:
  rowhouse backup copy.db
  rowhouse backup --json --database-url sqlite:///var/lib/rowhouse/tables.db /backups/monday.db";
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

Exit status: 0 all was copied; 1 failed; 2 wrong arguments; 3 some entities were rejected;
4 --verify found differences; 130 interrupted. Continue with --resume after 1 and 130.";
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
  rowhouse serve --listen 127.0.0.1:10002 --database-url sqlite:///var/lib/rowhouse/tables.db
  DATABASE_URL=postgres://rowhouse@localhost/rowhouse rowhouse serve --master-key-file master.key";

impl Arguments {
    /// Returns the mistakes in the settings of a server that clap does not find.
    fn mistakes(&self) -> Option<String> {
        let settings = match &self.command {
            None => &self.settings,
            Some(Command::Serve(settings)) => settings,
            Some(Command::Check(arguments)) => &arguments.settings,
            Some(_) => return None,
        };
        settings.read().err().map(|mistakes| mistakes.to_string())
    }
}

/// Runs the program: reads `.env` and the command line, and runs the command.
pub fn run() -> ExitCode {
    if let Err(problem) = load_dotenv() {
        return fail(&problem);
    }
    if let Some(named) = std::env::args_os().next().and_then(|program| Named::of(&program)) {
        return match azurite::run(named, std::env::args_os()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(azurite::StartProblem::Arguments(error)) => refuse(&error),
            Err(azurite::StartProblem::Serve(error)) => fail(&error.to_string()),
        };
    }
    let line = match parse(std::env::args_os().collect()) {
        Ok(line) => line,
        Err(Refused::Arguments(error)) => return usage(refuse(&error)),
        Err(Refused::Values(mistakes)) => return usage(fail(&mistakes)),
    };
    let done = match &line.command {
        None => serve::run(&line.settings).map_err(Problem::from),
        Some(Command::Serve(settings)) => serve::run(settings).map_err(Problem::from),
        Some(Command::Account(command)) => account::run(command),
        Some(Command::Migrate(arguments)) => migrate::run(arguments),
        Some(Command::Distribute(arguments)) => distribute::run(arguments),
        Some(Command::Cluster(command)) => return end(cluster::run(command)),
        Some(Command::Backup(arguments)) => backup::run(arguments),
        Some(Command::Check(arguments)) => check::run(arguments),
        Some(Command::Index(command)) => index::run(command),
        Some(Command::Sas(command)) => sas::run(command),
        Some(Command::Explain(arguments)) => explain::run(arguments),
        Some(Command::Healthcheck(arguments)) => healthcheck::run(arguments),
        Some(Command::Copy(arguments)) => return end(transfer::copy(arguments)),
        Some(Command::Verify(arguments)) => return end(transfer::verify(arguments)),
        Some(Command::Count(arguments)) => return end(transfer::count(arguments)),
        Some(Command::DeleteWhere(arguments)) => return end(transfer::delete_where(arguments)),
        Some(Command::Expire(command)) => expire::run(command),
        Some(Command::View(command)) => view::run(command),
        Some(Command::Table(command)) => return end(table::run(command)),
        Some(Command::Version(form)) => {
            let version = env!("CARGO_PKG_VERSION");
            form.print(&format!("rowhouse {version}"), &serde_json::json!({ "version": version }))
        }
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "rowhouse", &mut script);
            // A reader that closes the pipe early is not an error.
            let _ = std::io::stdout().write_all(&script);
            Ok(())
        }
        Some(Command::Man { folder }) => clap_mangen::generate_to(Arguments::command(), folder)
            .map_err(|error| Problem(format!("{}: {error}", folder.display()))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Problem(text)) => fail(&text),
    }
}

/// Prints why a command that moves data did not end well, and returns its exit status.
fn end(done: Result<(), TransferEnd>) -> ExitCode {
    let Err(ended) = done else { return ExitCode::SUCCESS };
    let (status, text) = ended.report();
    if let Some(text) = text {
        fail(&text);
    }
    status
}

/// Returns the exit status of wrong arguments, which commands that move data tell from failures.
fn usage(status: ExitCode) -> ExitCode {
    let moves = |command: std::ffi::OsString| {
        ["copy", "verify", "count", "delete-where", "table", "cluster"].iter().any(|name| command == *name)
    };
    match std::env::args_os().nth(1).is_some_and(moves) && status == ExitCode::FAILURE {
        true => ExitCode::from(2),
        false => status,
    }
}

/// Prints what clap reports: help, the version or an error.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        // `account` without a subcommand: clap prints the list of subcommands.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::FAILURE
        }
        _ => fail(&first_line(error)),
    }
}

/// Prints each line of the problem. Ignores write errors: the exit status reports the failure too.
fn fail(problem: &str) -> ExitCode {
    let mut said = std::io::stderr().lock();
    for line in problem.lines() {
        let _ = writeln!(said, "rowhouse: {line}");
    }
    ExitCode::FAILURE
}

/// Returns the first paragraph of clap's message on one line.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// Loads `.env` from the working directory. Variables that are already set win.
fn load_dotenv() -> Result<(), String> {
    let text = match read_text(Path::new(".env")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!(".env: {error}")),
    };
    match dotenvy::from_read(text.as_bytes()) {
        Ok(()) => Ok(()),
        Err(dotenvy::Error::LineParse(_, at)) => Err(format!(".env: not understood at character {at}")),
        Err(error) => Err(format!(".env: {error}")),
    }
}
