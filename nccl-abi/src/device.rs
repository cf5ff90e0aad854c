//! The GPU that a thread's next call is for.

use crate::failure::Failure;
use std::ffi::c_int;
use std::sync::OnceLock;
use symmem_gpu::library::Library;

type Get = unsafe extern "C" fn(*mut c_int) -> c_int;

/// The driver or runtime, its file names, and its function that tells the thread's device. A program has one of them:
/// AMD's runtime knows the device that the program chose, and so does NVIDIA's driver since CUDA 12, where
/// `cudaSetDevice` makes the device's context current.
const DRIVERS: [(&[&str], &std::ffi::CStr); 2] = [
    (&["libcuda.so.1"], c"cuCtxGetDevice"),
    (
        &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"],
        c"hipGetDevice",
    ),
];

/// Returns the ordinal of the calling thread's device.
///
/// # Errors
/// If neither vendor's driver is there, or the thread has chosen no device.
pub fn current() -> Result<u32, Failure> {
    static FUNCTION: OnceLock<Option<Get>> = OnceLock::new();
    let function = FUNCTION.get_or_init(|| {
        DRIVERS.iter().find_map(|(names, function)| {
            let library = Library::open_first(names, &[], "").ok()?;
            let address = library.symbol(function)?;
            // SAFETY: both functions have this signature, and the library stays loaded.
            Some(unsafe { std::mem::transmute::<*mut std::ffi::c_void, Get>(address) })
        })
    });
    let usage = |message: &str| Failure::new(crate::abi::INVALID_USAGE, message);
    let function = function.ok_or_else(|| usage("there is neither CUDA's nor HIP's driver"))?;
    let mut device = -1;
    // SAFETY: the pointer is to a number on this stack.
    let code = unsafe { function(&mut device) };
    match (code, u32::try_from(device)) {
        (0, Ok(device)) => Ok(device),
        _ => Err(usage(&format!(
            "the thread has no current device (code {code}); call cudaSetDevice before ncclCommInitRank"
        ))),
    }
}
