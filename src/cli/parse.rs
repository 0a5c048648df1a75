//! Parses the command line and reports all invalid values, whereas clap stops at the first one.

use std::ffi::{OsStr, OsString};

use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};

use super::command_line::Arguments;

/// The reason why a command line was not accepted.
pub(crate) enum Refused {
    /// An error from clap, or a request for help or the version.
    Arguments(clap::Error),
    /// Invalid values, one per line.
    Values(String),
}

/// Parses the command line and the environment.
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
            // Parse again as if the flag had not been given.
            Some(flag) if !left_out.contains(&flag) => {
                mistakes.push(invalid_value(&error, &flag, &arguments, &command));
                arguments = without(arguments, &flag);
                command = without_variable(command, &flag);
                left_out.push(flag);
            }
            // The missing argument is one that was removed as invalid.
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

/// Parses the command line and the environment. A flag takes precedence over environment variables for an
/// alternative of the same setting; the command then ignores these variables.
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
    let comes = |id: &str, from: ValueSource| {
        matches.try_contains_id(id).unwrap_or(false) && matches.value_source(id) == Some(from)
    };
    let flags = matches.ids().map(|id| id.as_str()).filter(|id| comes(id, ValueSource::CommandLine));
    flags.flat_map(alternatives).filter(|id| comes(id, ValueSource::EnvVariable)).collect()
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

/// Returns the command with an option that ignores its environment variable.
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
