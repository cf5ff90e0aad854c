//! Meaning of the runtime's error codes, with advice.

use super::constants::result::*;
use super::{Code, Runtime};
use std::ffi::{CStr, c_char};
use symmem_core::backend::Failure;
use symmem_core::backend::abi::Status;

/// Maps an error code to a status.
fn status_of(code: Code) -> Status {
    match code {
        OUT_OF_MEMORY => Status::OUT_OF_MEMORY,
        // Version 5.2 returns one of them from `hipInit` and the other from `hipGetDeviceCount`.
        NO_DEVICE | INVALID_DEVICE => Status::NO_DEVICE,
        PEER_ACCESS_UNSUPPORTED => Status::PEER_UNREACHABLE,
        NOT_SUPPORTED => Status::UNSUPPORTED,
        NOT_READY => Status::NOT_READY,
        // A call that does not fit a capture harms the capture, and neither the device nor other ranks.
        STREAM_CAPTURE_UNSUPPORTED..=STREAM_CAPTURE_WRONG_THREAD => Status::INVALID_ARGUMENT,
        ECC_NOT_CORRECTABLE | ILLEGAL_ADDRESS | LAUNCH_TIMEOUT | ASSERT | LAUNCH_FAILURE => {
            Status::CONTEXT_LOST
        }
        _ => Status::CALL_FAILED,
    }
}

/// Returns advice for an error code, if there is any.
fn advice(code: Code) -> Option<&'static str> {
    Some(match code {
        OUT_OF_MEMORY => {
            "free memory on this device or ask for less; `amd-smi process` shows who holds it. Linux \
             before 6.18 can also run out of addresses: MALLOC_MMAP_THRESHOLD_=131072 helps then"
        }
        NOT_READY => "the runtime is still at work on this object; the same call may succeed later",
        DEINITIALIZED => "the program is ending and the runtime has shut down",
        STREAM_CAPTURE_UNSUPPORTED..=STREAM_CAPTURE_WRONG_THREAD => {
            "a call does not fit a capture that is under way: make it before or after, and record the graph again"
        }
        INSUFFICIENT_DRIVER => "the amdgpu kernel module is too old for this ROCm: update it",
        NO_DEVICE | INVALID_DEVICE => {
            "there is no such device; check amd-smi, HIP_VISIBLE_DEVICES and ROCR_VISIBLE_DEVICES"
        }
        INVALID_IMAGE | NO_BINARY_FOR_GPU => "the code was built for other architectures only",
        INVALID_CONTEXT => {
            "a process cannot open its own handles, nor use a context of another process"
        }
        // Returned by `hipIpcOpenMemHandle` (releases 5 to 7).
        INVALID_DEVICE_POINTER | MAP_FAILED => {
            "if this is a peer's memory, it could not be attached: in containers the ranks need a common IPC \
             namespace (--ipc=host) and permission to trace each other (--cap-add=SYS_PTRACE)"
        }
        ECC_NOT_CORRECTABLE => "the hardware reported an error: check the kernel log",
        PEER_ACCESS_UNSUPPORTED => {
            "these devices cannot address each other's memory: `amd-smi topology` shows which can"
        }
        // Returned for an invalid or destroyed stream; the device still works.
        CONTEXT_IS_DESTROYED => {
            "this runtime does not know the stream: it was destroyed, or belongs to another runtime"
        }
        ILLEGAL_ADDRESS | LAUNCH_TIMEOUT | ASSERT | LAUNCH_FAILURE => {
            "work submitted earlier failed, and this process has lost the device: end the process"
        }
        _ => return None,
    })
}

impl Runtime {
    /// Returns the failure of a call. Clears the thread's last error, which the program may read.
    #[cold]
    pub fn failure(&self, call: &'static str, code: Code) -> Failure {
        self.forget_last_error();
        // SAFETY: the function accepts any number.
        let name = text(unsafe { (self.table.hipGetErrorName)(code) });
        // SAFETY: the function accepts any number.
        let meaning = text(unsafe { (self.table.hipGetErrorString)(code) });
        let mut message = match (name, meaning) {
            (Some(name), Some(meaning)) if name != meaning => format!("{name} ({meaning})"),
            (Some(name), _) | (None, Some(name)) => name,
            (None, None) => format!("error {code}, which this runtime does not name"),
        };
        if let Some(advice) = advice(code) {
            message.push_str("; ");
            message.push_str(advice);
        }
        let number = i32::try_from(code).unwrap_or(i32::MAX);
        Failure::of_call(status_of(code), call, number, message)
    }

    /// Clears the thread's last error, so that other code does not find an expected failure there.
    pub fn forget_last_error(&self) {
        // SAFETY: the function only reads and clears a thread-local number.
        unsafe { (self.table.hipGetLastError)() };
    }
}

fn text(text: *const c_char) -> Option<String> {
    // SAFETY: the runtime returns static, zero-terminated texts or null.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })?;
    Some(text.to_string_lossy().into_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_the_kinds_that_callers_tell_apart() {
        assert_eq!(status_of(OUT_OF_MEMORY), Status::OUT_OF_MEMORY);
        assert_eq!(status_of(100), Status::NO_DEVICE);
        assert_eq!(status_of(101), Status::NO_DEVICE);
        assert_eq!(status_of(ILLEGAL_ADDRESS), Status::CONTEXT_LOST);
        assert_eq!(status_of(PEER_ACCESS_UNSUPPORTED), Status::PEER_UNREACHABLE);
        assert_eq!(status_of(NOT_SUPPORTED), Status::UNSUPPORTED);
        assert_eq!(status_of(INVALID_VALUE), Status::CALL_FAILED);
        for capture in 900..=908 {
            assert_eq!(status_of(capture), Status::INVALID_ARGUMENT);
        }
        assert_eq!(status_of(CONTEXT_IS_DESTROYED), Status::CALL_FAILED);
    }

    #[test]
    fn advice_names_what_to_look_at() {
        for (code, word) in [
            (NO_DEVICE, "HIP_VISIBLE_DEVICES"),
            (INVALID_DEVICE, "ROCR_VISIBLE_DEVICES"),
            (INVALID_DEVICE_POINTER, "--ipc=host"),
            (MAP_FAILED, "--ipc=host"),
            (CONTEXT_IS_DESTROYED, "stream"),
            (PEER_ACCESS_UNSUPPORTED, "amd-smi topology"),
        ] {
            assert!(advice(code).is_some_and(|advice| advice.contains(word)));
        }
        assert_eq!(advice(12345), None);
    }
}
