//! A thread of the lowest priority that repeats one task whenever it is woken.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

/// The handle of the thread, which ends when this is dropped.
pub(crate) struct CheckpointThread {
    wake: SyncSender<()>,
    done: Receiver<()>,
    is_busy: bool,
}

impl CheckpointThread {
    /// Starts the thread; it runs `work` once for each [`CheckpointThread::wake`].
    pub(crate) fn start(mut work: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let (report, done) = sync_channel(1);
        std::thread::Builder::new().name("sqlite-log".into()).spawn(move || {
            lower_priority();
            while woken.recv().is_ok() {
                work();
                // Never full: the previous message was received before this work began.
                let _ = report.try_send(());
            }
        })?;
        Ok(Self { wake, done, is_busy: false })
    }

    /// Whether the last task is still running.
    pub(crate) fn is_busy(&mut self) -> bool {
        if self.is_busy {
            self.is_busy = matches!(self.done.try_recv(), Err(TryRecvError::Empty));
        }
        self.is_busy
    }

    /// Waits until it is not busy, at most for this long.
    pub(crate) fn wait(&mut self, limit: Duration) {
        if self.is_busy {
            self.is_busy = matches!(self.done.recv_timeout(limit), Err(RecvTimeoutError::Timeout));
        }
    }

    /// Wakes the thread. Must be called only while it is not busy.
    pub(crate) fn wake(&mut self) {
        // Never full: this is the only sender. If the thread has ended, it stays idle.
        self.is_busy = self.wake.try_send(()).is_ok();
    }
}

/// Gives the calling thread the lowest priority (nice 19), on Linux. A system that refuses it
/// leaves the priority as it is. On other systems a priority belongs to the whole process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 19) {
        tracing::debug!(%error, "the checkpoint thread keeps its priority");
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    fn nice() -> String {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(") ").unwrap();
        after_name.split(' ').nth(16).unwrap().to_owned()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_the_calling_thread_gets_the_lowest_priority() {
        let before = nice();
        let other = std::thread::spawn(|| {
            super::lower_priority();
            nice()
        });
        assert_eq!((other.join().unwrap().as_str(), nice()), ("19", before));
    }
}
