//! Two open exchanges can be swapped, like any two values of one type. The sends and receives of an
//! exchange must stay with the communicator that owns their buffers.

use crate::backend::Backend;
use crate::child::passes;
use crate::program::*;
use rstest::rstest;

/// Elements of each buffer that is sent or received.
const LENGTH: usize = 1 << 20;
const PATTERN: u32 = 11;

#[rstest]
fn an_exchange_that_is_swapped_with_another_keeps_its_buffers(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    passes("swapped exchanges", backend);
}

/// Opens two communicators and swaps an exchange on a blocked stream of the first with an exchange on a stream of the
/// second. If the second exchange's send runs on the blocked stream, the second communicator does not notice: all its
/// own streams are idle, so it frees the sent buffer as soon as the buffer is dropped, and the blocked stream reads it
/// later.
pub fn run() -> Result<()> {
    let (first, second) = (open(), open());
    let (blocked, other) = (stream(&first), stream(&first));
    let scratch = allocate(&first, 2);
    let stream = stream(&second);
    let from = allocate(&second, LENGTH);
    let to = allocate(&second, LENGTH);
    write(&stream, &from, &pattern(PATTERN, LENGTH))?;
    block(&blocked, 0)?;
    let exchanged = exchange_swapped(&blocked, &stream, 0, &to, &from);
    drop(from);
    unblock(&other, 0, &scratch)?;
    synchronize(&other)?;
    synchronize(&blocked)?;
    synchronize(&stream)?;
    // A refused exchange enqueues nothing.
    exchanged?;
    expect(&stream, &to, PATTERN)
}
