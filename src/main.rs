//! See `rowhouse --help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    rowhouse::cli::run()
}
