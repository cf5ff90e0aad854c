//! Work that may never return, on a thread that may be abandoned.
//!
//! A driver whose device is wedged can block in any call. Where that would hang a rank for ever, at
//! its start and at its end, the call is made on a thread that nobody has to wait for.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Abandoned {
    /// The work goes on, and nobody waits for it any more; what it gives is dropped on its thread.
    #[error("it did not return within {0:?}; the driver or its device is stuck")]
    Late(Duration),
    /// No thread could be started; the work was dropped undone.
    #[error("no thread could be started: {0}")]
    NoThread(io::Error),
}

/// Runs `work` on a thread called `name` and waits for it, at most `limit`.
///
/// # Errors
/// [`Abandoned`].
///
/// # Panics
/// With `work`'s own panic.
pub fn run_within<T: Send + 'static>(
    name: &str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Abandoned> {
    let (give, take) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            // Nobody takes it if the wait is over; it is dropped here then.
            let _ = give.send(work());
        })
        .map_err(Abandoned::NoThread)?;
    match take.recv_timeout(limit) {
        Ok(value) => {
            // It has nothing left to do; joined, so that no thread outlives the call.
            let _ = thread.join();
            Ok(value)
        }
        Err(RecvTimeoutError::Timeout) => Err(Abandoned::Late(limit)),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            // Only a panic ends the thread before it has sent.
            Ok(()) => Err(Abandoned::Late(limit)),
        },
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn work_that_returns_gives_its_result() {
        assert_eq!(
            run_within("test", Duration::from_secs(10), || 7).unwrap(),
            7
        );
    }

    #[test]
    fn work_that_does_not_return_is_abandoned_and_its_late_result_dropped() {
        let (give, take) = mpsc::channel::<()>();
        let start = Instant::now();
        let late = run_within("test", Duration::from_millis(20), move || {
            std::thread::sleep(Duration::from_millis(100));
            give
        });
        assert!(matches!(late, Err(Abandoned::Late(_))));
        assert!(start.elapsed() < Duration::from_millis(90));
        // Dropped on the abandoned thread: the channel closes.
        assert_eq!(
            take.recv_timeout(Duration::from_secs(10)),
            Err(RecvTimeoutError::Disconnected)
        );
    }

    #[test]
    #[should_panic(expected = "as it is")]
    fn a_panic_is_passed_on() {
        let _ = run_within("test", Duration::from_secs(10), || panic!("as it is"));
    }
}
