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
    /// What is called.
    #[serde(default)]
    pub load: SoakLoad,
}

/// The calls of a soak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SoakLoad {
    /// Collectives of symmem on three streams.
    #[default]
    Mixed,
    /// Grids as large as the device has room for: the selector's, for large messages, on all channels and two groups,
    /// beside a user's kernel that fills the device.
    Crowded,
    /// Collectives by NCCL or RCCL, which over nodes carries their legs, one after the other: kernels of several of its
    /// communicators must come in one order on all ranks.
    Nccl,
}

impl SoakCase {
    /// Returns the number of streams, and channels, that are used at once.
    pub fn streams(&self) -> usize {
        match self.load {
            SoakLoad::Mixed => 3,
            SoakLoad::Crowded => COLLECTIVE_CHANNELS as usize,
            SoakLoad::Nccl => 1,
        }
    }
}

impl std::fmt::Display for SoakCase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Soak/{} ms", self.milliseconds)?;
        match self.load {
            SoakLoad::Mixed => Ok(()),
            load => write!(formatter, "/{load:?}"),
        }
    }
}
