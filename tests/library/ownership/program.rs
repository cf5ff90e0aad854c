//! Every call of the public API that the programs make.
//!
//! All of them are safe, so no program may crash, whatever order it makes them in.

#![forbid(unsafe_code)]

use crate::child::BACKEND;
use crate::job::{self, job};
use std::time::Duration;
pub use symmem::{Communicator, Graph, Queue, Result, Stream};

/// The element type of all buffers.
pub type Element = u32;
/// A symmetric buffer of these elements.
pub type Buffer = symmem::SymmetricBuffer<Element>;

/// The deadline of all waits, far beyond what any of them takes.
const DEADLINE: Duration = Duration::from_secs(60);
/// The signal channel on which [`block`] waits.
const CHANNEL: u32 = 0;

/// Opens a communicator of one rank.
pub fn open() -> Communicator {
    rank(0, 1, &job("ownership"))
}

/// Runs `body` as each rank of a world, a thread a rank. Returns the results in the order of ranks.
pub fn world<T: Send>(size: u32, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    let job = job("ownership");
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..size)
            .map(|number| {
                let (job, body) = (&job, &body);
                scope.spawn(move || body(rank(number, size, job)))
            })
            .collect();
        let ranks = ranks.into_iter();
        ranks.map(|rank| rank.join().expect("no panic")).collect()
    })
}

fn rank(number: u32, world: u32, job: &str) -> Communicator {
    job::rank(BACKEND, number, world, job)
        .deadline(DEADLINE)
        .setup_deadline(DEADLINE)
        .build()
        .expect("the world comes up")
}

/// Returns the rank of a communicator.
pub fn number(communicator: &Communicator) -> usize {
    communicator.rank()
}

/// Waits on the host for all ranks.
pub fn meet(communicator: &Communicator) -> Result<()> {
    communicator.host_barrier()
}

/// Creates a stream.
pub fn stream(communicator: &Communicator) -> Stream {
    communicator.stream().expect("a stream")
}

/// Allocates a buffer of `length` elements.
pub fn allocate(communicator: &Communicator, length: usize) -> Buffer {
    communicator.allocate(&[length]).expect("a buffer")
}

/// Frees a buffer on all ranks.
pub fn free(buffer: Buffer) -> Result<()> {
    buffer.free()
}

/// Returns `length` elements of a numbered pattern.
pub fn pattern(number: u32, length: usize) -> Vec<Element> {
    (0..length).map(|index| element(number, index)).collect()
}

fn element(pattern: u32, index: usize) -> Element {
    pattern.wrapping_mul(0x9e37_79b9).wrapping_add(index as u32)
}

/// Copies elements from the host to the start of a buffer.
pub fn write(stream: &Stream, buffer: &Buffer, elements: &[Element]) -> Result<()> {
    buffer.write(stream, 0, elements)
}

/// Copies elements from the start of a buffer to the host.
pub fn read(stream: &Stream, buffer: &Buffer, elements: &mut [Element]) -> Result<()> {
    buffer.read(stream, 0, elements)
}

/// Reads a whole buffer and asserts that it holds a pattern.
pub fn expect(stream: &Stream, buffer: &Buffer, pattern: u32) -> Result<()> {
    let mut seen = vec![0; buffer.len()];
    read(stream, buffer, &mut seen)?;
    assert_pattern(&seen, pattern);
    Ok(())
}

/// Asserts that elements are the first ones of a pattern.
pub fn assert_pattern(seen: &[Element], pattern: u32) {
    for (index, &seen) in seen.iter().enumerate() {
        let expected = element(pattern, index);
        assert_eq!(seen, expected, "element {index} of pattern {pattern}");
    }
}

/// Enqueues a put of one buffer of this rank into another.
pub fn put(stream: &Queue, rank: usize, to: &Buffer, from: &Buffer) -> Result<()> {
    stream.put(rank, to, from)
}

/// Enqueues a wait for [`unblock`].
pub fn block(stream: &Queue, rank: usize) -> Result<()> {
    stream.wait_signal(rank, CHANNEL)
}

/// Unblocks a stream of this rank, by work on another. Uses the first two elements of `scratch`.
pub fn unblock(other: &Queue, rank: usize, scratch: &Buffer) -> Result<()> {
    other.put_signal(rank, scratch.slice(0..1)?, scratch.slice(1..2)?, CHANNEL)
}

/// Waits on the host until a stream has done its work.
pub fn synchronize(stream: &Stream) -> Result<()> {
    stream.synchronize()
}

/// Captures what `work` enqueues.
pub fn capture(stream: &mut Stream, work: impl FnOnce(&Queue) -> Result<()>) -> Result<Graph> {
    stream.capture(work)
}

/// Launches a graph; inside a capture, records the launch.
pub fn launch(graph: &Graph, queue: &Queue) -> Result<()> {
    queue.launch_graph(graph)
}

/// Opens an exchange on `outer` and another on `inner`, adds a send and a receive of this rank to itself
/// to the second, swaps the two exchanges and enqueues both. The buffers belong to the communicator of
/// `inner`.
pub fn exchange_swapped(
    outer: &Stream,
    inner: &Stream,
    rank: usize,
    to: &Buffer,
    from: &Buffer,
) -> Result<()> {
    let (mut first, mut second) = (outer.exchange(), inner.exchange());
    second.send(rank, from)?;
    second.recv(rank, to)?;
    std::mem::swap(&mut first, &mut second);
    first.enqueue()?;
    second.enqueue()
}

/// Enqueues a send of a buffer to a peer.
pub fn send(stream: &Queue, peer: usize, from: &Buffer) -> Result<()> {
    stream.send(peer, from)
}

/// Enqueues a receive of a buffer from a peer.
pub fn receive(stream: &Queue, peer: usize, to: &Buffer) -> Result<()> {
    stream.recv(peer, to)
}
