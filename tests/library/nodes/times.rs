//! Times of one-sided operations between two nodes, as JSON lines: not a test, but a role for a machine with two GPUs, and
//! for the fakes, where only the lines count.

use std::time::{Duration, Instant};
use symmem::{Communicator, Result};

/// Most bytes of a put.
const MOST: usize = 64 << 20;
/// Bytes that each point moves at least, and the fewest puts.
const VOLUME: usize = 256 << 20;

/// Each rank of the first node puts to its partner of the second; rank 0 prints the lines.
pub fn run(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let half = world / 2;
    let peer = (rank + half) % world;
    let stream = communicator.stream()?;
    let from = communicator.allocate::<u8>(&[MOST])?;
    let to = communicator.allocate::<u8>(&[MOST])?;
    let status = communicator.network().map(|status| status.to_string());
    let line = |what: &str, bytes: usize, microseconds: f64, rate: f64| {
        if rank == 0 {
            println!(
                "{{\"what\":\"{what}\",\"ranks\":{world},\"network\":\"{}\",\"bytes\":{bytes},\
                 \"us\":{microseconds:.2},\"gbyte_per_s\":{rate:.3}}}",
                status.as_deref().unwrap_or_default()
            );
        }
    };
    let sizes = (12..=26).step_by(2).map(|bits| 1_usize << bits);
    for bytes in sizes {
        let count = (VOLUME / bytes).clamp(4, 1000);
        for both in [false, true] {
            let sends = rank < half || both;
            let mut best = Duration::MAX;
            for _ in 0..3 {
                stream.barrier()?;
                stream.synchronize()?;
                let start = Instant::now();
                for number in 0..count {
                    // Places of their own: puts to the same bytes wait for each other.
                    let at = number * bytes % MOST;
                    let place = at..at + bytes;
                    if sends {
                        stream.put(peer, to.slice(place.clone())?, from.slice(place)?)?;
                    }
                }
                stream.synchronize()?;
                // The slowest rank counts.
                let own = start.elapsed().as_nanos() as u64;
                let all = communicator.host_all_gather(&own.to_le_bytes())?;
                let nanoseconds = |one: &Vec<u8>| {
                    let one = one.as_slice().try_into();
                    one.map_or(u64::MAX, u64::from_le_bytes)
                };
                let slowest = all.iter().map(nanoseconds).max().unwrap_or_default();
                best = best.min(Duration::from_nanos(slowest));
            }
            let each = best.as_secs_f64() / count as f64;
            let senders = if both { world } else { half };
            let what = if both { "put_both_ways" } else { "put" };
            let rate = (bytes * senders) as f64 / each / 1e9;
            line(what, bytes, each * 1e6, rate);
        }
    }
    for bytes in [4, 1024, 16 << 10, 64 << 10, 1 << 20] {
        const COUNT: usize = 200;
        stream.barrier()?;
        stream.synchronize()?;
        let mut times = Vec::new();
        for _ in 0..COUNT {
            let start = Instant::now();
            let give = || stream.put_signal(peer, to.slice(..bytes)?, from.slice(..bytes)?, 7);
            if rank < half {
                give()?;
                stream.wait_signal(peer, 7)?;
            } else {
                stream.wait_signal(peer, 7)?;
                give()?;
            }
            stream.synchronize()?;
            times.push(start.elapsed());
        }
        times.sort();
        // There and back.
        let one_way = times[COUNT / 2].as_secs_f64() / 2.0;
        line(
            "put_signal",
            bytes,
            one_way * 1e6,
            bytes as f64 / one_way / 1e9,
        );
    }
    Ok(())
}
