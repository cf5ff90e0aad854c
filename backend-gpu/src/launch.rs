//! Failures of the launch of a program's kernel.

use symmem_core::backend::Failure;
use symmem_core::backend::abi::{Geometry, Status};

/// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES` and `hipErrorLaunchOutOfResources`.
const OUT_OF_RESOURCES: i32 = 701;

/// Explains the failure of a launch for want of resources: nothing has run, and the device is well. Returns every other
/// failure as it is.
///
/// A driver reports that error also for arguments of a wrong size: CUDA if they have more bytes than the kernel's
/// parameters, padding included, HIP if the kernel has no parameters.
#[cold]
pub fn refused_launch(failure: Failure, geometry: &Geometry, bytes: usize) -> Failure {
    if failure.vendor_code != OUT_OF_RESOURCES {
        return failure;
    }
    let threads = geometry.threads.map(u64::from);
    let threads = threads.into_iter().fold(1, u64::saturating_mul);
    let message = format!(
        "{}: {bytes} bytes of arguments may be more than the kernel's parameters have, or a block of {threads} threads \
         and {} bytes of dynamic shared memory may need more registers or shared memory than there are; pass a struct of \
         the parameters without padding at its end, or use smaller blocks",
        failure.message, geometry.shared_memory
    );
    Failure {
        status: Status::INVALID_ARGUMENT,
        message,
        ..failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry {
        blocks: [1; 3],
        threads: [32, 2, 1],
        shared_memory: 64,
    };

    #[test]
    fn a_launch_without_resources_names_each_cause_and_does_not_blame_the_device() {
        let failure = Failure::of_call(Status::CALL_FAILED, "cuLaunchKernel", 701, "too many");
        let explained = refused_launch(failure, &GEOMETRY, 24);
        assert_eq!(explained.status, Status::INVALID_ARGUMENT);
        let text = explained.to_string();
        for part in [
            "cuLaunchKernel",
            "701",
            "too many: 24 bytes",
            "64 threads",
            "padding",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn other_failures_of_a_launch_stay_as_they_are() {
        let failure = Failure::of_call(Status::CONTEXT_LOST, "cuLaunchKernel", 719, "lost");
        assert_eq!(refused_launch(failure.clone(), &GEOMETRY, 24), failure);
    }
}
