//! How long collectives take.

use std::time::{Duration, Instant};
use symmem::{Communicator, ReduceOp, Result};

/// Bytes of the largest call.
const MOST: usize = 64 << 20;
/// Time that the calls of a size take, about.
const EACH: Duration = Duration::from_millis(400);

/// Prints the median time of an all-reduce of f32 and of an all-gather, by its bytes.
pub fn run(communicator: Communicator) -> Result<()> {
    let stream = communicator.stream()?;
    let source = communicator.allocate::<f32>(&[MOST / 4])?;
    let destination = communicator.allocate::<f32>(&[MOST / 4])?;
    let world = communicator.world_size();
    stream.write(&source, &vec![1.0_f32; MOST / 4])?;
    let mut bytes = 8;
    while bytes <= MOST {
        let (to, from) = (destination.slice(..bytes / 4)?, source.slice(..bytes / 4)?);
        let mut medians = Vec::new();
        let part = (bytes / 4 / world).max(1);
        for gathers in [false, true] {
            let call = || match gathers {
                false => stream.all_reduce(to, from, ReduceOp::Sum),
                true => {
                    stream.all_gather(destination.slice(..part * world)?, source.slice(..part)?)
                }
            };
            // All ranks make as many calls.
            let calls = (1_usize << 22).div_ceil(bytes + (1 << 14)).clamp(5, 100);
            let mut times = Vec::new();
            let begun = Instant::now();
            for _ in 0..calls {
                let start = Instant::now();
                call()?;
                stream.synchronize()?;
                times.push(start.elapsed());
            }
            if begun.elapsed() > 20 * EACH && communicator.rank() == 0 {
                println!("slow: {bytes} bytes");
            }
            times.sort();
            medians.push(times[calls / 2]);
        }
        if communicator.rank() == 0 {
            let times: Vec<_> = medians.iter().map(Duration::as_nanos).collect();
            println!(
                "{bytes:>9} bytes: all_reduce {:>10.1} us, all_gather {:>10.1} us",
                times[0] as f64 / 1e3,
                times[1] as f64 / 1e3
            );
        }
        bytes *= 8;
    }
    communicator.finalize().map(drop)
}
