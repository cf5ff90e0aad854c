//! Tuning rows of GEMM + reduce-scatter and GEMM + all-reduce.

use crate::base::gemm_names::GemmTransport;
use crate::base::gemm_reduce_names::{GemmReduceAlgorithm, Reduction};
use crate::base::gemm_reduce_shape::GemmReduceShape;
use crate::base::names::ElementType;

/// A tuning row of GEMM + reduce-scatter or GEMM + all-reduce: the fastest measured configuration for a device, world size,
/// shape and element type. Written by `symmem bench gemm-rs --tune` and `gemm-ar --tune`, used by
/// [`crate::Configuration::gemm_reduce_rows`]. It has no heuristic candidates of the GEMM library: these are timed when an
/// operation is made ([`crate::GemmReduceOptions::tune`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GemmReduceRow {
    /// The device's name ([`crate::backend::abi::DeviceDescription::name`]). The row applies to devices of this
    /// name only.
    pub device: String,
    /// The world size.
    pub world: usize,
    /// What is done with the sum: [`Reduction::Scatter`] or [`Reduction::All`].
    pub reduction: Reduction,
    /// The shape. The row applies only to matrices of the same layout and strides.
    pub shape: GemmReduceShape,
    /// The element type.
    pub element: ElementType,
    /// The algorithm to use if the caller leaves both algorithm and transport open; never automatic.
    pub algorithm: GemmReduceAlgorithm,
    /// A pipeline's transport; automatic for other algorithms.
    pub transport: GemmTransport,
    /// A pipeline's number of streams for GEMMs; at least 1.
    pub streams: usize,
    /// Into how many parts a pipeline cuts each rank's rows, if the caller leaves that open; at least 1.
    pub chunks: usize,
}

impl GemmReduceRow {
    /// Checks shape, algorithm, transport and numbers.
    ///
    /// # Errors
    /// The first violation, as text.
    pub fn check(&self) -> Result<(), String> {
        use {GemmReduceAlgorithm as A, GemmTransport as T};
        self.shape.check()?;
        if self.streams == 0 || self.chunks == 0 {
            return Err("`streams` and `chunks` must be at least 1".into());
        }
        if self.reduction == Reduction::Norm {
            return Err("a GEMM + all-reduce with a norm has one algorithm, and no row".into());
        }
        match (self.algorithm, self.transport) {
            (A::Automatic, _) => Err("a tuning row must name an algorithm, not `Automatic`".into()),
            (A::Pipeline, T::Put | T::Kernel) => Ok(()),
            (A::Pipeline, transport) => Err(format!(
                "a pipeline has no transport {transport:?}; use `Put` or `Kernel`"
            )),
            (_, T::Automatic) => Ok(()),
            (algorithm, transport) => Err(format!(
                "only a pipeline has a transport, not {algorithm:?}; leave {transport:?} out"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use {GemmReduceAlgorithm as A, GemmTransport as T};

    #[test]
    fn a_row_without_a_way_to_do_it_is_refused() {
        let row = |algorithm, transport| GemmReduceRow {
            device: "Example".into(),
            world: 2,
            reduction: Reduction::Scatter,
            shape: GemmReduceShape::new(64, 8, 16),
            element: ElementType::F16,
            algorithm,
            transport,
            streams: 1,
            chunks: 2,
        };
        assert_eq!(row(A::Pipeline, T::Put).check(), Ok(()));
        assert_eq!(row(A::Baseline, T::Automatic).check(), Ok(()));
        assert!(row(A::Automatic, T::Automatic).check().is_err());
        assert!(row(A::Pipeline, T::Automatic).check().is_err());
        assert!(row(A::Baseline, T::Put).check().is_err());
        let good = row(A::Pipeline, T::Kernel);
        for wrong in [
            GemmReduceRow {
                chunks: 0,
                ..good.clone()
            },
            GemmReduceRow {
                reduction: Reduction::Norm,
                ..good.clone()
            },
            GemmReduceRow {
                shape: GemmReduceShape::new(0, 8, 16),
                ..good.clone()
            },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
