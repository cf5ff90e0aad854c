//! `write` and `read` copy between the host and a buffer before they return; no graph may record the copy.
//! Another thread can begin a capture on the stream while the call is under way.

use crate::child::{Backend, passes};
use crate::program::*;
use rstest::rstest;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Elements of the buffer. Dropping a buffer of this size unmaps it.
const LENGTH: usize = 1 << 18;
/// Elements of the copy that races with the capture.
const COPIED: usize = 16;
/// Elements of the large copy on another stream, which takes several milliseconds.
const LARGE: usize = 8 << 20;
/// The long graph has `1 << DOUBLINGS` operations. Adding it to a recording takes several milliseconds.
const DOUBLINGS: u32 = 17;
/// The copy lands in the graph in about every second round.
const ROUNDS: usize = 16;
/// No round begins later than this.
const BUDGET: Duration = Duration::from_secs(15);
const PATTERN: u32 = 13;

#[rstest]
fn a_write_during_a_capture_is_done_or_refused(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    passes("write during capture", backend);
}

#[test]
fn a_read_during_a_capture_on_the_host_is_done_or_refused() {
    passes("read during capture", Backend::Host);
}

/// The result of a copy.
struct Copied {
    /// The pattern that the buffer must hold after the call.
    expected: u32,
    /// What a successful read returned; empty otherwise.
    read: Vec<Element>,
}

/// Writes during a capture.
pub fn write() -> Result<()> {
    race(|stream, buffer| {
        let written = crate::program::write(stream, buffer, &pattern(PATTERN + 1, COPIED));
        Copied {
            expected: PATTERN + u32::from(written.is_ok()),
            read: Vec::new(),
        }
    })
}

/// Reads during a capture.
pub fn read() -> Result<()> {
    race(|stream, buffer| {
        let mut seen = vec![0; COPIED];
        let read = crate::program::read(stream, buffer, &mut seen);
        seen.truncate(if read.is_ok() { COPIED } else { 0 });
        Copied {
            expected: PATTERN,
            read: seen,
        }
    })
}

fn race(copy: impl Fn(&Stream, &Buffer) -> Copied + Sync) -> Result<()> {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        if start.elapsed() < BUDGET {
            round(&copy)?;
        }
    }
    Ok(())
}

/// Copies on one thread and captures the same stream on another. Then drops the buffer and launches the
/// graph, which must not touch it.
///
/// A graph records the copy if the capture begins after the call has checked that there is none, and ends
/// before the call waits for the copy. Two locks make both likely. First the call waits for the staging
/// memory, which the large copy on another stream holds; the capture begins meanwhile. Then it waits for
/// the recording, which a third thread holds while it adds the long graph; the end of the capture queues
/// behind it.
fn round(copy: &(impl Fn(&Stream, &Buffer) -> Copied + Sync)) -> Result<()> {
    let communicator = open();
    let (contended, beside) = (stream(&communicator), stream(&communicator));
    let buffer = allocate(&communicator, LENGTH);
    let other = allocate(&communicator, LARGE);
    let large = vec![0; LARGE];
    let long = long_graph(&mut stream(&communicator), &other)?;
    crate::program::write(&contended, &buffer, &pattern(PATTERN, COPIED))?;
    let (begun, large_done) = (AtomicBool::new(false), AtomicBool::new(false));
    let (copied, graph) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let written = crate::program::write(&beside, &other, &large);
            large_done.store(true, Ordering::Release);
            written
        });
        let copying = scope.spawn(|| {
            bind_to_first_processor();
            yield_to_others();
            pause(1);
            copy(&contended, &buffer)
        });
        scope.spawn(|| {
            until(&begun);
            launch(&long, &contended)
        });
        bind_to_first_processor();
        pause(3);
        let graph = capture_shared(&contended, || {
            begun.store(true, Ordering::Release);
            until(&large_done);
            pause(3);
        });
        (copying.join().expect("no panic"), graph)
    });
    if communicator.check().is_err() {
        // A refused call has poisoned the communicator, which launches no graph any more.
        return Ok(());
    }
    let graph = graph?;
    let mut seen = [0; COPIED];
    crate::program::read(&contended, &buffer, &mut seen)?;
    drop(buffer);
    launch(&graph, &contended)?;
    synchronize(&contended)?;
    assert_pattern(&seen, copied.expected);
    assert_pattern(&copied.read, PATTERN);
    Ok(())
}

/// Captures a graph of very many puts: each capture launches the graph before it twice.
fn long_graph(stream: &mut Stream, buffer: &Buffer) -> Result<Graph> {
    let mut graph = capture(stream, |stream| put_one(stream, 0, buffer))?;
    for _ in 0..DOUBLINGS {
        graph = capture(stream, |stream| {
            launch(&graph, stream)?;
            launch(&graph, stream)
        })?;
    }
    Ok(graph)
}

fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

fn until(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Binds the calling thread to the first processor that it may use. The copying thread and the capturing
/// thread share one, so that the one that is woken preempts the other.
fn bind_to_first_processor() {
    let allowed = sched_getaffinity(None).expect("the processors of this thread");
    let mut one = CpuSet::new();
    let first = (0..CpuSet::MAX_CPU).find(|&processor| allowed.is_set(processor));
    one.set(first.expect("the thread runs on one"));
    sched_setaffinity(None, &one).expect("the processor is allowed");
}

/// Gives the calling thread the lowest priority.
fn yield_to_others() {
    rustix::process::setpriority_process(None, 19).expect("a lower priority needs no privilege");
}
