//! Ctrl-C in calls that block. Python runs its signal handlers on the main thread, between two calls of ours.

use crate::failure::{Failure, Result};
use pyo3::prelude::*;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

/// How long a call blocks before Python may run its signal handlers.
pub const SLICE: Duration = Duration::from_millis(100);

/// Returns whether this is the thread on which Python runs signal handlers.
fn is_main() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Runs the handlers of the signals that have come.
///
/// # Errors
/// What a handler raises: `KeyboardInterrupt` for Ctrl-C.
pub fn run_handlers() -> Result<()> {
    // Other threads need not wait for the GIL.
    match is_main() {
        true => Python::attach(|python| python.check_signals()).map_err(Failure::from),
        false => Ok(()),
    }
}

/// Makes a call that blocks, without the GIL, on a thread of its own if signals must be looked for meanwhile. If a handler
/// raises, calls `stop`, which may end the call, and leaves it alone.
///
/// # Errors
/// The call's, or what a handler raises.
pub fn call<T: Send + 'static>(
    python: Python<'_>,
    stop: impl FnOnce() + Send,
    call: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    if !is_main() {
        return python.detach(call);
    }
    python.detach(|| {
        let (done, wait) = channel();
        let thread = Builder::new().name("symmem-python".into());
        // A call that was left alone has nobody to tell.
        let started = thread.spawn(move || drop(done.send(call())));
        let thread = started.map_err(|error| Failure::Python(error.into()))?;
        loop {
            match wait.recv_timeout(SLICE) {
                Ok(Ok(value)) => return Ok(value),
                // Ctrl-C reaches all ranks, so that its failure may come first.
                Ok(Err(failure)) => return Err(run_handlers().err().unwrap_or(failure)),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(raised) = run_handlers() {
                        stop();
                        return Err(raised);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    // Only a panic ends the thread without a result.
                    let ended = thread.join();
                    resume_unwind(ended.err().unwrap_or_else(|| Box::new("no result")));
                }
            }
        }
    })
}
