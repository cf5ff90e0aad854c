//! Signals to the launcher that are meant for the ranks.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag::register_conditional_default;
use signal_hook::iterator::{Handle, Signals};

use super::event::Event;

const SIGNALS: [i32; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Whether no watch lives.
static UNWATCHED: AtomicBool = AtomicBool::new(true);

/// How many watches live; none before the first.
static LIVING: Mutex<Option<usize>> = Mutex::new(None);

/// Turns signals into events for as long as it lives.
///
/// Neither std nor rustix can receive a signal, hence signal-hook. Handlers stay installed in the process
/// afterwards, and do what the signals did before the first of them: end it, unless they were ignored or somebody
/// else's.
pub(super) struct SignalWatch {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl SignalWatch {
    pub(super) fn start(events: Sender<Event>) -> io::Result<Self> {
        let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
        if living.is_none() {
            // Before any handler of ours: afterwards each signal would seem to be handled.
            for signal in SIGNALS.into_iter().filter(|&signal| is_default(signal)) {
                register_conditional_default(signal, &UNWATCHED)?;
            }
            *living = Some(0);
        }
        let mut signals = Signals::new(SIGNALS)?;
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
            // It does not panic, and has nothing to say if it did.
            let _ = thread.join();
        }
        let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
        *living = living.map(|count| count - 1);
        UNWATCHED.store(*living == Some(0), Ordering::SeqCst);
    }
}

/// Whether this process neither ignores a signal, as under nohup, nor handles it.
fn is_default(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_in = |set: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(set));
        let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
    };
    !is_in("SigIgn:") && !is_in("SigCgt:")
}
