//! What the GEMM + reduce kernels of both vendors share: their failures, and which grids are refused.

use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure};

/// Checks the grid of a launch against the kernel's limits.
///
/// # Errors
/// `UNSUPPORTED` if the device has no kernel; `INVALID_ARGUMENT` for another grid than the kernel's.
pub fn check_grid(limits: &ReducedLimits, geometry: &Geometry) -> CallResult<()> {
    if limits.blocks == 0 {
        return Err(unsupported());
    }
    let [blocks, ..] = geometry.blocks;
    if blocks != limits.blocks {
        return Err(invalid(format!(
            "{blocks} blocks: this kernel takes {}, as its limits say",
            limits.blocks
        )));
    }
    Ok(())
}

/// Returns `INVALID_ARGUMENT` for an argument that the kernel cannot take.
pub fn invalid(message: String) -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, "reduced_gemm", message)
}

/// Returns `UNSUPPORTED` for a shape or mode without a kernel.
pub fn unsupported() -> Failure {
    Failure::new(
        Status::UNSUPPORTED,
        "reduced_gemm",
        "no GEMM + reduce kernel for this shape and mode on this device; multiply first, then reduce",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_has_exactly_the_blocks_of_the_limits() {
        let limits = ReducedLimits {
            blocks: 8,
            ..ReducedLimits::default()
        };
        let status = |blocks, limits: &ReducedLimits| {
            let geometry = Geometry {
                blocks: [blocks, 1, 1],
                threads: [256, 1, 1],
                shared_memory: 0,
            };
            check_grid(limits, &geometry).map_err(|failure| failure.status)
        };
        assert_eq!(status(8, &limits), Ok(()));
        for other in [0, 7, 9] {
            assert_eq!(status(other, &limits), Err(Status::INVALID_ARGUMENT));
        }
        assert_eq!(
            status(8, &ReducedLimits::default()),
            Err(Status::UNSUPPORTED)
        );
    }
}
