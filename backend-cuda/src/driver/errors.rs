//! What a number of the driver means and what to do about it.

use super::constants::result::*;
use super::{Code, Driver, SONAME};
use std::ffi::{CStr, c_char};
use symmem_core::backend::Failure;
use symmem_core::backend::abi::Status;
use symmem_gpu::library::SEARCH_VARIABLE;

/// The kind of failure that a number is.
fn status_of(code: Code) -> Status {
    match code {
        OUT_OF_MEMORY => Status::OUT_OF_MEMORY,
        NO_DEVICE | INVALID_DEVICE => Status::NO_DEVICE,
        STUB_LIBRARY => Status::LIBRARY_MISSING,
        PEER_ACCESS_UNSUPPORTED => Status::PEER_UNREACHABLE,
        NOT_SUPPORTED => Status::UNSUPPORTED,
        // After these the driver answers every call on the context with the same number.
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

/// What to do, for numbers where that is known.
fn advice(code: Code) -> Option<&'static str> {
    Some(match code {
        OUT_OF_MEMORY => {
            "free memory on this device or ask for less; nvidia-smi shows who holds it"
        }
        NO_DEVICE => {
            "no GPU is visible: look at nvidia-smi, at CUDA_VISIBLE_DEVICES, and, in a container, \
             at --gpus"
        }
        INVALID_DEVICE => "there is no such device, or it cannot take part: see `symmem info`",
        NO_BINARY_FOR_GPU => "the code was built for other architectures only",
        PEER_ACCESS_UNSUPPORTED => {
            "these devices cannot address each other's memory: `nvidia-smi topo -p2p rw` shows \
             which can"
        }
        INVALID_PTX | UNSUPPORTED_PTX_VERSION => {
            "this driver cannot compile the PTX: update the driver or build for an older PTX version"
        }
        NOT_PERMITTED => "the process may not do this; in a container, look at its seccomp profile",
        SYSTEM_NOT_READY => {
            "the system is not ready: on a machine with NVSwitch start nvidia-fabricmanager"
        }
        SYSTEM_DRIVER_MISMATCH => {
            "the library and the kernel's module are of different versions: reboot after a driver \
             update, or take a forward-compatibility directory (cuda-compat) out of the search path"
        }
        COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "forward compatibility does not cover this device: take the cuda-compat directory out \
             of the search path"
        }
        DEINITIALIZED => "the program is ending and the driver has shut down",
        ECC_UNCORRECTABLE | NVLINK_UNCORRECTABLE => {
            "the hardware reported an error: look at the kernel's log for Xid messages"
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

/// What to do where the driver cannot even start.
fn start_advice(code: Code, file: &str) -> String {
    match code {
        STUB_LIBRARY => format!(
            "{file} is the toolkit's stub, made only for linking: take its `stubs` directory out \
             of LD_LIBRARY_PATH and {SEARCH_VARIABLE}"
        ),
        UNKNOWN => "the driver cannot talk to the kernel's modules: look at nvidia-smi and the \
                    kernel's log; `nvidia-modprobe -u` loads nvidia-uvm; a reboot often helps"
            .into(),
        _ => advice(code)
            .unwrap_or("look at nvidia-smi; the driver's installation may be damaged")
            .into(),
    }
}

impl Driver {
    /// A failed call.
    #[cold]
    pub fn failure(&self, call: &'static str, code: Code) -> Failure {
        self.explain(call, code, advice(code).map(str::to_owned))
    }

    /// A call without which nothing can start.
    #[cold]
    pub(super) fn start_failure(&self, call: &'static str, code: Code) -> Failure {
        let file = self.file();
        let file = file.map_or(SONAME.into(), |path| path.display().to_string());
        self.explain(call, code, Some(start_advice(code, &file)))
    }

    fn explain(&self, call: &'static str, code: Code, advice: Option<String>) -> Failure {
        let text = |function: unsafe extern "C" fn(Code, *mut *const c_char) -> Code| {
            let mut text = std::ptr::null();
            // SAFETY: the place is writable.
            let found = unsafe { function(code, &raw mut text) } == SUCCESS && !text.is_null();
            // SAFETY: the driver gives a static, zero-terminated text.
            found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        let name = text(self.table.cuGetErrorName);
        let meaning = text(self.table.cuGetErrorString);
        let mut message = match (name, meaning) {
            (Some(name), Some(meaning)) => format!("{name} ({meaning})"),
            (Some(name), None) => name.into_owned(),
            _ => format!("error {code}, which this driver has no name for"),
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
    }
}
