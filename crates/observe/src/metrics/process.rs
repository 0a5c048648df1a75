//! Start time, memory and open files of this process.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

struct Start {
    at: Instant,
    /// Seconds since 1970.
    unix: f64,
}

static START: OnceLock<Start> = OnceLock::new();

fn start() -> &'static Start {
    START.get_or_init(|| {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        Start { at: Instant::now(), unix }
    })
}

/// Records the start of the process, on the first call.
pub fn started() {
    start();
}

pub fn uptime() -> f64 {
    start().at.elapsed().as_secs_f64()
}

/// Returns the start time, in seconds since 1970.
pub(crate) fn start_time() -> f64 {
    start().unix
}

/// Returns the resident memory in bytes; `None` on systems without Linux's `/proc`.
pub(crate) fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns the number of open files and connections; `None` on systems without Linux's `/proc`.
pub(crate) fn open_files() -> Option<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    // One of them is the directory that is being read.
    Some((entries.count() as u64).saturating_sub(1))
}
