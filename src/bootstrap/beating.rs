//! The pulse of a rank that is being set up. Its watcher, which sends it later, starts once all ranks have compared their
//! devices, and opening a device may take long: until then a thread of its own shows that the rank is alive.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::base::bootstrap_error::BootstrapError;
use crate::base::limits::WATCH_INTERVAL;
use crate::bootstrap::Bootstrap;

/// The thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Beating {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Beating {
    /// Starts the pulse of a rank of a job that may span nodes; `None` for others, which need none. The end of the other
    /// side is noticed after `silence`.
    ///
    /// # Errors
    /// [`BootstrapError::System`] if no thread can be started; the other ranks are told.
    pub(crate) fn start(
        bootstrap: &Arc<Bootstrap>,
        silence: Duration,
    ) -> Result<Option<Self>, BootstrapError> {
        if !bootstrap.has_pulse() {
            return Ok(None);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let (own, seen) = (bootstrap.clone(), is_over.clone());
        let beat = move || {
            while !seen.load(Ordering::Acquire) {
                own.store().beat(silence);
                std::thread::park_timeout(WATCH_INTERVAL);
            }
        };
        let started = std::thread::Builder::new()
            .name("symmem-pulse".into())
            .spawn(beat);
        let thread = started.map_err(|source| {
            let error = BootstrapError::System {
                rank: bootstrap.rank(),
                call: "starting a thread that shows that this rank is alive",
                source,
            };
            // If rank 0 is gone, the other ranks notice it themselves.
            let _ = bootstrap.store().fail(&error.to_string());
            error
        })?;
        Ok(Some(Self {
            is_over,
            thread: Some(thread),
        }))
    }
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic of the thread is ignored.
            let _ = thread.join();
        }
    }
}
