//! Operations of all ranks together.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// The kernels of collectives.
///
/// A grid's blocks wait for the same blocks of the peers' grids, so all of them must be resident at
/// once: core asks [`Collectives::resident_blocks`] and refuses what would not be.
#[enum_dispatch]
pub trait Collectives {
    /// Holds the stream until every rank's stream has reached its barrier of the same number. Work
    /// before it at any rank is visible after it at every rank. Capturable.
    ///
    /// # Safety
    /// All words, the abort word and the record are live until the stream has passed this point.
    unsafe fn barrier(&self, barrier: &Barrier, stream: RawStream) -> CallResult<()>;

    /// Row `index` of the selector's table for this device, `None` past the last one. The first row that fits a
    /// call decides it. No row's algorithm is [`Algorithm::AUTOMATIC`].
    fn collective_row(&self, index: u32) -> CallResult<Option<CollectiveRow>>;
    /// Most blocks of `threads` threads that are resident at once if nothing else runs; 0 for a
    /// kernel that this device does not have. The host backend says 1 for whatever it has.
    fn resident_blocks(
        &self,
        kernel: CollectiveKernel,
        element: ElementType,
        threads: u32,
    ) -> CallResult<u32>;

    /// Copies between two barriers. Capturable, as are all that follow.
    ///
    /// # Safety
    /// All memory and words named are live until the stream has passed this point; every member of
    /// the group makes the call with the same geometry. So for all that follow.
    unsafe fn collective_move(
        &self,
        arguments: &MoveArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Swaps between two barriers: each destination with its source.
    ///
    /// # Safety
    /// As [`Collectives::collective_move`].
    unsafe fn collective_swap(
        &self,
        arguments: &MoveArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Bytes in packets.
    ///
    /// # Safety
    /// As [`Collectives::collective_move`].
    unsafe fn collective_packets(
        &self,
        arguments: &PacketArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// A reduction between two barriers.
    ///
    /// # Safety
    /// As [`Collectives::collective_move`].
    unsafe fn collective_reduce(
        &self,
        arguments: &ReduceArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// A reduction by pushing. Threads of a block are a multiple of 128: whole pairs of warps, which are 32
    /// or 64 threads.
    ///
    /// # Safety
    /// As [`Collectives::collective_move`].
    unsafe fn collective_reduce_push(
        &self,
        arguments: &ReducePushArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// A reduction in packets.
    ///
    /// # Safety
    /// As [`Collectives::collective_move`].
    unsafe fn collective_reduce_packets(
        &self,
        arguments: &ReducePacketArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Loads, and stores, through multicast addresses between two barriers; what a switch would do is done by
    /// the members' own addresses where [`super::Multicast::multicast_support`] is `EMULATED`.
    ///
    /// # Safety
    /// As [`Collectives::collective_move`].
    unsafe fn collective_multicast(
        &self,
        arguments: &MulticastArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Sends and receives.
    ///
    /// # Safety
    /// As [`Collectives::collective_move`].
    unsafe fn collective_exchange(
        &self,
        arguments: &ExchangeArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
}
