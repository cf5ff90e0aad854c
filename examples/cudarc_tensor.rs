//! Sums a tensor that cudarc allocated, on cudarc's stream: nothing is registered or copied. candle's CUDA tensors are
//! cudarc's slices.
//!
//! `symmem run -n 2 -- target/debug/examples/cudarc_tensor`, on CUDA

use cudarc::driver::{CudaContext, DevicePtrMut};
use symmem::{DeviceAddress, ReduceOp};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let communicator = symmem::init()?;
    let (rank, world) = (communicator.rank() as f32, communicator.world_size() as f32);
    // Both use the device's primary context.
    let context = CudaContext::new(communicator.device().ordinal as usize)?;
    let cuda = context.new_stream()?;
    let mut tensor = cuda.clone_htod(&[rank + 1.0; 4096])?;

    // SAFETY: the stream is of this rank's device, and `cuda` lives until it was synchronized below.
    let stream = unsafe { communicator.stream_from_raw(cuda.cu_stream() as u64) };
    {
        let length = tensor.len();
        let (address, _written) = tensor.device_ptr_mut(&cuda);
        // SAFETY: the tensor lives until the stream was synchronized below, and cudarc orders its own uses by the stream.
        let elements = unsafe { communicator.device_slice::<f32>(DeviceAddress(address), length) }?;
        stream.all_reduce(elements, elements, ReduceOp::Sum)?;
    }
    // Work of cudarc that comes after it sees the sum.
    let sums = cuda.clone_dtoh(&tensor)?;
    stream.synchronize()?;
    assert_eq!(sums, [world * (world + 1.0) / 2.0; 4096]);
    println!("rank {rank}: every element is {}", sums[0]);

    drop(stream);
    communicator.finalize()?;
    Ok(())
}
