//! Options of collectives.

use crate::backend::abi::AlgorithmCode;
use crate::base::names;
use crate::group::dependents::Dependents;
use crate::group::provider::Provider;
use crate::world::group::Group;
use std::time::Duration;

/// Options of a collective; by default the selector chooses. Must be the same on all members, except the
/// dependents.
#[derive(Clone, Copy, Default)]
pub struct CollectiveOptions<'a> {
    pub(crate) algorithm: AlgorithmCode,
    pub(crate) blocks: Option<u32>,
    /// Whether the named blocks are a limit, as in the stages of a collective over nodes.
    pub(crate) fewer_blocks: bool,
    pub(crate) threads: Option<u32>,
    pub(crate) concurrent: Option<u32>,
    pub(crate) channel: u32,
    pub(crate) provider: Provider,
    pub(crate) deadline: Option<Duration>,
    pub(crate) dependents: Dependents,
    pub(crate) group: Option<&'a Group>,
}

impl<'a> CollectiveOptions<'a> {
    /// Returns the defaults: the selector chooses everything, and all ranks take part.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the algorithm, in place of the selector's choice. `None` leaves it to the selector.
    ///
    /// In a group that spans nodes it applies to the stages inside the nodes that have it. If the ranks of any node cannot
    /// make their stage with it, or with the threads that the options name, all members refuse the call
    /// ([`crate::Error::Unsupported`]) before anything is sent. Named blocks are a limit there.
    ///
    /// [`crate::Algorithm::Multicast`] and [`crate::Algorithm::MulticastOneShot`] are refused if the
    /// communicator has no multicast ([`crate::Communicator::multicast`]). If it has, an algorithm over the
    /// members' own addresses does the calls that multicast cannot serve: in a group made by
    /// [`crate::Communicator::split`], on the caller's memory, on a buffer without room in the multicast
    /// object, or with a reduction that the switch lacks. The switch chooses the order of a sum, and rounds the
    /// sum before an average divides it, so results are close to those of other algorithms, but may differ.
    ///
    /// The selector never picks multicast to reduce fp8; naming one of these algorithms requests it. Only devices of
    /// compute capability 10.0 have a kernel for it. The switch accumulates fp8 in f16; all other algorithms
    /// accumulate in f32.
    #[must_use]
    pub fn algorithm(mut self, algorithm: impl Into<Option<names::Algorithm>>) -> Self {
        self.algorithm = algorithm
            .into()
            .map_or(AlgorithmCode::AUTOMATIC, AlgorithmCode::from);
        self
    }

    /// Sets the number of blocks of the grid, for example to leave compute units to other kernels. `None`
    /// leaves it to the selector. The call is refused if its kernel cannot have this many co-resident blocks, or if
    /// they are more than a collective's share of the device
    /// ([`crate::Communicator::allow_concurrent_collectives`]). In a group that spans nodes, a stage takes fewer instead.
    /// The host backend has no grids.
    #[must_use]
    pub fn blocks(mut self, blocks: impl Into<Option<u32>>) -> Self {
        self.blocks = blocks.into();
        self
    }

    /// Sets the number of threads of a block: a multiple of 32, at most 1024. `None` leaves it to the selector.
    #[must_use]
    pub fn threads(mut self, threads: impl Into<Option<u32>>) -> Self {
        self.threads = threads.into();
        self
    }

    /// Sets how many copies are under way at once, for algorithms that copy. `None` leaves it to the selector.
    ///
    /// In a kernel, 0 starts all copies at once. With the copy engine, 0 lets the size decide, and 1 copies to one
    /// peer after the other. From 2 on, the copy of this rank's own part runs beside the others. Then each copy to
    /// a peer is also cut in two if the devices are behind a switch; in a mesh, the value is the number of peers
    /// that are copied to at once.
    #[must_use]
    pub fn concurrent(mut self, concurrent: impl Into<Option<u32>>) -> Self {
        self.concurrent = concurrent.into();
        self
    }

    /// Sets the channel, 0 by default; a call on a channel that does not exist is refused. Collectives that may
    /// be under way at once need different channels and streams, and
    /// [`crate::Communicator::allow_concurrent_collectives`], which divides the device among their grids; without
    /// it, the call is refused. While a capture records copy-engine calls on a channel, no other capture may do
    /// so.
    #[must_use]
    pub fn channel(mut self, channel: u32) -> Self {
        self.channel = channel;
        self
    }

    /// Sets the provider: symmem, NCCL or RCCL, or, by default, the selector's choice.
    #[must_use]
    pub fn provider(mut self, provider: Provider) -> Self {
        self.provider = provider;
        self
    }

    /// Sets the deadline of each wait of this call for a peer; `None` for the communicator's deadline.
    #[must_use]
    pub fn deadline(mut self, deadline: impl Into<Option<Duration>>) -> Self {
        self.deadline = deadline.into();
        self
    }

    /// Sets when the stream's next kernel may start beside the collective's. Members may differ in it.
    #[must_use]
    pub fn dependents(mut self, dependents: Dependents) -> Self {
        self.dependents = dependents;
        self
    }

    /// Sets the group of ranks that take part; `None` for all ranks.
    #[must_use]
    pub fn group(mut self, group: impl Into<Option<&'a Group>>) -> Self {
        self.group = group.into();
        self
    }
}
