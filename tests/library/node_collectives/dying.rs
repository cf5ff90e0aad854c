//! A rank that dies while the others are in the legs of an all-reduce.

use std::time::{Duration, Instant};
use symmem::{Communicator, ErrorKind, ReduceOp, Result};

/// The rank that dies.
const DEAD: usize = 1;
/// Time after which a survivor must have its error; the deadline of waits is longer.
const LIMIT: Duration = Duration::from_secs(25);
/// Calls that all ranks complete first.
const WARM: usize = 3;

pub fn run(communicator: Communicator, by_nccl: bool) -> Result<()> {
    if by_nccl {
        communicator.open_nccl(false)?;
    }
    let stream = communicator.stream()?;
    let buffer = communicator.allocate::<f32>(&[500_000])?;
    for _ in 0..WARM {
        stream.all_reduce(&buffer, &buffer, ReduceOp::Sum)?;
        stream.synchronize()?;
    }
    if communicator.rank() == DEAD {
        // In the middle of a call, if it gets that far.
        let _ = stream.all_reduce(&buffer, &buffer, ReduceOp::Sum);
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    let begun = Instant::now();
    let error = loop {
        let called = stream.all_reduce(&buffer, &buffer, ReduceOp::Sum);
        if let Err(error) = called.and_then(|()| stream.synchronize()) {
            break error;
        }
        assert!(begun.elapsed() < LIMIT, "no call fails");
    };
    assert!(begun.elapsed() < LIMIT, "late: {error}");
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error:?}");
    assert_eq!(error.peer(), Some(DEAD), "{error:?}");
    Ok(())
}
