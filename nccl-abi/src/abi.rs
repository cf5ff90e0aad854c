//! Types and numbers of `nccl.h`.

use std::ffi::c_int;

pub use symmem_gpu::nccl::{Code, Comm, IN_PROGRESS, SUCCESS, Stream, UniqueId};

pub const UNHANDLED_CUDA_ERROR: Code = 1;
pub const SYSTEM_ERROR: Code = 2;
pub const INTERNAL_ERROR: Code = 3;
pub const INVALID_ARGUMENT: Code = 4;
pub const INVALID_USAGE: Code = 5;
pub const REMOTE_ERROR: Code = 6;

/// The version that programs are told if NCCL itself is not there: the newest whose functions this library was read from.
pub const VERSION: c_int = 22_809;

/// The start of `ncclConfig_t`; newer versions append fields.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
}

/// `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;

impl Config {
    /// Returns whether calls on the communicator may return before they are done. What is not a configuration is for NCCL
    /// to refuse.
    pub fn is_non_blocking(&self) -> bool {
        self.magic == MAGIC && self.size >= size_of::<Self>() && self.blocking == 0
    }
}

/// `ncclTeam_t` of `nccl_device.h`, the same from 2.28 to 2.32. C passes it by value.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Team {
    ranks: c_int,
    rank: c_int,
    stride: c_int,
}

/// Returns the text of a code.
pub fn text(code: Code) -> &'static std::ffi::CStr {
    match code {
        SUCCESS => c"no error",
        UNHANDLED_CUDA_ERROR => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        SYSTEM_ERROR => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        INTERNAL_ERROR => c"internal error - please report this issue to the NCCL developers",
        INVALID_ARGUMENT => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        INVALID_USAGE => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        REMOTE_ERROR => c"remote process exited or there was a network error",
        IN_PROGRESS => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
}
