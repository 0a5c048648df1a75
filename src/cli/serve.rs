//! `rowhouse serve`: runs the server.

use std::io::{IsTerminal as _, Write as _};

use crate::protocol::auth::accounts::connection_string;
use crate::server::config::{Config, LogFormat, Mistakes, Settings};
use crate::server::start::{self, ConsoleAddress, ListeningServer, READY, ServeError};
use crate::service::EXPLANATIONS;

pub(crate) fn run(settings: &Settings) -> Result<(), ServeError> {
    let config = settings.read()?;
    start_logging(settings)?;
    warn_of_idle(settings, &config);
    start::run(&config, |listening| {
        announce(&config, listening, settings.log_format);
        Ok(())
    })
}

pub(crate) fn start_logging(settings: &Settings) -> Result<(), Mistakes> {
    // The program logs start and stop itself. Invalid HTTP from clients is not logged as a server error,
    // because its text may contain a signature.
    let explanations = if settings.explain_errors { "info" } else { "off" };
    let directives = format!(
        "actix_server=warn,actix_http=off,rusqlite_migration=warn,{},{EXPLANATIONS}={explanations}",
        settings.log
    );
    let filter = settings.log_filter(&directives)?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // A failed write to standard error is not reported there, because the report would panic.
        .log_internal_errors(false);
    match settings.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
    Ok(())
}

/// Logs a warning for each setting that has no effect.
pub(crate) fn warn_of_idle(settings: &Settings, config: &Config) {
    for line in settings.list_idle(config) {
        tracing::warn!("{line}");
    }
}

/// Prints the address of the server with its database, the connection string, and the address of the console,
/// on one line each.
fn announce(config: &Config, listening: &ListeningServer, format: LogFormat) {
    let (name, key) = match config.accounts.sample() {
        // Only the well-known key may be printed.
        Some((name, key)) if config.is_development => (name, key),
        Some((name, _)) => (name, "<key>".to_owned()),
        None => ("<account>", "<key>".to_owned()),
    };
    let warning =
        if config.is_development { " (the well-known development account: anyone can use it)" } else { "" };
    let server = format!("{}://{}", if config.tls.is_some() { "https" } else { "http" }, listening.address);
    let mut lines = format!(
        "{READY} {server}, storing in {}\nConnection string{warning}: {}\n",
        config.database.display(),
        connection_string(&server, name, &key),
    );
    let mut out = std::io::stdout().lock();
    if let Some(console) = &listening.console {
        let is_read_by_a_person = out.is_terminal() && format == LogFormat::Text;
        lines.push_str(&console_line(console, is_read_by_a_person));
    }
    let _ = out.write_all(lines.as_bytes());
    let _ = out.flush();
}

/// Returns the line with the address of the console. The token is only for a terminal, never for a log file.
fn console_line(console: &ConsoleAddress, is_read_by_a_person: bool) -> String {
    let url = &console.url;
    match &console.generated_token {
        Some(token) if is_read_by_a_person => format!("Console: {url}#token={token}\n"),
        Some(_) => {
            format!(
                "Console: {url} (set ROWHOUSE_ADMIN_TOKEN to sign in: a generated token is shown only on a terminal)\n"
            )
        }
        None => format!("Console: {url} (sign in with the admin token)\n"),
    }
}
