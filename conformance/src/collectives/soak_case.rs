//! Mixed collectives for a given time, as a case.

use serde::{Deserialize, Serialize};
use symmem::COLLECTIVE_CHANNELS;

/// Mixed collectives for a given time.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoakCase {
    /// Duration in milliseconds, by rank 0's clock.
    pub milliseconds: u64,
    /// Seed of calls and data.
    pub seed: u64,
    /// Whether grids are as large as the device has room for: the selector's, for large messages, on all channels
    /// and two groups, beside a user's kernel that fills the device.
    #[serde(default)]
    pub crowded: bool,
}

impl SoakCase {
    /// Returns the number of streams, and channels, that are used at once.
    pub fn streams(&self) -> usize {
        match self.crowded {
            true => COLLECTIVE_CHANNELS as usize,
            false => 3,
        }
    }
}

impl std::fmt::Display for SoakCase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let crowded = if self.crowded { "/Crowded" } else { "" };
        write!(formatter, "Soak/{} ms{crowded}", self.milliseconds)
    }
}
