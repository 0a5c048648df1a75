//! What the operating system says of this process.

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

/// Takes this moment for the start of the process, unless one was taken before.
pub(crate) fn started() {
    start();
}

/// Seconds since the start.
pub(crate) fn uptime() -> f64 {
    start().at.elapsed().as_secs_f64()
}

/// The start, in seconds since 1970.
pub(crate) fn start_time() -> f64 {
    start().unix
}

/// Bytes of memory that the process holds; `None` where the system does not
/// say it the way that Linux does.
pub(crate) fn resident_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Files and connections that the process holds open; `None` as above.
pub(crate) fn open_files() -> Option<u64> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    // The folder that is being read is one of them.
    Some((entries.count() as u64).saturating_sub(1))
}
