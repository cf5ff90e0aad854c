//! Mixed calls for a while, as a case.

use serde::{Deserialize, Serialize};

/// A stretch of mixed calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoakCase {
    /// How long, on rank 0's clock.
    pub milliseconds: u64,
    /// Seeds calls and data.
    pub seed: u64,
}

impl std::fmt::Display for SoakCase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Soak/{} ms", self.milliseconds)
    }
}
