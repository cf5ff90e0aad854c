//! A named grid for which a device that ranks share has no room.

use symmem::{CollectiveOptions, Communicator, ErrorKind, ReduceOp, Result};

const COUNT: usize = 1000;
/// More blocks than a quarter of what each of four ranks may have of a device.
const BLOCKS: u32 = 16;

pub fn run(communicator: Communicator) -> Result<()> {
    communicator.allow_concurrent_collectives(4)?;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream()?;
    let from = communicator.allocate::<i32>(&[COUNT])?;
    let to = communicator.allocate::<i32>(&[COUNT * world])?;
    stream.write(&from, &vec![1 + rank as i32; COUNT])?;
    let options = CollectiveOptions::new().blocks(Some(BLOCKS));

    // All ranks of a node see alike that there is no room.
    let node = communicator.split(Some(communicator.node() as u32), rank as u32)?;
    let within = options.group(node.as_ref());
    if node.as_ref().is_some_and(|node| node.world_size() > 1) {
        let refused = stream.with(&within).all_reduce(&from, &from, ReduceOp::Sum);
        let error = refused.expect_err("16 blocks have no room");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("co-resident"), "{error}");
    }
    drop(node);

    // The only rank of the other node has a leg and no grid: it would wait.
    let calls = stream.with(&options);
    calls.gather(0, &to, &from)?;
    if rank == 0 {
        let mut seen = vec![0; COUNT * world];
        stream.read(&to, &mut seen)?;
        let expected = |at: usize| 1 + (at / COUNT) as i32;
        assert!((0..COUNT * world).all(|at| seen[at] == expected(at)));
    }
    let sums = to.slice(..COUNT)?;
    calls.all_reduce(sums, &from, ReduceOp::Sum)?;
    let mut seen = vec![0; COUNT];
    stream.read(to.slice(..COUNT)?, &mut seen)?;
    let sum = (world * (world + 1) / 2) as i32;
    assert!(seen.iter().all(|&one| one == sum), "the sum is {sum}");
    communicator.finalize().map(drop)
}
