//! Mixed collectives for a given time, as a case.

use serde::{Deserialize, Serialize};

/// Mixed collectives for a given time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoakCase {
    /// Duration in milliseconds, by rank 0's clock.
    pub milliseconds: u64,
    /// Seed of calls and data.
    pub seed: u64,
}

impl std::fmt::Display for SoakCase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Soak/{} ms", self.milliseconds)
    }
}
