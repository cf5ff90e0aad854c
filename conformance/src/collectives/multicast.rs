//! Which cases the kernels of multicast do.

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
    /// Whether the kernels of multicast do it in a world of so many ranks that has these. Of the cases that name
    /// multicast the others show what takes its place: for groups that were split off, and for what a switch
    /// does not reduce.
    pub fn goes_by_multicast(&self, world: usize, kernels: MulticastKernels) -> bool {
        let way = self.way;
        let is_served = !way.operation.reduces()
            || is_reduced_by_multicast(self.dtype, self.reduction)
                && (kernels.f8 || !is_f8(self.dtype));
        way.algorithm.is_multicast()
            && is_served
            && self.members == Members::All
            && world > 1
            && (kernels.captured || self.mode != Mode::Captured)
            && Call::of(self, world).destination_length(0) > 0
    }
}

/// Whether a switch reduces such elements so, where it has a kernel for them.
pub(super) fn is_reduced_by_multicast(dtype: Dtype, reduction: Reduction) -> bool {
    multicast_reduces(element(dtype), reduction.into())
}

/// Whether elements are floats of 8 bits, which few switches sum.
pub(super) fn is_f8(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F8E4m3 | Dtype::F8E5m2)
}

/// The type across the plugin table.
pub(super) fn element(dtype: Dtype) -> ElementType {
    with_element!(dtype, T => <T as Reducible>::TYPE)
}

/// What of multicast not every world has that has multicast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MulticastKernels {
    /// Calls that are captured: where there are no graphs nothing is called.
    pub captured: bool,
    /// Sums of floats of 8 bits.
    pub f8: bool,
}

impl MulticastKernels {
    /// What every world with a switch has.
    pub const LEAST: Self = Self {
        captured: true,
        f8: false,
    };

    /// What this one has.
    pub fn of(communicator: &Communicator) -> Self {
        let sums = |element| {
            let sum = CollectiveCall::new(CollectiveOperation::AllReduce, 1 << 10, element);
            let by_name = CollectiveOptions::new().algorithm(Algorithm::Multicast);
            let choice = communicator.explain_call(&sum, &by_name);
            choice.is_ok_and(|choice| choice.algorithm() == Algorithm::Multicast)
        };
        Self {
            captured: communicator.capabilities().flags & CAPABILITY_GRAPHS != 0,
            f8: sums(ElementType::F8E4M3) && sums(ElementType::F8E5M2),
        }
    }
}
