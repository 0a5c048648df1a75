//! A low-priority thread that repeats one task whenever it is woken.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use super::priority;

/// The handle of the thread, which ends when this is dropped.
pub(crate) struct Assistant {
    wake: SyncSender<()>,
    done: Receiver<()>,
    is_busy: bool,
}

impl Assistant {
    /// Starts the thread; it runs `work` once for each [`Assistant::wake`].
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(crate) fn start(mut work: impl FnMut() + Send + 'static) -> std::io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let (tell, done) = sync_channel(1);
        std::thread::Builder::new().name("sqlite-log".into()).spawn(move || {
            priority::lower();
            while woken.recv().is_ok() {
                work();
                // Never full: the previous message was received before this work began.
                let _ = tell.try_send(());
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
    pub(crate) fn wait(&mut self, most: Duration) {
        if self.is_busy {
            self.is_busy = matches!(self.done.recv_timeout(most), Err(RecvTimeoutError::Timeout));
        }
    }

    /// Wakes the thread. Must be called only while it is not busy.
    pub(crate) fn wake(&mut self) {
        // Never full: this is the only sender. If the thread has ended, it stays idle.
        self.is_busy = self.wake.try_send(()).is_ok();
    }
}
