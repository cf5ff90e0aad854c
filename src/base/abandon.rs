//! Work that may never return, on a thread that may be abandoned.
//!
//! A driver whose device is wedged can block in any call. Where that would hang a rank forever, as in setup
//! and teardown, the call is made on a thread that can be abandoned.

use std::any::Any;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Abandoned {
    /// The work did not return in time. It continues, and its result is dropped on its thread.
    #[error("the call did not return within {0:?}; the driver or its device is stuck")]
    Late(Duration),
    /// No thread could be started; the work was dropped without being run.
    #[error("no thread could be started: {0}")]
    NoThread(io::Error),
}

/// Interval at which a wait checks whether the result is still wanted.
const SLICE: Duration = Duration::from_millis(20);

/// Runs `work` on a thread named `name` and blocks until it returns, for at most `limit`.
///
/// # Errors
/// [`Abandoned`] if there is no result.
///
/// # Panics
/// With `work`'s own panic.
pub fn run_within<T: Send + 'static>(
    name: &str,
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Abandoned> {
    run_while(name, limit, || true, work)
}

/// Runs as [`run_within`] does, but waits only while the result is `wanted`, which is checked every 20 ms.
///
/// # Errors
/// [`Abandoned`], with the time that was waited.
///
/// # Panics
/// With `work`'s own panic.
pub fn run_while<T: Send + 'static>(
    name: &str,
    limit: Duration,
    wanted: impl Fn() -> bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Abandoned> {
    let value = run_boxed(
        name,
        limit,
        &wanted,
        Box::new(move || Box::new(work()) as Value),
    )?;
    Ok(*value.downcast().expect("it is what `work` has returned"))
}

/// The work's result without its type, so that the wait is compiled once.
type Value = Box<dyn Any + Send>;

fn run_boxed(
    name: &str,
    limit: Duration,
    wanted: &dyn Fn() -> bool,
    work: Box<dyn FnOnce() -> Value + Send>,
) -> Result<Value, Abandoned> {
    let (give, take) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            // If the wait has ended, the value is dropped here.
            let _ = give.send(work());
        })
        .map_err(Abandoned::NoThread)?;
    let start = Instant::now();
    let over = loop {
        let left = limit.saturating_sub(start.elapsed());
        match take.recv_timeout(left.min(SLICE)) {
            Ok(value) => break Ok(value),
            Err(RecvTimeoutError::Timeout) if left <= SLICE => break Err(limit),
            Err(RecvTimeoutError::Timeout) if !wanted() => break Err(start.elapsed()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                // Only a panic ends the thread before it has sent.
                Ok(()) => return Err(Abandoned::Late(limit)),
            },
        }
    };
    // A value that arrived at the very end is not late, and must not be dropped on this thread, where the drop
    // would undo the work.
    match over.or_else(|waited| take.try_recv().map_err(|_| waited)) {
        Ok(value) => {
            // The thread has nothing left to do; joined, so that it does not outlive the call.
            let _ = thread.join();
            Ok(value)
        }
        Err(waited) => Err(Abandoned::Late(waited)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_returns_gives_its_result() {
        assert_eq!(
            run_within("test", Duration::from_secs(600), || 7).unwrap(),
            7
        );
    }

    #[test]
    fn work_whose_result_nobody_wants_any_more_is_abandoned_before_its_time() {
        let start = Instant::now();
        let (hold, held) = mpsc::channel::<()>();
        let wanted = || start.elapsed() < Duration::from_millis(60);
        let work = move || held.recv().is_ok();
        let gone = run_while("test", Duration::from_secs(60), wanted, work);
        assert!(matches!(gone, Err(Abandoned::Late(waited)) if waited < Duration::from_secs(30)));
        drop(hold);
    }

    #[test]
    fn work_that_does_not_return_is_abandoned_and_its_late_result_dropped() {
        let (give, take) = mpsc::channel::<()>();
        let start = Instant::now();
        let late = run_within("test", Duration::from_millis(20), move || {
            std::thread::sleep(Duration::from_secs(3));
            give
        });
        assert!(matches!(late, Err(Abandoned::Late(_))));
        assert!(start.elapsed() < Duration::from_secs(2));
        // Dropped on the abandoned thread: the channel closes.
        assert_eq!(
            take.recv_timeout(Duration::from_secs(10)),
            Err(RecvTimeoutError::Disconnected)
        );
    }

    #[test]
    #[should_panic(expected = "as it is")]
    fn a_panic_is_passed_on() {
        // A backtrace, where one is asked for, takes a busy machine many seconds.
        let _ = run_within("test", Duration::from_secs(600), || panic!("as it is"));
    }
}
