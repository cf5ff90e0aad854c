//! How a collective is done.

use crate::backend::abi::Algorithm;
use crate::base::names;
use crate::group::provider::Provider;
use crate::world::group::Group;
use std::time::Duration;

/// How a collective is done; the default lets the selector choose. Alike on all members.
#[derive(Clone, Copy, Default)]
pub struct CollectiveOptions<'a> {
    pub(crate) algorithm: Algorithm,
    pub(crate) blocks: Option<u32>,
    pub(crate) threads: Option<u32>,
    pub(crate) concurrent: Option<u32>,
    pub(crate) channel: u32,
    pub(crate) provider: Provider,
    pub(crate) deadline: Option<Duration>,
    pub(crate) group: Option<&'a Group>,
}

impl<'a> CollectiveOptions<'a> {
    /// The selector chooses everything; all ranks take part.
    pub fn new() -> Self {
        Self::default()
    }

    /// The algorithm, in place of the selector's choice. [`crate::Algorithm::Multicast`] and
    /// [`crate::Algorithm::MulticastOneShot`] are refused where there is no multicast
    /// ([`crate::Communicator::multicast`]); where there is, what it cannot do (a group that was split off, memory of the
    /// caller's or without room in the object, a reduction that the switch does not have) is done by the members'
    /// own addresses. Its sums are in an order of the switch's own, and rounded before an average divides them: close
    /// to those of other algorithms, and not always the same. Floats of 8 bits go through it by these names alone,
    /// and only on devices of compute capability 10.0: it sums them in f16, all other algorithms in f32.
    #[must_use]
    pub fn algorithm(mut self, algorithm: impl Into<Option<names::Algorithm>>) -> Self {
        self.algorithm = algorithm
            .into()
            .map_or(Algorithm::AUTOMATIC, Algorithm::from);
        self
    }

    /// Blocks of the grid, so that callers can leave compute units to others.
    #[must_use]
    pub fn blocks(mut self, blocks: impl Into<Option<u32>>) -> Self {
        self.blocks = blocks.into();
        self
    }

    /// Threads of a block.
    #[must_use]
    pub fn threads(mut self, threads: impl Into<Option<u32>>) -> Self {
        self.threads = threads.into();
        self
    }

    /// Copies under way at once, where an algorithm copies; 0 for as many as there are, `None` for the
    /// selector's choice. By the copy engine, 1 for one after the other; 0 for what the size is worth; 2
    /// or more to copy this rank's own part beside the others and, behind a switch, to cut each copy to a
    /// peer in two; in a mesh, to copy to so many peers at once.
    #[must_use]
    pub fn concurrent(mut self, concurrent: impl Into<Option<u32>>) -> Self {
        self.concurrent = concurrent.into();
        self
    }

    /// The channel, 0 by default; a call is refused whose channel there is not. Collectives that may be
    /// under way at once need different channels. Their grids have to fit on the device together, which
    /// no rank checks: ranks that began with different collectives would otherwise wait for each other
    /// until the deadline. Give them fewer blocks then. While a capture records calls by the copy engine
    /// on a channel, no other capture may.
    #[must_use]
    pub fn channel(mut self, channel: u32) -> Self {
        self.channel = channel;
        self
    }

    /// Who does it: our kernels, the vendor's library, or, by default, whichever the selector chooses.
    #[must_use]
    pub fn provider(mut self, provider: Provider) -> Self {
        self.provider = provider;
        self
    }

    /// How long a wait of this call for a peer may take; `None` for the communicator's deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Option<Duration>>) -> Self {
        self.deadline = deadline.into();
        self
    }

    /// The ranks that take part.
    #[must_use]
    pub fn group(mut self, group: impl Into<Option<&'a Group>>) -> Self {
        self.group = group.into();
        self
    }
}
