//! Meaning of the driver's result codes, and what to do about each.

use super::constants::result::*;
use super::{Code, Driver, SONAME};
use std::ffi::{CStr, c_char};
use symmem_core::backend::Failure;
use symmem_core::backend::abi::Status;
use symmem_gpu::library::SEARCH_VARIABLE;

/// Returns the status that a result code maps to.
fn status_of(code: Code) -> Status {
    match code {
        OUT_OF_MEMORY => Status::OUT_OF_MEMORY,
        NO_DEVICE | INVALID_DEVICE => Status::NO_DEVICE,
        STUB_LIBRARY => Status::LIBRARY_MISSING,
        PEER_ACCESS_UNSUPPORTED => Status::PEER_UNREACHABLE,
        NOT_SUPPORTED => Status::UNSUPPORTED,
        // A call that does not fit a capture harms the capture, and neither the device nor other ranks.
        STREAM_CAPTURE_UNSUPPORTED..=STREAM_CAPTURE_WRONG_THREAD => Status::INVALID_ARGUMENT,
        // After these errors every call on the context returns the same code.
        ECC_UNCORRECTABLE
        | NVLINK_UNCORRECTABLE
        | ILLEGAL_ADDRESS
        | LAUNCH_TIMEOUT
        | CONTEXT_IS_DESTROYED
        | ASSERT
        | HARDWARE_STACK_ERROR
        | ILLEGAL_INSTRUCTION
        | MISALIGNED_ADDRESS
        | INVALID_ADDRESS_SPACE
        | INVALID_PC
        | LAUNCH_FAILED => Status::CONTEXT_LOST,
        _ => Status::CALL_FAILED,
    }
}

/// Returns what to do about a result code, if that is known.
fn advice(code: Code) -> Option<&'static str> {
    Some(match code {
        OUT_OF_MEMORY => {
            "free memory on this device or ask for less; nvidia-smi shows who holds it"
        }
        NO_DEVICE => {
            "no GPU is visible: check nvidia-smi, CUDA_VISIBLE_DEVICES and, in a container, --gpus"
        }
        INVALID_DEVICE => "there is no such device, or it cannot be used: see `symmem info`",
        NO_BINARY_FOR_GPU => "the code was built for other architectures only",
        PEER_ACCESS_UNSUPPORTED => {
            "these devices cannot address each other's memory: `nvidia-smi topo -p2p rw` shows \
             which can"
        }
        INVALID_PTX | UNSUPPORTED_PTX_VERSION => {
            "this driver cannot compile the PTX: update the driver or build for an older PTX version"
        }
        NOT_PERMITTED => {
            "the process lacks the permission; in a container, check its seccomp profile"
        }
        SYSTEM_NOT_READY => {
            "the system is not ready: on a machine with NVSwitch start nvidia-fabricmanager"
        }
        SYSTEM_DRIVER_MISMATCH => {
            "libcuda and the kernel module have different versions: reboot after a driver update, or \
             remove a forward-compatibility directory (cuda-compat) from the search path"
        }
        COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "forward compatibility does not support this device: remove the cuda-compat directory \
             from the search path"
        }
        DEINITIALIZED => "the program is ending and the driver has shut down",
        STREAM_CAPTURE_UNSUPPORTED..=STREAM_CAPTURE_WRONG_THREAD => {
            "a call does not fit a capture that is under way: make it before or after, and record the graph again"
        }
        ECC_UNCORRECTABLE | NVLINK_UNCORRECTABLE => {
            "the hardware reported an error: check the kernel log for Xid messages"
        }
        ILLEGAL_ADDRESS
        | LAUNCH_TIMEOUT
        | CONTEXT_IS_DESTROYED
        | ASSERT
        | HARDWARE_STACK_ERROR
        | ILLEGAL_INSTRUCTION
        | MISALIGNED_ADDRESS
        | INVALID_ADDRESS_SPACE
        | INVALID_PC
        | LAUNCH_FAILED => {
            "work submitted earlier failed and the device's context is lost: end this process"
        }
        _ => return None,
    })
}

/// Returns what to do if the driver cannot start.
fn start_advice(code: Code, file: &str) -> String {
    match code {
        STUB_LIBRARY => format!(
            "{file} is the toolkit's stub, which is only for linking: remove its `stubs` directory \
             from LD_LIBRARY_PATH and {SEARCH_VARIABLE}"
        ),
        UNKNOWN => {
            "the driver cannot reach its kernel modules: check nvidia-smi and the kernel log; \
             `nvidia-modprobe -u` loads nvidia-uvm; a reboot often helps"
                .into()
        }
        _ => advice(code)
            .unwrap_or("run nvidia-smi; the driver installation may be damaged")
            .into(),
    }
}

impl Driver {
    /// Returns the failure of a call.
    #[cold]
    pub fn failure(&self, call: &'static str, code: Code) -> Failure {
        self.explain(call, code, advice(code).map(str::to_owned))
    }

    /// Returns the failure of a call that starts the driver.
    #[cold]
    pub(super) fn start_failure(&self, call: &'static str, code: Code) -> Failure {
        let file = self.file();
        let file = file.map_or(SONAME.into(), |path| path.display().to_string());
        self.explain(call, code, Some(start_advice(code, &file)))
    }

    fn explain(&self, call: &'static str, code: Code, advice: Option<String>) -> Failure {
        let text = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: the out-pointer is writable.
            let found = unsafe { function(code, &raw mut text) } == SUCCESS && !text.is_null();
            // SAFETY: the driver returned a static, zero-terminated text.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        let name = text(self.table.cuGetErrorName);
        let meaning = text(self.table.cuGetErrorString);
        let mut message = match (name, meaning) {
            (Some(name), Some(meaning)) => format!("{name} ({meaning})"),
            (Some(name), None) => name.into_owned(),
            _ => format!("error {code}, which this driver does not name"),
        };
        if let Some(advice) = advice {
            message.push_str("; ");
            message.push_str(&advice);
        }
        let code = i32::try_from(code).unwrap_or(i32::MAX);
        Failure::of_call(status_of(code as Code), call, code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_not_to_start_says_what_to_do() {
        let stub = start_advice(STUB_LIBRARY, "/usr/local/cuda/stubs/libcuda.so.1");
        assert!(stub.contains("/usr/local/cuda/stubs/libcuda.so.1") && stub.contains("stub"));
        assert!(start_advice(NO_DEVICE, "").contains("CUDA_VISIBLE_DEVICES"));
        assert!(start_advice(UNKNOWN, "").contains("nvidia-modprobe"));
        assert!(start_advice(SYSTEM_DRIVER_MISMATCH, "").contains("reboot"));
        assert!(start_advice(SYSTEM_NOT_READY, "").contains("fabricmanager"));
        assert!(start_advice(12345, "").contains("nvidia-smi"));
    }

    #[test]
    fn numbers_become_the_kinds_that_callers_tell_apart() {
        assert_eq!(status_of(OUT_OF_MEMORY), Status::OUT_OF_MEMORY);
        assert_eq!(status_of(ILLEGAL_ADDRESS), Status::CONTEXT_LOST);
        assert_eq!(status_of(PEER_ACCESS_UNSUPPORTED), Status::PEER_UNREACHABLE);
        assert_eq!(status_of(INVALID_VALUE), Status::CALL_FAILED);
        assert_eq!(status_of(NOT_SUPPORTED), Status::UNSUPPORTED);
        for capture in 900..=908 {
            assert_eq!(status_of(capture), Status::INVALID_ARGUMENT);
        }
        assert_eq!(status_of(909), Status::CALL_FAILED);
    }
}
