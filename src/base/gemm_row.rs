//! How a product was done best on a machine: a row of a tuning table.

use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::gemm_shape::GemmShape;
use crate::base::names::ElementType;

/// How a product was done best: what `symmem bench ag-gemm --tune` writes and
/// [`crate::Configuration::gemm_rows`] has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GemmRow {
    /// The device's name ([`crate::backend::abi::DeviceDescription::name`]).
    pub device: String,
    /// Ranks of the world.
    pub world: usize,
    /// What was multiplied. Only where matrices lie as it says does the row hold.
    pub shape: GemmShape,
    /// What the matrices are made of.
    pub element: ElementType,
    /// How it is done where the caller leaves both algorithm and transport to us; not automatic.
    pub algorithm: GemmAlgorithm,
    /// What moves the shards then; automatic for what is usual.
    pub transport: GemmTransport,
    /// The library of products that the ways are of, with its version and the revision of what we ask of it;
    /// empty for none.
    pub library: String,
    /// For products of so many rows of `A`: which of the library's ways.
    pub ways: Vec<(u64, u32)>,
}

impl GemmRow {
    /// What is wrong with it, if something is.
    pub fn check(&self) -> Result<(), String> {
        use {GemmAlgorithm as A, GemmTransport as T};
        self.shape.check()?;
        match (self.algorithm, self.transport) {
            (A::Automatic, _) => Err("the algorithm is one, and not automatic".into()),
            (_, T::Automatic)
            | (A::Baseline, T::Vendor)
            | (A::Pipeline, T::Get | T::Put | T::Vendor)
            | (A::Pull, T::Kernel)
            | (A::Push, T::Put | T::Kernel) => Ok(()),
            (algorithm, transport) => Err(format!("{algorithm:?} has no transport {transport:?}")),
        }
    }
}
