//! Calls that name NCCL, or refuse it.

use symmem::{CollectiveOptions, Communicator, ErrorKind, Provider, ReduceOp, Result};

/// Elements of a member's part.
const COUNT: usize = 10_000;

pub fn run(communicator: Communicator) -> Result<()> {
    let world = communicator.world_size();
    let stream = communicator.stream()?;
    let to = communicator.allocate::<i32>(&[COUNT * world])?;
    let from = communicator.allocate::<i32>(&[COUNT * world])?;
    let options = CollectiveOptions::new().provider(Provider::Nccl);
    let by_nccl = stream.with(&options);
    let unopened = by_nccl.all_reduce(&to, &from, ReduceOp::Sum);
    refused("before it is open", unopened);

    let local = communicator.rails().len();
    let rails = communicator.rails();
    let even = rails.iter().all(|rail| rail.len() == rails[0].len());
    assert!(local > 0);
    let opened = communicator.open_nccl(false);
    if !even {
        refused("nodes of different sizes", opened);
        // The others carry on.
        stream.all_reduce(&to, &from, ReduceOp::Sum)?;
        stream.synchronize()?;
        return communicator.finalize().map(drop);
    }
    opened?;
    communicator.open_nccl(false)?;
    refused("with windows", communicator.open_nccl(true));

    stream.write(&from, &vec![1 + communicator.rank() as i32; COUNT * world])?;
    let sum = (world * (world + 1) / 2) as i32;
    let expect = |length: usize, expected: &dyn Fn(usize) -> i32| {
        let mut seen = vec![0; COUNT * world];
        stream.read(&to, &mut seen)?;
        for (index, &one) in seen[..length].iter().enumerate() {
            assert_eq!(one, expected(index), "element {index} of {length}");
        }
        Ok::<_, symmem::Error>(())
    };
    // Small calls go by NCCL too if they name it.
    for count in [1, 1000, COUNT] {
        let all = count * world;
        let (whole, part) = (from.slice(..all)?, from.slice(..count)?);
        by_nccl.all_reduce(to.slice(..all)?, whole, ReduceOp::Sum)?;
        expect(all, &|_| sum)?;
        by_nccl.all_gather(to.slice(..all)?, part)?;
        expect(all, &|index| 1 + (index / count) as i32)?;
        by_nccl.broadcast(world - 1, to.slice(..all)?, whole)?;
        expect(all, &|_| world as i32)?;
        by_nccl.reduce_scatter(to.slice(..count)?, whole, ReduceOp::Sum)?;
        expect(count, &|_| sum)?;
        by_nccl.reduce(1, to.slice(..all)?, whole, ReduceOp::Maximum)?;
        if communicator.rank() == 1 {
            expect(all, &|_| world as i32)?;
        }
    }

    let part = from.slice(..COUNT)?;
    let average = by_nccl.all_reduce(&to, &from, ReduceOp::Average);
    refused("an average of integers", average);
    refused("parts for all pairs", by_nccl.all_to_all(&to, &from));
    let (narrow_to, narrow_from) = (to.slice(..COUNT)?.cast::<i16>()?, part.cast::<i16>()?);
    let narrow = by_nccl.all_reduce(narrow_to, narrow_from, ReduceOp::Sum);
    refused("integers of 16 bits", narrow);
    let windows = CollectiveOptions::new().provider(Provider::NcclWindows);
    let windows = stream.with(&windows).all_reduce(&to, &from, ReduceOp::Sum);
    refused("windows", windows);
    // A group whose rails are others.
    let key = (world - communicator.rank()) as u32;
    let group = communicator.split(Some(0), key)?;
    let reversed = options.group(group.as_ref());
    let reversed = stream.with(&reversed).all_reduce(&to, &from, ReduceOp::Sum);
    refused("a group in another order", reversed);
    drop(group);
    communicator.finalize().map(drop)
}

fn refused<T: std::fmt::Debug>(what: &str, outcome: Result<T>) {
    let error = outcome.expect_err(what);
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {error}");
}
