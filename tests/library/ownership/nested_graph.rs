//! A graph launched inside a capture becomes part of the captured graph, which must keep the inner
//! graph's buffers.

use crate::backend::Backend;
use crate::child::passes;
use crate::program::*;
use rstest::rstest;

/// Elements of each buffer.
const LENGTH: usize = 1 << 20;
const PATTERN: u32 = 7;

#[rstest]
fn a_graph_keeps_the_buffers_of_a_graph_launched_in_its_capture(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    passes("nested graph", backend);
}

/// Drops the inner graph and the buffer that it reads, then launches the outer graph.
pub fn run() -> Result<()> {
    let communicator = open();
    let mut stream = stream(&communicator);
    let from = allocate(&communicator, LENGTH);
    let to = allocate(&communicator, LENGTH);
    write(&stream, &from, &pattern(PATTERN, LENGTH))?;
    let inner = capture(&mut stream, |stream| put(stream, 0, &to, &from))?;
    let outer = capture(&mut stream, |stream| launch(&inner, stream))?;
    drop(inner);
    drop(from);
    launch(&outer, &stream)?;
    synchronize(&stream)?;
    expect(&stream, &to, PATTERN)
}
