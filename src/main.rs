//! See `rowhouse --help`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Requests make many small allocations, for which glibc's allocator takes twice as long.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    rowhouse::cli::run()
}
