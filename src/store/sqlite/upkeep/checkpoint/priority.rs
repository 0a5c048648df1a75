//! The lowest priority for one thread.

/// Gives the calling thread the lowest priority (nice 19), on Linux. A system that refuses it
/// leaves the priority as it is. Elsewhere a priority belongs to the whole process.
pub(crate) fn lower() {
    #[cfg(target_os = "linux")]
    if let Err(error) = linux::lower() {
        tracing::debug!(%error, "the checkpoint thread keeps its priority");
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use rustix::io;
    use rustix::process::setpriority_process;
    use rustix::thread::gettid;

    const LOWEST: i32 = 19;

    pub(crate) fn lower() -> io::Result<()> {
        setpriority_process(Some(gettid()), LOWEST)
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
    fn only_the_calling_thread_gets_the_lowest_priority() {
        let before = nice();
        let other = std::thread::spawn(|| {
            super::linux::lower().unwrap();
            nice()
        });
        assert_eq!((other.join().unwrap().as_str(), nice()), ("19", before));
    }
}
