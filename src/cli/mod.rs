//! Runs the command line.

mod account;
mod azurite;
mod check;
mod command_line;
mod database;
mod endpoint;
mod expire;
mod explain;
mod findings;
mod healthcheck;
mod index;
mod maintenance;
mod output;
mod sas;
mod serve;
mod table;
mod transfer;
mod view;

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::ErrorKind;

use azurite::ProgramName;
use command_line::{Arguments, Command, Refused, first_line, parse};
use output::{Problem, TransferEnd, printable, written};

use crate::server::file::read_text;

/// Prefixes of the environment variables that are settings of this program.
const OUR_VARIABLES: [&str; 3] = ["ROWHOUSE_", "DATABASE_URL", "OTEL_"];

/// Runs the program: reads `.env` and the command line, and runs the command.
pub fn run() -> ExitCode {
    if let Err(problem) = load_dotenv() {
        return fail(&problem);
    }
    if let Some(named) = std::env::args_os().next().and_then(|program| ProgramName::parse(&program)) {
        return match azurite::run(named, std::env::args_os()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(azurite::StartProblem::Arguments(error)) => refuse(&error),
            Err(azurite::StartProblem::Serve(error)) => fail(&error.to_string()),
        };
    }
    let line = match parse(std::env::args_os().collect()) {
        Ok(line) => line,
        Err(Refused::Arguments(error)) => return usage_status(refuse(&error)),
        Err(Refused::Values(mistakes)) => return usage_status(fail(&mistakes)),
    };
    let Err(ended) = execute(&line) else { return ExitCode::SUCCESS };
    let (status, text) = ended.report();
    if let Some(text) = text {
        fail(&text);
    }
    status
}

fn execute(line: &Arguments) -> Result<(), TransferEnd> {
    match &line.command {
        None => serve::run(&line.settings).map_err(Problem::from)?,
        Some(Command::Serve(settings)) => serve::run(settings).map_err(Problem::from)?,
        Some(Command::Account(command)) => account::run(command)?,
        Some(Command::Migrate(arguments)) => maintenance::migrate(arguments)?,
        Some(Command::Distribute(arguments)) => maintenance::distribute(arguments)?,
        Some(Command::Backup(arguments)) => maintenance::backup(arguments)?,
        Some(Command::Check(arguments)) => check::run(arguments)?,
        Some(Command::Index(command)) => index::run(command)?,
        Some(Command::Sas(command)) => sas::run(command)?,
        Some(Command::Explain(arguments)) => explain::run(arguments)?,
        Some(Command::Healthcheck(arguments)) => healthcheck::run(arguments)?,
        Some(Command::Copy(arguments)) => transfer::copy(arguments)?,
        Some(Command::Follow(arguments)) => transfer::follow(arguments)?,
        Some(Command::Verify(arguments)) => transfer::verify(arguments)?,
        Some(Command::Count(arguments)) => transfer::count(arguments)?,
        Some(Command::DeleteWhere(arguments)) => transfer::delete_where(arguments)?,
        Some(Command::Expire(command)) => expire::run(command)?,
        Some(Command::View(command)) => view::run(command)?,
        Some(Command::Table(command)) => table::run(command)?,
        Some(Command::Version(form)) => {
            let version = env!("CARGO_PKG_VERSION");
            form.print(&format!("rowhouse {version}"), &serde_json::json!({ "version": version }))?;
        }
        Some(Command::Completions { shell }) => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "rowhouse", &mut script);
            let mut output = io::stdout().lock();
            written(output.write_all(&script).and_then(|()| output.flush()))?;
        }
        Some(Command::Man { folder }) => clap_mangen::generate_to(Arguments::command(), folder)
            .map_err(|error| Problem(format!("{}: {error}", folder.display())))?,
    }
    Ok(())
}

/// Returns the exit status for invalid arguments, which transfer commands distinguish from failures.
fn usage_status(status: ExitCode) -> ExitCode {
    let is_transfer = |command: std::ffi::OsString| {
        ["copy", "follow", "verify", "count", "delete-where", "table"].iter().any(|name| command == *name)
    };
    match std::env::args_os().nth(1).is_some_and(is_transfer) && status == ExitCode::FAILURE {
        true => ExitCode::from(2),
        false => status,
    }
}

/// Prints the output of clap: help, the version or an error.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            match written(error.print().and_then(|()| io::stdout().flush())) {
                Ok(()) => ExitCode::SUCCESS,
                Err(Problem(text)) => fail(&text),
            }
        }
        // For `account` without a subcommand, clap prints the list of subcommands.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::FAILURE
        }
        _ => fail(&first_line(error)),
    }
}

/// Prints each line of the problem. Write errors are ignored, because the exit status reports the failure too.
fn fail(problem: &str) -> ExitCode {
    let mut errors = std::io::stderr().lock();
    for line in printable(problem).lines() {
        let _ = writeln!(errors, "rowhouse: {line}");
    }
    ExitCode::FAILURE
}

/// Loads `.env` from the working directory. Variables that are already set take precedence.
fn load_dotenv() -> Result<(), String> {
    let text = match read_text(Path::new(".env")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!(".env: {error}")),
    };
    let variables = our_variables(&text).map_err(|error| match error {
        dotenvy::Error::LineParse(line, at) => {
            let number = text.lines().position(|of_text| line.starts_with(of_text.trim_end())).unwrap_or_default() + 1;
            format!(
                ".env, line {number}: not understood at character {at}; put a value with spaces, `$` or `#` in single \
                 quotes"
            )
        }
        error => format!(".env: {error}"),
    })?;
    for (name, value) in variables.iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
        // SAFETY: no other thread has been started yet.
        unsafe { std::env::set_var(name, value) };
    }
    Ok(())
}

/// Returns the settings of this program in a `.env` file. Other variables, such as those of proxies, may be
/// meant for other programs, or may come from an untrusted author.
fn our_variables(text: &str) -> Result<Vec<(String, String)>, dotenvy::Error> {
    let is_ours = |name: &str| OUR_VARIABLES.iter().any(|prefix| name.starts_with(prefix));
    let all = dotenvy::from_read_iter(text.as_bytes());
    all.filter(|line| line.as_ref().map_or(true, |(name, _)| is_ours(name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_variables_are_taken_from_a_file() {
        let text = "HTTPS_PROXY=http://stranger\nROWHOUSE_LISTEN=127.0.0.1:1\nPATH=/tmp\nDATABASE_URL=sqlite://t.db\n\
                    LD_PRELOAD=x\nOTEL_SERVICE_NAME='s'\nROWHOUSE_LISTEN=127.0.0.1:2\n";
        let names: Vec<String> = our_variables(text).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["ROWHOUSE_LISTEN", "DATABASE_URL", "OTEL_SERVICE_NAME", "ROWHOUSE_LISTEN"]);
        assert!(our_variables("HTTPS_PROXY=x\n'").is_err());
    }
}
