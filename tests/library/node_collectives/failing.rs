//! A leg that NCCL refuses.

use symmem::{CollectiveOptions, Communicator, Provider, ReduceOp, Result};

pub fn run(communicator: Communicator) -> Result<()> {
    communicator.open_nccl(false)?;
    let stream = communicator.stream()?;
    let buffer = communicator.allocate::<f32>(&[1000])?;
    let by_nccl = CollectiveOptions::new().provider(Provider::Nccl);
    let error = stream
        .with(&by_nccl)
        .all_reduce(&buffer, &buffer, ReduceOp::Sum);
    let error = error.expect_err("NCCL's first all-reduce fails");
    let text = format!("{error:?}");
    assert!(text.contains("ncclAllReduce"), "{text}");
    // The stages that the call has enqueued wait for nobody.
    stream.synchronize()?;
    communicator.finalize().map(drop)
}
