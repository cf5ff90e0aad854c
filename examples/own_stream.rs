//! Transfers on a stream that the application created, in order with the application's own work.
//!
//! `symmem run -n 2 -- target/debug/examples/own_stream`

fn main() -> symmem::Result<()> {
    let communicator = symmem::init()?;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let buffer = communicator.allocate::<u64>(&[2, 256])?;

    // Here goes a `cudaStream_t` of cudarc, candle or a C library, as a number. 0 is the device's default stream,
    // which exists on every backend.
    let application_stream = 0;
    // SAFETY: the default stream belongs to this rank's device and outlives everything.
    let stream = unsafe { communicator.stream_from_raw(application_stream) };

    buffer.write(&stream, 0, &[rank as u64; 256])?;
    // Kernels that the application enqueued before this line have run when the put reads the bytes. Kernels enqueued
    // after the wait see what the neighbor put.
    let (source, destination) = (buffer.slice(..256)?, buffer.slice(256..512)?);
    stream.put_signal((rank + 1) % world, destination, source, 0)?;
    let neighbor = (rank + world - 1) % world;
    stream.wait_signal(neighbor, 0)?;

    let mut received = [0; 256];
    buffer.read(&stream, 256, &mut received)?;
    assert_eq!(received, [neighbor as u64; 256]);
    println!("rank {rank} of {world}: received from rank {neighbor}");

    buffer.free()?;
    communicator.finalize()?;
    Ok(())
}
