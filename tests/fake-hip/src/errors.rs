//! Error names, and each thread's last error.

use std::ffi::{CStr, c_char, c_int};

use fake_device::api;
use fake_device::call::{put, take_last_failure};
use fake_device::error::Code;

/// The runtime's names of the errors that the fakes return, by number.
const NAMES: &[(i32, &CStr)] = &[
    (0, c"hipSuccess"),
    (1, c"hipErrorInvalidValue"),
    (2, c"hipErrorOutOfMemory"),
    (3, c"hipErrorNotInitialized"),
    (4, c"hipErrorDeinitialized"),
    (17, c"hipErrorInvalidDevicePointer"),
    (100, c"hipErrorNoDevice"),
    (101, c"hipErrorInvalidDevice"),
    (200, c"hipErrorInvalidImage"),
    (201, c"hipErrorInvalidContext"),
    (205, c"hipErrorMapFailed"),
    (206, c"hipErrorUnmapFailed"),
    (208, c"hipErrorAlreadyMapped"),
    (209, c"hipErrorNoBinaryForGpu"),
    (211, c"hipErrorNotMapped"),
    (214, c"hipErrorECCNotCorrectable"),
    (217, c"hipErrorPeerAccessUnsupported"),
    (218, c"hipErrorInvalidKernelFile"),
    (304, c"hipErrorOperatingSystem"),
    (400, c"hipErrorInvalidHandle"),
    (401, c"hipErrorIllegalState"),
    (500, c"hipErrorNotFound"),
    (600, c"hipErrorNotReady"),
    (700, c"hipErrorIllegalAddress"),
    (701, c"hipErrorLaunchOutOfResources"),
    (702, c"hipErrorLaunchTimeOut"),
    (704, c"hipErrorPeerAccessAlreadyEnabled"),
    (705, c"hipErrorPeerAccessNotEnabled"),
    (709, c"hipErrorContextIsDestroyed"),
    (710, c"hipErrorAssert"),
    (712, c"hipErrorHostMemoryAlreadyRegistered"),
    (713, c"hipErrorHostMemoryNotRegistered"),
    (719, c"hipErrorLaunchFailure"),
    (801, c"hipErrorNotSupported"),
    (900, c"hipErrorStreamCaptureUnsupported"),
    (901, c"hipErrorStreamCaptureInvalidated"),
    (902, c"hipErrorStreamCaptureMerge"),
    (903, c"hipErrorStreamCaptureUnmatched"),
    (904, c"hipErrorStreamCaptureUnjoined"),
    (905, c"hipErrorStreamCaptureIsolation"),
    (906, c"hipErrorStreamCaptureImplicit"),
    (907, c"hipErrorCapturedEvent"),
    (908, c"hipErrorStreamCaptureWrongThread"),
    (999, c"hipErrorUnknown"),
];

fn name(error: c_int) -> Option<&'static CStr> {
    let found = NAMES.iter().find(|(number, _)| *number == error);
    found.map(|(_, name)| *name)
}

/// The runtime's `hipGetErrorName`, which also has a name for unknown numbers.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn hipGetErrorName(error: c_int) -> *const c_char {
    name(error).unwrap_or(c"hipErrorUnknown").as_ptr()
}

/// The runtime's `hipGetErrorString`.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub extern "C" fn hipGetErrorString(error: c_int) -> *const c_char {
    name(error).unwrap_or(c"hipErrorUnknown").as_ptr()
}

api! {
    fn [hipGetLastError]() { take_last_failure() }
    fn [hipDrvGetErrorName, hipDrvGetErrorString](error: c_int, out: Option<&mut *const c_char>) {
        put(out, name(error).ok_or(Code::INVALID_VALUE)?.as_ptr())
    }
}
