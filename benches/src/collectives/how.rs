//! How a call is asked for.

use symmem::{Algorithm, CollectiveOptions, Provider};

/// What a call leaves open or fixes; the default leaves all to the selector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct How {
    pub algorithm: Option<Algorithm>,
    /// Blocks and threads.
    pub grid: Option<(u32, u32)>,
    /// Copies under way at once.
    pub concurrent: Option<u32>,
    pub provider: Provider,
}

impl How {
    /// The same as the library takes it.
    pub(crate) fn options(self) -> CollectiveOptions<'static> {
        CollectiveOptions::new()
            .algorithm(self.algorithm)
            .blocks(self.grid.map(|(blocks, _)| blocks))
            .threads(self.grid.map(|(_, threads)| threads))
            .concurrent(self.concurrent)
            .provider(self.provider)
    }
}

/// The algorithm of a name as commands and reports have it.
pub fn algorithm(name: &str) -> Option<Algorithm> {
    let mut all = Algorithm::ALL.iter().copied();
    all.find(|known| known.name().eq_ignore_ascii_case(name))
}

/// Whether an algorithm goes by multicast addresses.
pub(crate) fn is_multicast(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::Multicast | Algorithm::MulticastOneShot
    )
}
