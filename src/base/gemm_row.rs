//! Tuning rows of all-gather + GEMM.

use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::gemm_shape::GemmShape;
use crate::base::names::ElementType;

/// A tuning row of all-gather + GEMM: the fastest measured configuration for a device, world size, shape and
/// element type. Written by `symmem bench ag-gemm --tune`, used by [`crate::Configuration::gemm_rows`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GemmRow {
    /// The device's name ([`crate::backend::abi::DeviceDescription::name`]). The row applies to devices of this
    /// name only.
    pub device: String,
    /// The world size.
    pub world: usize,
    /// The shape. The row applies only to matrices of the same layout and strides.
    pub shape: GemmShape,
    /// The element type.
    pub element: ElementType,
    /// The algorithm to use if the caller leaves both algorithm and transport open; never automatic.
    pub algorithm: GemmAlgorithm,
    /// The transport to use with it; automatic for the algorithm's default.
    pub transport: GemmTransport,
    /// The library that the heuristic candidates belong to: cuBLASLt or hipBLASLt with its version and symmem's
    /// request revision; empty for none.
    pub library: String,
    /// Pairs of a GEMM's rows of `A` and the index of the library's heuristic candidate for it.
    pub candidates: Vec<(u64, u32)>,
}

impl GemmRow {
    /// Checks shape, algorithm and transport.
    ///
    /// # Errors
    /// The first violation, as text.
    pub fn check(&self) -> Result<(), String> {
        use {GemmAlgorithm as A, GemmTransport as T};
        self.shape.check()?;
        match (self.algorithm, self.transport) {
            (A::Automatic, _) => Err("a tuning row must name an algorithm, not `Automatic`".into()),
            (_, T::Automatic)
            | (A::Baseline, T::Nccl)
            | (A::Pipeline, T::Get | T::Put | T::Nccl)
            | (A::Pull, T::Kernel)
            | (A::Push, T::Put | T::Kernel) => Ok(()),
            (algorithm, transport) => Err(format!(
                "{algorithm:?} has no transport {transport:?}; use {}",
                algorithm.transports()
            )),
        }
    }
}
