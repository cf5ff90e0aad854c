//! Explains "no device" by the state of `/dev/kfd`, through which the runtime reaches the GPUs.
//!
//! The runtime reports "no device" both if the kernel has no driver and if this user may not use it.

use rustix::fs::{Access, access};
use rustix::io::Errno;
use symmem_core::backend::Failure;
use symmem_core::backend::abi::Status;

const NODE: &str = "/dev/kfd";

/// Adds to a `NO_DEVICE` failure what `/dev/kfd` tells; returns other failures unchanged.
pub fn explain(failure: Failure) -> Failure {
    if failure.status != Status::NO_DEVICE {
        return failure;
    }
    verdict(failure, access(NODE, Access::READ_OK | Access::WRITE_OK))
}

fn verdict(failure: Failure, usable: rustix::io::Result<()>) -> Failure {
    match usable {
        Ok(()) => failure,
        Err(Errno::NOENT) => Failure {
            message: format!(
                "no AMD device: there is no {NODE}, so the amdgpu kernel module is not loaded, or the \
                 container was started without --device={NODE} --device=/dev/dri ({})",
                failure.message
            ),
            ..failure
        },
        Err(error) => Failure::of_call(
            Status::NO_DEVICE,
            "open(/dev/kfd)",
            error.raw_os_error(),
            format!(
                "{NODE} exists, but this user may not use it ({error}); add the user to the groups \
                 render and video and log in again, or start the container with --group-add for both"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_device() -> Failure {
        Failure::of_call(Status::NO_DEVICE, "hipInit", 100, "hipErrorNoDevice")
    }

    #[test]
    fn a_node_that_may_not_be_used_is_an_error_of_its_own() {
        let failure = verdict(no_device(), Err(Errno::ACCESS));
        assert_eq!(failure.call, "open(/dev/kfd)");
        assert_eq!(failure.vendor_code, Errno::ACCESS.raw_os_error());
        for word in ["render", "video", "--group-add"] {
            assert!(failure.message.contains(word), "{failure}");
        }
    }

    #[test]
    fn a_missing_node_is_told_beside_the_runtimes_word() {
        let failure = verdict(no_device(), Err(Errno::NOENT));
        assert_eq!(
            (failure.call.as_str(), failure.vendor_code),
            ("hipInit", 100)
        );
        assert!(failure.message.contains("amdgpu") && failure.message.contains("hipErrorNoDevice"));
        assert_eq!(verdict(no_device(), Ok(())), no_device());
    }

    #[test]
    fn other_failures_are_left_as_they_are() {
        let failure = Failure::of_call(Status::CALL_FAILED, "hipInit", 3, "not initialized");
        assert_eq!(explain(failure.clone()), failure);
    }
}
