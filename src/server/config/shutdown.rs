//! How a server stops.

use clap::Args;

/// The settings of a shutdown, as given.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Shutdown")]
pub(crate) struct ShutdownSettings {
    /// Seconds from SIGTERM on for which everything is still answered, while /readyz is 503 and
    /// clients are asked to connect elsewhere
    #[arg(long, env = "ROWHOUSE_DRAIN_SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub drain_seconds: u16,

    /// Seconds that requests in flight may take to finish at shutdown
    #[arg(long, env = "ROWHOUSE_SHUTDOWN_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub shutdown_seconds: u16,

    /// Stop when standard input ends, as it does with the process that holds the other end of its
    /// pipe; what it reads is ignored
    #[arg(long)]
    pub until_stdin_closes: bool,
}
