//! Measures the host time of a put, compared with the raw driver call, on a machine with an NVIDIA GPU.
//!
//! A world of one rank puts 8 bytes to itself, by kernel and by copy engine, in turns with the same work given
//! directly to `libcuda`. Batches are short, so that the launch queue never fills and only the host is timed.

use std::ffi::c_void;
use std::time::Instant;
use symmem::backend::Device;
use symmem::backend::abi::{SignalTarget, TransferArguments};
use symmem::backends::Selection;
use symmem::{Builder, Method, TransferOptions};

type Launch = unsafe extern "C" fn(
    *mut c_void,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    u32,
    *mut c_void,
    *mut *mut c_void,
    *mut *mut c_void,
) -> u32;
type Copy = unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> u32;

const BATCH: usize = 200;
const BATCHES: usize = 101;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let communicator = match Builder::new()
        .backend(Selection::Named("cuda".into()))
        .build()
    {
        Ok(communicator) => communicator,
        Err(error) => {
            println!("skipped, no CUDA backend: {error}");
            return Ok(());
        }
    };
    let stream = communicator.stream()?;
    let buffer = communicator.allocate::<u64>(&[2])?;
    let (one, other) = (buffer.slice(..1)?, buffer.slice(1..2)?);
    let address = buffer.local().address();
    let arguments = TransferArguments {
        destination: address,
        source: symmem::DeviceAddress(address.0 + 8),
        bytes: 8,
        signal: SignalTarget::default(),
        stages: 0,
        stage_bytes: 0,
    };
    let name = "symmem_copy_vector";
    // SAFETY: the backend is only used to look up a kernel.
    let function = unsafe { communicator.backend() }.builtin_function(name)?;
    // SAFETY: the driver is already loaded, so no initializer runs.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }?;
    // SAFETY: the symbols have these types (cuda.h).
    let (launch, copy) = unsafe {
        (
            library.get::<Launch>(b"cuLaunchKernel")?,
            library.get::<Copy>(b"cuMemcpyAsync")?,
        )
    };
    let raw_stream = stream.raw() as *mut c_void;
    let mut parameter: *mut c_void = (&raw const arguments).cast_mut().cast();
    let mut raw_launch = || {
        // SAFETY: the kernel takes this struct, and the buffer lives until the stream is idle.
        let code = unsafe {
            launch(
                function.0 as *mut c_void,
                1,
                1,
                1,
                128,
                1,
                1,
                0,
                raw_stream,
                &raw mut parameter,
                std::ptr::null_mut(),
            )
        };
        assert_eq!(code, 0, "cuLaunchKernel");
    };
    let raw_copy = || {
        // SAFETY: both words are in the buffer, which lives until the stream is idle.
        let code = unsafe { copy(address.0, address.0 + 8, 8, raw_stream) };
        assert_eq!(code, 0, "cuMemcpyAsync");
    };
    let kernel = TransferOptions::new()
        .method(Method::Vector)
        .geometry(1, 128);
    let engine = TransferOptions::new().method(Method::CopyEngine);
    let put = |options: &TransferOptions| {
        stream
            .with(options)
            .put(0, one, other)
            .expect("checked by the first call");
    };

    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..BATCHES {
        let mut timed = |index: usize, call: &mut dyn FnMut()| {
            let start = Instant::now();
            for _ in 0..BATCH {
                call();
            }
            times[index].push(start.elapsed().as_nanos() as f64 / BATCH as f64);
            stream.synchronize().expect("nothing fails here");
        };
        timed(0, &mut raw_launch);
        timed(1, &mut || put(&kernel));
        timed(2, &mut || raw_copy());
        timed(3, &mut || put(&engine));
    }
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    println!("host time per call in ns, median of {BATCHES} batches of {BATCH} calls");
    for (what, raw, ours) in [("kernel", 0, 1), ("copy engine", 2, 3)] {
        println!(
            "{what}: driver {:.0}, Queue::put {:.0}, difference {:.0}",
            medians[raw],
            medians[ours],
            medians[ours] - medians[raw]
        );
    }
    buffer.free()?;
    communicator.finalize()?;
    Ok(())
}
