//! Streams: queues of ordered work.
//!
//! An idle stream runs its work in the caller. Work that has to wait, and all that comes after it,
//! is queued; a thread of the stream's own, started then, goes on with it. Whoever polls the stream
//! takes part: the right to execute is a lock that nobody holds while a wait is unsatisfied, so a
//! caller who synchronises sees the signal itself, with no hand-off between threads.

use super::events::Recorder;
use super::operation::{Operation, Progress, Recording, Submission};
use crate::backend::abi::Status;
use crate::backend::{CallResult, Failure};
use crate::host::progress::{GRACE, HELPED, Policy, Sleep, Step};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A queue of ordered work.
pub(crate) struct Stream {
    policy: Policy,
    /// Operations asked for and queued, and not yet done. An operation that is done at once in its
    /// caller is never counted.
    queued: AtomicUsize,
    /// Who holds this executes; taken before `incoming`.
    execution: Mutex<Execution>,
    incoming: Mutex<Incoming>,
    /// A caller has polled since the thread last looked.
    helped: AtomicBool,
    /// The stream was given up: its thread ends when the queue is empty.
    closing: AtomicBool,
    capturing: AtomicBool,
    capture: Mutex<Recording>,
}

/// The operation that is being executed.
#[derive(Default)]
struct Execution {
    head: Option<Operation>,
    progress: Progress,
}

#[derive(Default)]
struct Incoming {
    queue: VecDeque<Operation>,
    thread: Option<Thread>,
}

/// No code of ours panics while it holds a lock, and all states between are valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// An idle stream.
    pub(crate) fn new(policy: Policy) -> Arc<Self> {
        Arc::new(Self {
            policy,
            queued: AtomicUsize::new(0),
            execution: Mutex::default(),
            incoming: Mutex::default(),
            helped: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            capturing: AtomicBool::new(false),
            capture: Mutex::default(),
        })
    }

    /// Does the work now if the stream is idle and it need not wait; else queues it. While the
    /// stream is captured, records it.
    ///
    /// # Errors
    /// The stream's thread could not be started; the work is then given up.
    ///
    /// # Safety
    /// All memory that the work names is live until the stream has passed it, or while a recording
    /// of it is replayed.
    pub(crate) unsafe fn submit(self: &Arc<Self>, work: impl Submission) -> CallResult<()> {
        if self.is_capturing() {
            let mut capture = lock(&self.capture);
            // Another thread may have ended it meanwhile.
            if self.is_capturing() {
                capture.push(work.into_operation());
                return Ok(());
            }
        }
        if self.is_empty()
            && let Some(mut execution) = self.try_execute()
            // Somebody may have queued work before we got the right to execute.
            && self.is_empty()
        {
            let mut progress = Progress::default();
            // SAFETY: the caller's word; the right to execute is ours.
            let step = || unsafe { work.advance(&mut progress) };
            if let Step::Done = self.policy.spin_on(step) {
                return Ok(());
            }
            let mut incoming = lock(&self.incoming);
            self.start_thread(&mut incoming)?;
            *execution = Execution {
                head: Some(work.into_operation()),
                progress,
            };
            self.count_one(&incoming);
            return Ok(());
        }
        let mut incoming = lock(&self.incoming);
        self.start_thread(&mut incoming)?;
        incoming.queue.push_back(work.into_operation());
        self.count_one(&incoming);
        Ok(())
    }

    /// Counts an operation that was just queued; the first one wakes the thread. Later ones need
    /// not: it comes to rest only after it has found the queue empty.
    fn count_one(&self, incoming: &Incoming) {
        if self.queued.fetch_add(1, Ordering::AcqRel) == 0
            && let Some(thread) = &incoming.thread
        {
            thread.unpark();
        }
    }

    fn start_thread(self: &Arc<Self>, incoming: &mut Incoming) -> CallResult<()> {
        if incoming.thread.is_some() {
            return Ok(());
        }
        let stream = Arc::clone(self);
        let started = thread::Builder::new()
            .name("symmem-stream".into())
            .stack_size(256 * 1024)
            .spawn(move || stream.serve())
            .map_err(|error| {
                Failure::of_call(
                    Status::CALL_FAILED,
                    "pthread_create",
                    error.raw_os_error().unwrap_or(0),
                    format!("{error}; work that waits needs a thread, raise the limit on processes (ulimit -u)"),
                )
            })?;
        incoming.thread = Some(started.thread().clone());
        Ok(())
    }

    /// Whether no operation is queued.
    fn is_empty(&self) -> bool {
        self.queued.load(Ordering::Acquire) == 0
    }

    fn try_execute(&self) -> Option<MutexGuard<'_, Execution>> {
        match self.execution.try_lock() {
            Ok(execution) => Some(execution),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Executes until the queue is empty or an operation has to wait; then how to sleep on it. Of a
    /// stream that moves, the next signal is a moment away, and worth watching for.
    fn execute(&self, execution: &mut Execution) -> Option<Sleep> {
        let mut moved = false;
        loop {
            if execution.head.is_none() {
                execution.head = lock(&self.incoming).queue.pop_front();
                execution.progress = Progress::default();
            }
            let head = execution.head.as_ref()?;
            // SAFETY: `submit` demanded that the memory lives until this operation is done; the
            // caller holds the right to execute.
            let mut step = || unsafe { head.advance(&mut execution.progress) };
            let step = if moved {
                self.policy.spin_on(step)
            } else {
                step()
            };
            if let Step::Blocked(sleep) = step {
                return Some(sleep);
            }
            moved = true;
            execution.head = None;
            // Whoever finds the queue empty sees what the operation wrote.
            self.queued.fetch_sub(1, Ordering::Release);
        }
    }

    /// True if all work is done. If nobody executes, the caller goes on with the queue as far as it
    /// goes without waiting for longer than a moment.
    pub(crate) fn poll(&self) -> bool {
        let Some(mut execution) = self.try_execute() else {
            return false;
        };
        if self.is_empty() {
            return true;
        }
        self.helped.store(true, Ordering::Relaxed);
        let blocked = self.execute(&mut execution).is_some();
        drop(execution);
        if blocked {
            self.policy.between_polls();
        }
        !blocked && self.is_empty()
    }

    /// Blocks until all work is done, at most for `longest`; true if it is done. Spins a little if
    /// ranks have processors to themselves, then sleeps on the word that the stream waits for.
    pub(crate) fn block(&self, longest: Duration) -> bool {
        let start = Instant::now();
        if self.poll() || self.policy.spin(|| self.poll()) {
            return true;
        }
        loop {
            let remaining = longest.saturating_sub(start.elapsed());
            if remaining.is_zero() {
                return self.poll();
            }
            let mut execution = lock(&self.execution);
            let Some(sleep) = self.execute(&mut execution) else {
                return true;
            };
            execution.announce(sleep);
            drop(execution);
            let limit = sleep.limit.min(remaining);
            Sleep { limit, ..sleep }.sleep();
        }
    }

    /// What the stream's thread does.
    fn serve(&self) {
        loop {
            if self.helped.swap(false, Ordering::Relaxed) {
                // A caller is at it, and sees the signal sooner than we would.
                thread::park_timeout(HELPED);
                continue;
            }
            if self.is_empty() {
                // Without a look at the lock: a caller who is at work must not find it taken.
                if self.closing.load(Ordering::Acquire) {
                    return;
                }
                thread::park();
                continue;
            }
            let mut execution = lock(&self.execution);
            match self.execute(&mut execution) {
                None => {}
                Some(_) if execution.grant_grace() => {
                    drop(execution);
                    thread::park_timeout(GRACE);
                }
                Some(sleep) => {
                    execution.announce(sleep);
                    drop(execution);
                    sleep.sleep();
                }
            }
        }
    }

    /// The stream is given up. Queued work is still done.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(thread) = &lock(&self.incoming).thread {
            thread.unpark();
        }
    }

    /// Whether operations are recorded instead of run.
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire)
    }

    /// From here on operations are recorded.
    pub(crate) fn begin_capture(&self) -> CallResult<()> {
        let mut capture = lock(&self.capture);
        self.refuse_capture("capture_begin", "end that capture first")?;
        *capture = Recording::default();
        self.capturing.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the recording.
    pub(crate) fn end_capture(&self) -> CallResult<Recording> {
        let mut capture = lock(&self.capture);
        if !self.capturing.swap(false, Ordering::AcqRel) {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "capture_end",
                "the stream is not being captured; call capture_begin first",
            ));
        }
        Ok(std::mem::take(&mut *capture))
    }

    /// Whether queued work has needed a thread.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn has_thread(&self) -> bool {
        lock(&self.incoming).thread.is_some()
    }

    /// Fails if the stream is being captured, where `call` cannot be.
    pub(crate) fn refuse_capture(&self, call: &str, advice: &str) -> CallResult<()> {
        if !self.is_capturing() {
            return Ok(());
        }
        Err(Failure::new(
            Status::UNSUPPORTED,
            call,
            format!("the stream is being captured: {advice}"),
        ))
    }
}

impl Execution {
    fn grant_grace(&mut self) -> bool {
        let pending = &mut self.progress.pending;
        pending.as_mut().is_some_and(|wait| wait.grant_grace())
    }

    /// Announces a sleep on the word that the head waits for.
    fn announce(&mut self, sleep: Sleep) {
        if sleep.counted
            && let Some(pending) = &mut self.progress.pending
        {
            // SAFETY: the head is not done, so its word is live; nobody else executes.
            unsafe { pending.announce_sleep(sleep.word) };
        }
    }
}

impl Recorder for Stream {
    fn help(&self) {
        self.poll();
    }
}
