//! The options of a call.

use symmem::backend::abi::AlgorithmCode;
use symmem::{Algorithm, CollectiveOptions, Dependents, Provider};

/// The options of a call; the default leaves every choice to the selector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallChoice {
    pub algorithm: Option<Algorithm>,
    /// Blocks and threads.
    pub grid: Option<(u32, u32)>,
    /// Number of concurrent copies.
    pub concurrent: Option<u32>,
    pub provider: Provider,
    /// Whether source and destination are passed as memory that only this rank knows.
    pub own_memory: bool,
    /// Whether symmem launches the kernel without programmatic dependent launch.
    pub plain: bool,
}

impl CallChoice {
    /// Converts to the library's options.
    pub(crate) fn options(self) -> CollectiveOptions<'static> {
        let dependents = match self.plain {
            true => Dependents::Never,
            false => Dependents::default(),
        };
        CollectiveOptions::new()
            .dependents(dependents)
            .algorithm(self.algorithm)
            .blocks(self.grid.map(|(blocks, _)| blocks))
            .threads(self.grid.map(|(_, threads)| threads))
            .concurrent(self.concurrent)
            .provider(self.provider)
    }
}

/// Returns the algorithm with this name, as commands and reports write it.
pub fn algorithm(name: &str) -> Option<Algorithm> {
    let mut all = Algorithm::ALL.iter().copied();
    all.find(|known| known.name().eq_ignore_ascii_case(name))
}

/// Whether an algorithm uses multicast addresses.
pub(crate) fn is_multicast(algorithm: Algorithm) -> bool {
    AlgorithmCode::from(algorithm).is_multicast()
}
