//! Ranks as threads of one process: each gathers all parts with one-sided gets.

use symmem::{Builder, LaunchEnvironment, Result};

const WORLD: u32 = 4;
const PART: usize = 1000;

fn main() -> Result<()> {
    // The name under which the ranks meet; no other job of this user may use it.
    let job = format!("threads-example-{}", std::process::id());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..WORLD)
            .map(|rank| LaunchEnvironment::local(rank, WORLD, job.clone()))
            .map(|launch| scope.spawn(move || gather(launch?)))
            .collect();
        ranks.into_iter().try_for_each(|rank| {
            // Resumes a rank's panic, which has already printed its message.
            rank.join()
                .unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        })
    })
}

fn gather(launch: LaunchEnvironment) -> Result<()> {
    let communicator = Builder::new().launch(launch).build()?;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream()?;
    let part = communicator.allocate::<f32>(&[PART])?;
    let whole = communicator.allocate::<f32>(&[world, PART])?;

    part.write(&stream, 0, &[rank as f32; PART])?;
    // After the barrier, every rank's part is written and visible.
    stream.barrier()?;
    for step in 0..world {
        // Each rank starts with its own part, which spreads the ranks over the links.
        let peer = (rank + step) % world;
        stream.get(peer, whole.slice(peer * PART..(peer + 1) * PART)?, &part)?;
    }
    let mut values = vec![0.0; world * PART];
    whole.read(&stream, 0, &mut values)?;
    for (peer, part) in values.chunks(PART).enumerate() {
        assert!(part.iter().all(|&value| value == peer as f32));
    }
    println!("rank {rank} of {world}: gathered {} elements", values.len());

    // `free` waits for all ranks, so no rank frees memory that a peer may still read.
    part.free()?;
    whole.free()?;
    communicator.finalize()?;
    Ok(())
}
