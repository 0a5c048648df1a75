//! The command line.

mod account;
mod endpoint;
mod output;
mod parse;
mod serve;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use account::AccountCommand;
use output::Problem;
use parse::{Refused, parse};

use crate::config::Settings;

/// The Azure Table storage API, self-hosted, on PostgreSQL or SQLite.
///
/// Without a command, `serve` is meant.
#[derive(Debug, Parser)]
#[command(name = "rowhouse", version, args_conflicts_with_subcommands = true)]
struct Line {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Answer requests until told to stop
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Settings>),
    /// Add, list, rotate, disable, enable and remove accounts that are kept in the database
    #[command(subcommand)]
    Account(Box<AccountCommand>),
}

const SERVE_EXAMPLES: &str = "Examples:
  rowhouse serve
  rowhouse serve --listen 127.0.0.1:10002 --database-url sqlite:///var/lib/rowhouse/tables.db
  DATABASE_URL=postgres://rowhouse@localhost/rowhouse rowhouse serve --master-key-file master.key";

impl Line {
    /// What else is wrong with the settings of a server.
    fn mistakes(&self) -> Option<String> {
        let settings = match &self.command {
            None => &self.settings,
            Some(Command::Serve(settings)) => settings,
            Some(_) => return None,
        };
        settings.read().err().map(|mistakes| mistakes.to_string())
    }
}

/// Runs the program: reads `.env`, then the command line, then does as told.
pub fn run() -> ExitCode {
    if let Err(problem) = load_dotenv() {
        return fail(&problem);
    }
    let line = match parse(std::env::args_os().collect()) {
        Ok(line) => line,
        Err(Refused::Line(error))
            if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) =>
        {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(Refused::Line(error)) => return fail(&first_line(&error)),
        Err(Refused::Values(mistakes)) => return fail(&mistakes),
    };
    let done = match &line.command {
        None => serve::run(&line.settings).map_err(Problem::from),
        Some(Command::Serve(settings)) => serve::run(settings).map_err(Problem::from),
        Some(Command::Account(command)) => account::run(command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Problem(text)) => fail(&text),
    }
}

/// Says each line of what went wrong.
fn fail(problem: &str) -> ExitCode {
    problem.lines().for_each(|line| eprintln!("rowhouse: {line}"));
    ExitCode::FAILURE
}

/// The first paragraph of what clap says, on one line.
fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}

/// Reads `.env` in the working directory. Variables that are already set win.
fn load_dotenv() -> Result<(), String> {
    match dotenvy::from_path(".env") {
        Ok(()) => Ok(()),
        Err(error) if error.not_found() => Ok(()),
        Err(dotenvy::Error::LineParse(_, at)) => Err(format!(".env: not understood at character {at}")),
        Err(error) => Err(format!(".env: {error}")),
    }
}
