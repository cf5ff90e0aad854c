//! What the driver knows of the program: the GPU that a thread's next call is for, and the capture that a stream is in.

use crate::failure::Failure;
use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;
use symmem::backend::abi::RawStream;
use symmem_gpu::library::Library;

type Current = unsafe extern "C" fn(*mut c_int) -> c_int;
type Capture = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut u64) -> c_int;

/// A driver or runtime, by its file names.
struct Driver {
    files: &'static [&'static str],
    /// Its function that tells the thread's device.
    current: &'static CStr,
    /// Its function that tells a stream's capture.
    capture: &'static CStr,
}

/// A program has one of them: AMD's runtime knows the device that the program chose, and so does NVIDIA's driver since CUDA
/// 12, where `cudaSetDevice` makes the device's context current.
const DRIVERS: [Driver; 2] = [
    Driver {
        files: &["libcuda.so.1"],
        current: c"cuCtxGetDevice",
        capture: c"cuStreamGetCaptureInfo",
    },
    Driver {
        files: &["libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"],
        current: c"hipGetDevice",
        capture: c"hipStreamGetCaptureInfo",
    },
];

/// Functions of the program's driver.
struct Functions {
    current: Current,
    capture: Option<Capture>,
}

fn functions() -> Option<&'static Functions> {
    static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
    let found = FUNCTIONS.get_or_init(|| {
        DRIVERS.iter().find_map(|driver| {
            let library = Library::open_first(driver.files, &[], "").ok()?;
            let current = library.symbol(driver.current)?;
            let capture = library.symbol(driver.capture);
            // SAFETY: both drivers' functions of these names have these signatures, and the library stays loaded.
            // NVIDIA's driver gives later forms of the second another name.
            unsafe {
                Some(Functions {
                    current: std::mem::transmute::<*mut c_void, Current>(current),
                    capture: capture.map(|it| std::mem::transmute::<*mut c_void, Capture>(it)),
                })
            }
        })
    });
    found.as_ref()
}

/// Returns the ordinal of the calling thread's device.
///
/// # Errors
/// If neither vendor's driver is there, or the thread has chosen no device.
pub fn current() -> Result<u32, Failure> {
    let usage = |message: &str| Failure::new(crate::abi::INVALID_USAGE, message);
    let functions = functions().ok_or_else(|| usage("there is neither CUDA's nor HIP's driver"))?;
    let mut device = -1;
    // SAFETY: the pointer is to a number on this stack.
    let code = unsafe { (functions.current)(&mut device) };
    match (code, u32::try_from(device)) {
        (0, Ok(device)) => Ok(device),
        _ => Err(usage(&format!(
            "the thread has no current device (code {code}); call cudaSetDevice before ncclCommInitRank"
        ))),
    }
}

/// Returns the number of the capture that a stream is in: no two captures of a process have the same. 0 if the driver does
/// not tell.
///
/// # Safety
/// The stream lives, and is being captured.
pub unsafe fn capture(stream: RawStream) -> u64 {
    let (mut status, mut number) = (0, 0);
    let told = functions().and_then(|functions| functions.capture);
    let code = told.map(|told| {
        let stream = std::ptr::without_provenance_mut(stream.0 as usize);
        // SAFETY: the pointers are to numbers on this stack; the rest is guaranteed by the caller.
        unsafe { told(stream, &mut status, &mut number) }
    });
    match (code, status) {
        (Some(0), 1) => number,
        _ => 0,
    }
}
