//! Options of the collectives benchmark.

use super::between::Between;
use crate::by_caller::is_by_caller;
use crate::report::Collective;
use crate::sizes::{Effort, powers_of_two};
use crate::{BenchError, Result};
use serde::{Deserialize, Serialize};
use symmem::Communicator;

/// Options of [`super::run`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Determines sizes and rounds, unless the options below set them.
    pub effort: Effort,
    /// The operations.
    pub collectives: Vec<Collective>,
    /// The smallest size in bytes; its multiples by powers of two follow.
    pub min_bytes: Option<u64>,
    /// The largest size in bytes.
    pub max_bytes: Option<u64>,
    /// nccl-tests' name of the element type; `None` for `bfloat16`, or `float` on the host backend, since
    /// MPI does not reduce `bfloat16`.
    pub element: Option<String>,
    /// Names of baselines ([`super::is_baseline`]); `None` for the backend's defaults.
    pub baselines: Option<Vec<String>>,
    /// Name of the algorithm; `None` for the selector's choice.
    pub algorithm: Option<String>,
    /// [`symmem::CollectiveOptions::concurrent`] of symmem's calls.
    pub concurrent: Option<u32>,
    /// Number of rounds.
    pub rounds: Option<u32>,
    /// A kernel in front of each call of a loop. External programs other than FlashInfer's are left out.
    pub between: Option<Between>,
    /// Whether symmem and FlashInfer launch all calls plainly, without programmatic dependent launch.
    pub plain: bool,
    /// The command that starts Open MPI's ranks, with its options, separated by blanks; `None` for `mpirun`, which knows
    /// the hosts of one node only.
    pub mpirun: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            effort: Effort::default(),
            collectives: DEFAULT.into(),
            min_bytes: None,
            max_bytes: None,
            element: None,
            baselines: None,
            algorithm: None,
            concurrent: None,
            rounds: None,
            between: None,
            plain: false,
            mpirun: None,
        }
    }
}

/// The default operations.
pub const DEFAULT: [Collective; 4] = [
    Collective::AllReduce,
    Collective::AllGather,
    Collective::ReduceScatter,
    Collective::AllToAll,
];

impl Options {
    /// Returns the options of the command without arguments: few sizes, and no external programs.
    pub fn short() -> Self {
        Self {
            effort: Effort::Quick,
            baselines: Some(vec!["nccl".into(), "nccl-windows".into()]),
            ..Self::default()
        }
    }

    /// Returns nccl-tests' name of the element type.
    pub(crate) fn element(&self, communicator: &Communicator) -> &str {
        match &self.element {
            Some(name) => name,
            None if is_by_caller(communicator) => "float",
            None => "bfloat16",
        }
    }

    /// Returns the sizes to measure in bytes, rising; only the first may exceed `limit`.
    ///
    /// # Errors
    /// [`BenchError::World`] if the smallest is larger than the largest.
    pub(crate) fn sizes(&self, rank: usize, limit: u64) -> Result<Vec<u64>> {
        const KIB: u64 = 1 << 10;
        const MIB: u64 = 1 << 20;
        let largest = match self.effort {
            Effort::Quick => MIB,
            Effort::Overview | Effort::Standard => 64 * MIB,
            Effort::Full => 1024 * MIB,
        };
        let most = (self.max_bytes).unwrap_or(largest.max(self.min_bytes.unwrap_or(0)));
        let least = self.min_bytes.unwrap_or(KIB.min(most));
        if least > most {
            let message = format!(
                "no size is at least {least} bytes and at most {most} bytes; give a larger --max-bytes"
            );
            return Err(BenchError::World { rank, message });
        }
        let quick = self.effort == Effort::Quick && self.max_bytes.is_none();
        let all = powers_of_two(least, most.min(limit).max(least)).into_iter();
        // Every fifth power of two: 1 KiB, 32 KiB, 1 MiB.
        Ok(all
            .enumerate()
            .filter(|(index, _)| !quick || index % 5 == 0)
            .map(|(_, bytes)| bytes)
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two_between_what_was_asked_for() {
        let asked = |min, max, limit| {
            let options = Options {
                min_bytes: min,
                max_bytes: max,
                ..Options::default()
            };
            options.sizes(0, limit)
        };
        let sizes = |min, max, limit| asked(min, max, limit).unwrap();
        const ANY: u64 = u64::MAX;
        assert_eq!(sizes(Some(1024), Some(8192), ANY), [1024, 2048, 4096, 8192]);
        assert_eq!(sizes(Some(8), Some(32), 16), [8, 16]);
        assert_eq!(sizes(Some(4096), None, 1), [4096]);
        let standard = sizes(None, None, ANY);
        assert_eq!((standard[0], standard.len()), (1024, 17));
        let short = Options::short().sizes(0, ANY).unwrap();
        assert_eq!(short, [1 << 10, 1 << 15, 1 << 20]);
        // Explicit limits override the defaults, and an explicit minimum also the memory limit.
        assert_eq!(sizes(None, Some(512), ANY), [512]);
        assert_eq!(sizes(Some(1 << 40), None, ANY), [1 << 40]);
        assert_eq!(sizes(Some(1 << 63), None, ANY), [1 << 63]);
        let none = asked(Some(1024), Some(512), ANY).unwrap_err().to_string();
        assert!(none.contains("at least 1024") && none.contains("at most 512"));
    }
}
