//! Every rank puts into the next rank's memory and signals, eagerly and from a captured graph.
//!
//! `symmem run -n 4 -- target/debug/examples/ring`; started alone, it is a ring of one.

const LENGTH: usize = 1 << 16;
/// Signals are counted per peer and channel; any channel below [`symmem::CHANNELS`] works.
const CHANNEL: u32 = 0;
const LAPS: usize = 10;

fn main() -> symmem::Result<()> {
    let communicator = symmem::init()?;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);

    let mut stream = communicator.stream()?;
    let inbox = communicator.allocate::<u32>(&[LENGTH])?;
    let outbox = communicator.allocate::<u32>(&[LENGTH])?;
    outbox.write(&stream, 0, &vec![rank as u32; LENGTH])?;

    stream.put_signal(next, &inbox, &outbox, CHANNEL)?;
    stream.wait_signal(previous, CHANNEL)?;

    let mut received = vec![0; LENGTH];
    inbox.read(&stream, 0, &mut received)?;
    assert!(received.iter().all(|&value| value == previous as u32));

    // A lap passes on what the last lap received. The barrier keeps a fast rank from overwriting an inbox that its
    // owner has not passed on yet.
    let lap = stream.capture(|queue| {
        queue.put(rank, &outbox, &inbox)?;
        queue.barrier()?;
        queue.put_signal(next, &inbox, &outbox, CHANNEL)?;
        queue.wait_signal(previous, CHANNEL)
    })?;
    for _ in 0..LAPS {
        stream.launch_graph(&lap)?;
    }
    inbox.read(&stream, 0, &mut received)?;
    let origin = (rank + world * (LAPS + 1) - (LAPS + 1)) % world;
    assert!(received.iter().all(|&value| value == origin as u32));
    println!("rank {rank} of {world}: {LAPS} laps, now holding what rank {origin} sent");

    drop(lap);
    inbox.free()?;
    outbox.free()?;
    communicator.finalize()?;
    Ok(())
}
