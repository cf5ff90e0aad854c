//! Receives the signals that reach the ranks by the launcher and the supervisor.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};

const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Whether no [`SignalWatch`] exists.
static UNWATCHED: AtomicBool = AtomicBool::new(true);

/// The number of [`SignalWatch`]es that exist; `None` before the first.
static LIVING: Mutex<Option<usize>> = Mutex::new(None);

/// Receives signals for as long as it exists; SIGHUP only if it was not ignored before the first watch.
///
/// Neither std nor rustix can receive a signal, hence signal-hook. Its handlers stay installed afterwards. They then
/// end the process if the signal's action was the default before the first watch; an ignored signal stays ignored,
/// and handlers of the program still run.
pub(super) struct SignalWatch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl SignalWatch {
    /// Starts a thread that calls `receive` with each signal.
    pub(super) fn start(receive: impl Fn(Signal) + Send + 'static) -> io::Result<Self> {
        let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
        if living.is_none() {
            // Before the first handler is installed; afterwards no signal looks unhandled.
            for signal in SIGNALS.into_iter().filter(|&signal| is_default(signal)) {
                register_conditional_default(signal, &UNWATCHED)?;
            }
            *living = Some(0);
        }
        // nohup asks that the job outlive its terminal.
        let is_heeded = |&signal: &i32| signal != SIGHUP || !is_in("SigIgn", signal);
        let mut signals = Signals::new(SIGNALS.into_iter().filter(is_heeded))?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new()
            .name("symmem-signals".into())
            .spawn(move || {
                for number in signals.forever() {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        receive(signal);
                    }
                }
            })?;
        *living = living.map(|count| count + 1);
        UNWATCHED.store(false, Ordering::SeqCst);
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
            // The thread returns nothing, and a panic in it would not matter here.
            let _ = thread.join();
        }
        let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
        *living = living.map(|count| count - 1);
        UNWATCHED.store(*living == Some(0), Ordering::SeqCst);
    }
}

/// Returns whether this process neither ignores a signal, as under nohup, nor handles it.
fn is_default(signal: i32) -> bool {
    !is_in("SigIgn", signal) && !is_in("SigCgt", signal)
}

/// Returns whether a signal is in a set of `/proc/self/status`.
fn is_in(set: &str, signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix(set));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim_matches([':', '\t']), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}
