//! Round trips between two ranks, as the benchmark times them.

use super::*;

pub const SIGNAL: [&str; 1] = ["symmem_latency_signal"];
pub const PACKET: [&str; 1] = ["symmem_latency_packet"];

/// More than a word for each thread, so that some store twice.
const PAYLOAD: u64 = 1040;

/// Runs both ranks' kernels twice on the same memory. A kernel that finds a wrong payload says that it gave up.
fn round_trips(kernels: &Kernels, seed: u64, kernel: &str, bytes: u64) -> Result<(), Error> {
    const ROUND_TRIPS: u32 = 3;
    let mut world = World::new(kernels, seed);
    // Flags must be in uncached memory on gfx90a; elsewhere the payload may be cached.
    let uncached = kernels.target == Target::Gfx90a || seed.is_multiple_of(2);
    let inboxes = world.each("inbox", STRIDE + 2 * bytes, uncached);
    let results = world.each("result", 64, false);
    for call in 0..2 {
        for rank in 0..RANKS {
            let arguments = Arguments::default()
                .longs(&[inboxes[rank], inboxes[1 - rank], bytes])
                .longs(&[results[rank] + 8 * call])
                .watch(world.watch, rank)
                .words(&[ROUND_TRIPS, ROUND_TRIPS * call as u32])
                .words(&[(rank == 0).into(), 1 - rank as u32]);
            world.launch(rank, kernel, 1, THREADS, arguments);
        }
    }
    world.finish()?;
    if EXTENT.get() == Extent::Alone {
        let time = world.machine.memory().read(results[0], 8);
        if time != [0xff; 8] {
            return Err(Error::Violation(format!(
                "{kernel}: a rank whose wait gave up says that it took {time:?} ns"
            )));
        }
    }
    if !is_whole() {
        return Ok(());
    }
    for (rank, result) in results.iter().enumerate() {
        for call in 0..2 {
            let time = world.machine.memory().read(result + 8 * call, 8);
            if time == [0xff; 8] || time == [0; 8] {
                return Err(Error::Violation(format!(
                    "{kernel}: rank {rank} gave up in call {call}"
                )));
            }
        }
    }
    Ok(())
}

/// Puts of a payload with a signal, which the other checks.
pub fn signals(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    round_trips(kernels, seed, SIGNAL[0], PAYLOAD)
}

/// Packets of data and flag.
pub fn packets(kernels: &Kernels, seed: u64) -> Result<(), Error> {
    round_trips(kernels, seed, PACKET[0], 0)
}
