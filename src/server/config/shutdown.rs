//! How a server stops.

use clap::Args;

/// The settings of a shutdown, as given.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Shutdown")]
pub(crate) struct ShutdownSettings {
    /// Seconds after SIGTERM during which the server still answers every request, while /readyz is 503 and
    /// the server asks clients to connect elsewhere
    #[arg(long, env = "ROWHOUSE_DRAIN_SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub drain_seconds: u16,

    /// Seconds that requests in flight may take to finish during shutdown
    #[arg(long, env = "ROWHOUSE_SHUTDOWN_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u16).range(0..=3600))]
    pub shutdown_seconds: u16,

    /// Stop when standard input closes, as it does when the process at the other end of the pipe ends; input
    /// is ignored
    #[arg(long)]
    pub until_stdin_closes: bool,
}
