//! What commands print, and how they fail.

use std::io::{ErrorKind, Write as _};

use clap::Args;
use serde_json::Value;

/// How to print.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct OutputForm {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl OutputForm {
    /// Prints the text, or what it says as JSON on one line.
    ///
    /// # Errors
    /// Where it cannot be written: on a full disk, say.
    pub(crate) fn print(self, text: &str, value: &Value) -> Done {
        let mut out = std::io::stdout().lock();
        let written = if self.json { writeln!(out, "{value}") } else { writeln!(out, "{text}") };
        match written.and_then(|()| out.flush()) {
            // Whoever reads has read enough, as `head` does.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(Problem(format!("standard output: {error}"))),
            Ok(()) => Ok(()),
        }
    }
}

/// Says what is no failure, on standard error.
pub(crate) fn warn(text: &str) {
    // Where nobody can read it, nothing is lost but the warning.
    let _ = writeln!(std::io::stderr().lock(), "rowhouse: warning: {text}");
}

/// Why a command failed, a line each.
#[derive(Debug)]
pub(crate) struct Problem(pub String);

impl<E: std::error::Error> From<E> for Problem {
    fn from(error: E) -> Self {
        Problem(error.to_string())
    }
}

/// Result of a command.
pub(crate) type Done<T = ()> = Result<T, Problem>;

/// Runs what waits for a database.
///
/// # Errors
/// Those of the work, and of the operating system.
pub(crate) fn block_on<T>(work: impl Future<Output = Done<T>>) -> Done<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
