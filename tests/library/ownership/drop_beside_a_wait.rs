//! Two communicators of one process share a device, and a stream of one of them waits for a peer. Freeing memory of the
//! other may wait for all work on the device. The thread that drops a buffer would then wait for the peer, which may
//! wait for that thread.

use crate::backend::Backend;
use crate::child::passes;
use crate::program::*;
use rstest::rstest;

const LENGTH: usize = 1 << 10;
const PATTERN: u32 = 13;

#[rstest]
fn a_buffer_is_dropped_beside_a_communicator_that_waits(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    passes("drop beside a wait", backend);
}

#[rstest]
fn a_buffer_is_freed_beside_a_communicator_that_waits(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    passes("free beside a wait", backend);
}

/// Blocks a stream of the first communicator, then drops an idle buffer of the second and allocates another, which
/// releases dropped memory. The stream is unblocked only after that, so if the release waits for the stream, the
/// stream's wait times out. The fake runtimes also report a free that waits for a stream.
pub fn run() -> Result<()> {
    end_beside_a_wait(|buffer| {
        drop(buffer);
        Ok(())
    })
}

/// Does the same with a buffer that is freed.
pub fn run_freed() -> Result<()> {
    end_beside_a_wait(free)
}

fn end_beside_a_wait(end: impl FnOnce(Buffer) -> Result<()>) -> Result<()> {
    let (first, second) = (open(), open());
    let (blocked, other) = (stream(&first), stream(&first));
    let scratch = allocate(&first, 2);
    let stream = stream(&second);
    let dropped = allocate(&second, LENGTH);
    write(&stream, &dropped, &pattern(PATTERN, LENGTH))?;
    synchronize(&stream)?;
    block(&blocked, 0)?;
    end(dropped)?;
    let kept = allocate(&second, LENGTH);
    write(&stream, &kept, &pattern(PATTERN, LENGTH))?;
    synchronize(&stream)?;
    unblock(&other, 0, &scratch)?;
    synchronize(&other)?;
    synchronize(&blocked)?;
    expect(&stream, &kept, PATTERN)
}
