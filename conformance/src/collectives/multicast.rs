//! Predicts which cases run multicast kernels.

use super::call::Call;
use super::case::{CollectiveCase, Members, Mode, Reduction};
use crate::dtype::{Dtype, with_element};
use serde::{Deserialize, Serialize};
use symmem::backend::abi::CAPABILITY_GRAPHS;
use symmem::{
    Algorithm, CollectiveCall, CollectiveOperation, CollectiveOptions, Communicator, ElementType,
    Reducible, multicast_reduces,
};

impl CollectiveCase {
    /// Whether the case runs multicast kernels in a world of `world` ranks with these features. The other cases
    /// that name multicast test the replacement: for groups made by `split`, and for reductions that multicast
    /// does not support.
    pub fn uses_multicast(&self, world: usize, kernels: MulticastKernels) -> bool {
        let variant = self.variant;
        let is_served = !variant.operation.reduces()
            || is_reduced_by_multicast(self.dtype, self.reduction)
                && (kernels.f8 || !is_f8(self.dtype));
        variant.algorithm.is_multicast()
            && is_served
            && self.members == Members::All
            && world > 1
            && (kernels.captured || self.mode != Mode::Captured)
            && Call::of(self, world).destination_length(0) > 0
    }
}

/// Whether multicast supports this reduction, provided that the device has the kernel.
pub(super) fn is_reduced_by_multicast(dtype: Dtype, reduction: Reduction) -> bool {
    multicast_reduces(element(dtype), reduction.into())
}

/// Whether the type is fp8, which few devices reduce by multicast.
pub(super) fn is_f8(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F8E4m3 | Dtype::F8E5m2)
}

/// Returns the type as the plugin table names it.
pub(super) fn element(dtype: Dtype) -> ElementType {
    with_element!(dtype, T => <T as Reducible>::TYPE)
}

/// Multicast features that not every world with multicast has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastKernels {
    /// Captured calls; without graphs, a captured case makes no call.
    pub captured: bool,
    /// Sums of fp8.
    pub f8: bool,
}

impl MulticastKernels {
    /// The features of every world with NVLS.
    pub const LEAST: Self = Self {
        captured: true,
        f8: false,
    };

    /// Returns the features of this communicator's world.
    pub fn of(communicator: &Communicator) -> Self {
        let sums = |element| {
            let sum = CollectiveCall::new(CollectiveOperation::AllReduce, 1 << 10, element);
            let by_name = CollectiveOptions::new().algorithm(Algorithm::Multicast);
            let explanation = communicator.explain_call(&sum, &by_name).ok();
            let choice = explanation.and_then(|explanation| explanation.choice());
            choice.is_some_and(|choice| choice.algorithm() == Algorithm::Multicast)
        };
        Self {
            captured: communicator.capabilities().flags & CAPABILITY_GRAPHS != 0,
            f8: sums(ElementType::F8E4M3) && sums(ElementType::F8E5M2),
        }
    }
}
