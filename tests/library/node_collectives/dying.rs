//! A rank that dies while the others are in the legs of an all-reduce. They go on without it.

use std::time::{Duration, Instant};
use symmem::{CollectiveOptions, Communicator, ErrorKind, Provider, ReduceOp, Result};

/// The rank that dies.
const DEAD: usize = 1;
/// Time after which a survivor must have its error; the deadline of waits is longer.
const LIMIT: Duration = Duration::from_secs(25);
/// Calls that it completes before.
const COMPLETE: usize = 3;

pub fn run(communicator: Communicator, by_nccl: bool) -> Result<()> {
    if by_nccl {
        communicator.open_nccl(false)?;
    }
    let stream = communicator.stream()?;
    let buffer = communicator.allocate::<f32>(&[500_000])?;
    let begun = Instant::now();
    let mut calls = 0;
    let error = loop {
        let called = stream.all_reduce(&buffer, &buffer, ReduceOp::Sum);
        if communicator.rank() == DEAD && calls == COMPLETE {
            // In the middle of a call.
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
        if let Err(error) = called.and_then(|()| stream.synchronize()) {
            break error;
        }
        calls += 1;
        assert!(begun.elapsed() < LIMIT, "no call fails");
    };
    assert!(begun.elapsed() < LIMIT, "late: {error}");
    assert_eq!(error.kind(), ErrorKind::PeerDied, "{error:?}");
    assert_eq!(error.peer(), Some(DEAD), "{error:?}");
    drop((buffer, stream));
    let survivors = communicator.rebuild()?;
    if by_nccl {
        survivors.open_nccl(false)?;
    }
    let stream = survivors.stream()?;
    let buffer = survivors.allocate::<f32>(&[500_000])?;
    stream.write(&buffer, &vec![1.0; 500_000])?;
    let options = CollectiveOptions::new().provider(match by_nccl {
        true => Provider::Nccl,
        false => Provider::Symmem,
    });
    let calls = stream.with(&options);
    calls.all_reduce(&buffer, &buffer, ReduceOp::Sum)?;
    let mut sums = vec![0.0; 500_000];
    stream.read(&buffer, &mut sums)?;
    let expected = survivors.world_size() as f32;
    assert!(sums.iter().all(|&sum| sum == expected), "{expected}");
    drop((buffer, stream));
    survivors.finalize().map(drop)
}
