//! Operations and calls that must fail, as a case.

use super::case::ReductionName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Operations and calls that must fail with [`symmem::Error::InvalidArgument`], and then a call that must succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GemmReduceRefusalCase {
    /// What is done with the sum.
    pub reduction: ReductionName,
    /// Whether elements are `f16`; otherwise `bf16`.
    pub half: bool,
    /// Seeds the data of the call that follows the refused ones.
    pub seed: u64,
}

impl fmt::Display for GemmReduceRefusalCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let element = if self.half { "F16" } else { "Bf16" };
        write!(
            formatter,
            "ReducedProductRefusals/{:?}/{element}",
            self.reduction
        )
    }
}
