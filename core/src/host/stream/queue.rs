//! Streams: queues of ordered work.
//!
//! An idle stream runs its work in the caller. Work that has to wait, and everything after it, is queued, and a
//! thread of the stream, started then, continues with it. A caller that polls the stream takes part: the right to
//! execute is a lock that no thread holds during a wait, so a caller that synchronizes sees the signal itself,
//! without a hand-off between threads.

use super::events::Recorder;
use super::operation::{Operation, Progress, Recording, Submission};
use crate::backend::abi::Status;
use crate::backend::{CallResult, Failure};
use crate::host::progress::{ATTENDED, GRACE, HELPED, Policy, Sleep, Sleeper, Step};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// A queue of ordered work.
pub(crate) struct Stream {
    policy: Policy,
    /// Number of queued operations that are not done. An operation that its caller completes at once is never
    /// counted.
    queued: AtomicUsize,
    /// The holder of this lock executes; taken before `incoming`.
    execution: Mutex<Execution>,
    incoming: Mutex<Incoming>,
    /// Whether a caller has polled since the thread last looked.
    helped: AtomicBool,
    /// Whether a caller sleeps on the word that the stream waits for.
    attended: AtomicBool,
    /// Whether the thread rests until it is woken. It looks again by itself after any other pause.
    resting: AtomicBool,
    /// Whether the stream was destroyed: its thread ends when the queue is empty.
    closing: AtomicBool,
    capturing: AtomicBool,
    capture: Mutex<Recording>,
}

/// The operation that is being executed, and its progress.
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

/// Locks a mutex, poisoned or not: no code here panics while it holds a lock, and every intermediate state is valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    /// Creates an idle stream.
    pub(crate) fn new(policy: Policy) -> Arc<Self> {
        Arc::new(Self {
            policy,
            queued: AtomicUsize::new(0),
            execution: Mutex::default(),
            incoming: Mutex::default(),
            helped: AtomicBool::new(false),
            attended: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            capturing: AtomicBool::new(false),
            capture: Mutex::default(),
        })
    }

    /// Runs the work now if the stream is idle and the work need not wait; otherwise queues it. While the stream is
    /// captured, records it.
    ///
    /// # Errors
    /// The stream's thread could not be started; the work is then dropped.
    ///
    /// # Safety
    /// All memory that the work uses is live until the stream has passed it and, if it is recorded, during every
    /// replay.
    pub(crate) unsafe fn submit(self: &Arc<Self>, work: impl Submission) -> CallResult<()> {
        if self.is_capturing() {
            let mut capture = lock(&self.capture);
            // Another thread may have ended the capture meanwhile.
            if self.is_capturing() {
                capture.push(work.into_operation());
                return Ok(());
            }
        }
        if self.is_empty()
            && let Some(mut execution) = self.try_execute()
            // Another thread may have queued work before this one got the right to execute.
            && self.is_empty()
        {
            let mut progress = Progress::default();
            // SAFETY: the memory is live, as this function requires, and this thread has the right to execute.
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

    /// Counts an operation that was just queued, and wakes the thread for the first one if it rests. Later ones need not
    /// wake it, because it rests only after it has found the queue empty; nor need calls of a caller that polls, whose
    /// thread pauses for a limited time: waking it would take a processor from the ranks that are waited for.
    fn count_one(&self, incoming: &Incoming) {
        // SeqCst, as in `rest`: one of the two sees what the other wrote.
        if self.queued.fetch_add(1, Ordering::SeqCst) == 0
            && self.resting.load(Ordering::SeqCst)
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
                    format!("{error}; work that waits needs a thread: raise the limit on processes (ulimit -u)"),
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

    /// Executes until the queue is empty, or returns how to sleep on an operation that has to wait. Spins if an
    /// operation was just completed, because the next signal is then probably near.
    fn execute(&self, execution: &mut Execution) -> Option<Sleep> {
        let mut moved = false;
        loop {
            if execution.head.is_none() {
                execution.head = lock(&self.incoming).queue.pop_front();
                execution.progress = Progress::default();
            }
            let head = execution.head.as_ref()?;
            // SAFETY: `submit` requires the memory to live until this operation is done, and the caller has the right
            // to execute.
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
            // Release: a thread that sees the queue empty also sees what the operation wrote.
            self.queued.fetch_sub(1, Ordering::Release);
        }
    }

    /// Returns whether all work is done. If no other thread executes, the caller first advances the queue as far as
    /// possible, waiting at most for a moment.
    pub(crate) fn poll(&self) -> bool {
        let Some(mut execution) = self.try_execute() else {
            return false;
        };
        if self.is_empty() {
            return true;
        }
        self.helped.store(true, Ordering::Relaxed);
        let before = self.queued.load(Ordering::Relaxed);
        let blocked = self.execute(&mut execution).is_some();
        drop(execution);
        // What was done may be what the caller waits to pass on: then it goes on at once.
        if blocked && self.queued.load(Ordering::Relaxed) >= before {
            self.policy.between_polls();
        }
        !blocked && self.is_empty()
    }

    /// Blocks until all work is done, at most for `longest`, and returns whether it is done. Spins briefly if ranks
    /// have processors to themselves, then sleeps on the word that the stream waits for.
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
            if self.pause(remaining, None) {
                return true;
            }
        }
    }

    /// Sleeps until the word changes that the stream waits for, at most for `longest`, and returns whether all work is done.
    /// Returns at once if the caller has moved the stream: what was done may be what it passes on, as to another node. The
    /// caller's own sleeper sleeps in its place on a word that it watches.
    pub(crate) fn pause(&self, longest: Duration, sleeper: Option<&dyn Sleeper>) -> bool {
        let mut execution = lock(&self.execution);
        let (queued, replayed) = (
            self.queued.load(Ordering::Relaxed),
            execution.progress.replayed,
        );
        let Some(sleep) = self.execute(&mut execution) else {
            return self.is_empty();
        };
        let completed = self.queued.load(Ordering::Relaxed) < queued;
        if completed || execution.progress.replayed > replayed {
            return false;
        }
        let taken = sleeper.filter(|sleeper| sleeper.watches(sleep.word));
        if taken.is_none() {
            execution.announce(sleep);
            sleeper.inspect(|sleeper| sleeper.leave());
        }
        // Before others can take the lock: the thread need not wake for the same word.
        self.attended.store(true, Ordering::Relaxed);
        drop(execution);
        let limit = sleep.limit.min(longest);
        match taken {
            Some(sleeper) => sleeper.sleep(sleep.word, sleep.seen, limit),
            None => Sleep { limit, ..sleep }.sleep(),
        }
        self.attended.store(false, Ordering::Relaxed);
        false
    }

    /// The stream's thread.
    fn serve(&self) {
        loop {
            if self.attended.load(Ordering::Relaxed) {
                thread::park_timeout(ATTENDED);
                continue;
            }
            if self.helped.swap(false, Ordering::Relaxed) {
                // A polling caller sees the signal sooner than this thread would.
                thread::park_timeout(HELPED);
                continue;
            }
            if self.is_empty() {
                // Takes no lock here, so that a working caller never finds one taken.
                if self.closing.load(Ordering::Acquire) {
                    return;
                }
                self.rest();
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

    /// Parks the stream's thread until there is work, or the stream is closed.
    fn rest(&self) {
        self.resting.store(true, Ordering::SeqCst);
        if self.queued.load(Ordering::SeqCst) == 0 && !self.closing.load(Ordering::SeqCst) {
            thread::park();
        }
        self.resting.store(false, Ordering::SeqCst);
    }

    /// Lets the stream's thread end once the queue is empty. Queued work is still done.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Release);
        if let Some(thread) = &lock(&self.incoming).thread {
            thread.unpark();
        }
    }

    /// Whether operations are recorded and not run.
    pub(crate) fn is_capturing(&self) -> bool {
        self.capturing.load(Ordering::Acquire)
    }

    /// Begins to record operations.
    pub(crate) fn begin_capture(&self) -> CallResult<()> {
        let mut capture = lock(&self.capture);
        self.refuse_capture("capture_begin", "end that capture first")?;
        *capture = Recording::default();
        self.capturing.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the recording and returns it.
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

    /// Whether the stream has started its thread.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn has_thread(&self) -> bool {
        lock(&self.incoming).thread.is_some()
    }

    /// Fails with `UNSUPPORTED` if the stream is being captured.
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

    /// Counts the head's wait as a sleeper on its word.
    fn announce(&mut self, sleep: Sleep) {
        if sleep.counted
            && let Some(pending) = &mut self.progress.pending
        {
            // SAFETY: the head is not done, so its word is live, and no other thread executes.
            unsafe { pending.announce_sleep(sleep.word) };
        }
    }
}

impl Recorder for Stream {
    fn help(&self) {
        self.poll();
    }
}
