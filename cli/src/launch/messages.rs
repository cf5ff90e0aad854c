//! Writes the supervisor's messages.

use crate::output;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Instant;

/// A thread that writes messages to standard error, whose reader may have paused: a pager, for instance. Whoever ends
/// the ranks must not wait for it.
pub(super) struct Messages {
    lines: Sender<String>,
    done: Receiver<()>,
}

impl Messages {
    pub(super) fn start() -> io::Result<Self> {
        let (lines, inbox) = mpsc::channel::<String>();
        let (ended, done) = mpsc::channel();
        let write = move || {
            inbox.into_iter().for_each(output::last_words);
            drop(ended);
        };
        let thread = std::thread::Builder::new().name("symmem-messages".into());
        thread.spawn(write)?;
        Ok(Self { lines, done })
    }

    /// Writes a message soon. Does not block.
    pub(super) fn say(&self, message: String) {
        // The thread ends only after this value.
        let _ = self.lines.send(message);
    }

    /// Waits until all messages are written, at most until `until`.
    pub(super) fn finish(self, until: Instant) {
        drop(self.lines);
        let left = until.saturating_duration_since(Instant::now());
        let _ = self.done.recv_timeout(left);
    }
}
