//! How a thread lets all others go first.

/// Gives way to threads that somebody waits for, on Linux. What refuses it leaves things as
/// they are; elsewhere the lowest priority would be the whole program's.
pub fn stand_back() {
    #[cfg(target_os = "linux")]
    if let Err(error) = linux::stand_back() {
        tracing::debug!(%error, "the thread that carries SQLite's log over keeps its priority");
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    const LOWEST: i32 = 19;
    /// Nanoseconds. The longest that Linux takes.
    const SLICE: u64 = 100_000_000;

    /// The lowest priority is not enough. Whoever runs keeps the processor for its slice
    /// of time, or for that of the thread that wants it, where that is shorter, and Linux
    /// looks for the end of it every few milliseconds. But a thread whose slice is shorter
    /// does not wait at all. So this one has a longer slice than any other, since 6.12;
    /// Linux before that takes the priority alone.
    pub fn stand_back() -> io::Result<()> {
        let attributes = libc::sched_attr {
            size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or_default(),
            sched_policy: libc::SCHED_OTHER.cast_unsigned(),
            sched_flags: 0,
            sched_nice: LOWEST,
            sched_priority: 0,
            sched_runtime: SLICE,
            sched_deadline: 0,
            sched_period: 0,
        };
        // SAFETY: the system reads `size` bytes of the attributes, of the calling thread, and
        // keeps nothing of them.
        let refused = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if refused == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    fn nice() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(") ").unwrap();
        after_name.split(' ').nth(16).unwrap().to_owned()
    }

    #[test]
    fn it_is_the_calling_thread_alone_that_stands_back() {
        let before = nice();
        let other = std::thread::spawn(|| {
            super::linux::stand_back().unwrap();
            nice()
        });
        assert_eq!((other.join().unwrap().as_str(), nice()), ("19", before));
    }
}
