//! The command line.

mod azurite;
mod serve;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use azurite::{Named, Problem};

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
    Serve(Box<Settings>),
}

/// Runs the program: reads `.env`, then the command line, then does as told.
pub fn run() -> ExitCode {
    if let Err(problem) = load_dotenv() {
        return fail(&problem);
    }
    if let Some(named) = std::env::args_os().next().and_then(|program| Named::of(&program)) {
        return match azurite::run(named, std::env::args_os()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(Problem::Line(error)) => refuse(&error),
            Err(Problem::Serve(error)) => fail(&error.to_string()),
        };
    }
    let line = match Line::try_parse() {
        Ok(line) => line,
        Err(error) => return refuse(&error),
    };
    let settings = match line.command {
        Some(Command::Serve(settings)) => *settings,
        None => line.settings,
    };
    match serve::run(&settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => fail(&problem.to_string()),
    }
}

/// What clap says, be it an answer or a mistake.
fn refuse(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    fail(&first_line(error))
}

fn fail(problem: &str) -> ExitCode {
    eprintln!("rowhouse: {problem}");
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
