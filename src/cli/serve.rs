//! `rowhouse serve`.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;

use tracing_subscriber::EnvFilter;

use crate::protocol::auth::accounts::connection_string;
use crate::server::config::{Config, ConfigError, LogFormat, Mistakes, Settings};
use crate::server::start::{self, READY, ServeError};
use crate::service::EXPLANATIONS;

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(settings: &Settings) -> Result<(), ServeError> {
    let config = settings.read()?;
    start_logging(settings)?;
    warn_of_idle(settings, &config);
    start::run(&config, |address| {
        announce(&config, address);
        Ok(())
    })
}

/// Starts logging as configured.
///
/// # Errors
/// [`ConfigError::Log`].
pub(crate) fn start_logging(settings: &Settings) -> Result<(), Mistakes> {
    // We log start and stop ourselves, and invalid HTTP from clients is not an error of the server: its text may
    // hold a signature.
    let explanations = if settings.explain_errors { "info" } else { "off" };
    let quiet = format!(
        "actix_server=warn,actix_http=off,rusqlite_migration=warn,{},{EXPLANATIONS}={explanations}",
        settings.log
    );
    let filter = EnvFilter::try_new(quiet).map_err(|_| ConfigError::Log(settings.log.clone()))?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        // If standard error is closed, reporting that on standard error would panic.
        .log_internal_errors(false);
    match settings.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
    Ok(())
}

/// Logs a warning for each setting that has no effect.
pub(crate) fn warn_of_idle(settings: &Settings, config: &Config) {
    for line in settings.idle(config) {
        tracing::warn!("{line}");
    }
}

/// Prints one line with the address of the server, its database, and a connection string.
fn announce(config: &Config, address: SocketAddr) {
    let (name, key) = match config.accounts.sample() {
        // Only the well-known key is printed.
        Some((name, key)) if config.is_development => (name, key),
        Some((name, _)) => (name, "<key>".to_owned()),
        None => ("<account>", "<key>".to_owned()),
    };
    let warning =
        if config.is_development { " (the well-known development account: anyone can use it)" } else { "" };
    let server = format!("{}://{address}", if config.tls.is_some() { "https" } else { "http" });
    let mut out = std::io::stdout().lock();
    let _ = writeln!(
        out,
        "{READY} {server}, storing in {}. Connection string{warning}: {}",
        config.database.display(),
        connection_string(&server, name, &key),
    );
    let _ = out.flush();
}
