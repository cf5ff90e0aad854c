//! Signals to the launcher that are meant for the ranks.

use std::io;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::Event;

/// Turns signals into events for as long as it lives.
///
/// Neither std nor rustix can receive a signal, hence signal-hook. Handlers stay installed in the
/// process afterwards, without effect: the signals no longer end it.
pub(super) struct SignalWatch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl SignalWatch {
    pub(super) fn start(events: Sender<Event>) -> io::Result<Self> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new()
            .name("symmem-signals".into())
            .spawn(move || {
                for number in signals.forever() {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        // The launcher has gone on if nobody listens.
                        let _ = events.send(Event::Signal(signal));
                    }
                }
            })?;
        Ok(Self {
            handle,
            thread: Some(thread),
        })
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // It does not panic, and has nothing to say if it did.
            let _ = thread.join();
        }
    }
}
