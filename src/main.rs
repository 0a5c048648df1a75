//! See `rowhouse --help`.

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// Answering is mostly small allocations, which glibc spends twice the time on.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    rowhouse::cli::run()
}
