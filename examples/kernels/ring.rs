//! Launches the kernel of `ring.cu`, however it was compiled, and checks its results.

use symmem::backend::abi::CAPABILITY_LAUNCH;
use symmem::{Communicator, Geometry, Handle, Result};

/// The kernel's arguments, passed by value; `ring.cu` declares the same struct.
#[repr(C)]
#[derive(Clone, Copy)]
struct RingArguments {
    inbox: Handle,
    outbox: u64,
    result: u64,
    count: u64,
}

const COUNT: usize = 10_000;
/// The channel of this kernel's signals; streams may use the other channels meanwhile.
const CHANNEL: u32 = 3;
/// Each block waits for all blocks of the previous rank's kernel, so all blocks must be co-resident.
const GEOMETRY: Geometry = Geometry {
    blocks: [4, 1, 1],
    threads: [256, 1, 1],
    shared_memory: 0,
};

/// Returns whether the backend can launch kernels; prints a message if not.
pub fn has_kernels(communicator: &Communicator) -> bool {
    let has = communicator.capabilities().flags & CAPABILITY_LAUNCH != 0;
    if !has {
        println!("kernels need a GPU, and this backend has none: skipped");
    }
    has
}

/// Runs the kernel three times.
///
/// # Safety
/// `code` is PTX, a cubin or a code object of `ring.cu`.
pub unsafe fn run(communicator: &Communicator, code: &[u8]) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    // Loaded before any kernel waits for a peer; see `Communicator::load_module`.
    // SAFETY: the caller passes code of `ring.cu`, as this function requires.
    let module = unsafe { communicator.load_module(code)? };
    let kernel = module.function("symmem_example_ring")?;

    let stream = communicator.stream()?;
    let inbox = communicator.allocate::<u32>(&[COUNT])?;
    let outbox = communicator.allocate::<u32>(&[COUNT])?;
    let result = communicator.allocate::<u32>(&[COUNT])?;
    let arguments = RingArguments {
        inbox: inbox.handle(CHANNEL)?,
        outbox: outbox.local().address().0,
        result: result.local().address().0,
        count: COUNT as u64,
    };
    let value = |rank: usize, lap: usize, index: usize| (1000 * (index + lap) + rank) as u32;
    for lap in 0..3 {
        let sent: Vec<u32> = (0..COUNT).map(|index| value(rank, lap, index)).collect();
        outbox.write(&stream, 0, &sent)?;
        // SAFETY: the kernel takes this struct and writes at most `count` words; the buffers are freed after the
        // stream is idle, and four blocks fit on any device.
        unsafe { stream.launch(&kernel, &GEOMETRY, &arguments)? };
        // Keeps a peer from overwriting an inbox that its owner has not read.
        stream.barrier()?;
        let mut seen = vec![0; COUNT];
        result.read(&stream, 0, &mut seen)?;
        let previous = (rank + world - 1) % world;
        for (index, &seen) in seen.iter().enumerate() {
            assert_eq!(
                seen,
                2 * value(previous, lap, index),
                "lap {lap}, word {index}"
            );
        }
    }
    println!("rank {rank} of {world}: the kernel handed on {COUNT} words three times");

    inbox.free()?;
    outbox.free()?;
    result.free()
}
