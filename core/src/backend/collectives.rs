//! Barriers and the collectives' kernels.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// Launches the kernels of collectives.
///
/// The blocks of a grid wait for the same blocks of the peers' grids, so the whole grid must be co-resident. The
/// library asks [`CollectiveKernels::resident_blocks`] and refuses a larger grid.
#[enum_dispatch]
pub trait CollectiveKernels {
    /// Enqueues a barrier: holds the stream until every rank's stream has reached its barrier of the same number.
    /// Work before the barrier at any rank is visible after it at every rank. Capturable.
    ///
    /// # Safety
    /// All words, the abort word and the record are live until the stream has passed this point.
    unsafe fn barrier(&self, barrier: &Barrier, stream: RawStream) -> CallResult<()>;

    /// Returns row `index` of this device's selector table, or `None` past the last row. The first row that fits a
    /// call decides it. No row has the algorithm [`AlgorithmCode::AUTOMATIC`].
    fn collective_row(&self, index: u32) -> CallResult<Option<CollectiveRow>>;
    /// Returns how many blocks of `threads` threads are co-resident if nothing else runs; 0 if this device lacks the
    /// kernel. The host backend returns 1 for every kernel that it has.
    fn resident_blocks(
        &self,
        kernel: CollectiveKernel,
        element: ElementTypeCode,
        threads: u32,
    ) -> CallResult<u32>;

    /// Enqueues copies between two barriers. Capturable, as are the methods below.
    ///
    /// # Safety
    /// The named memory and words are live until the stream has passed this point, and every member of the group
    /// makes the call with the same geometry. The methods below have the same conditions.
    unsafe fn collective_move(
        &self,
        arguments: &MoveArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues swaps between two barriers: each destination with its source.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_swap(
        &self,
        arguments: &MoveArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a transfer of bytes in LL packets.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_packets(
        &self,
        arguments: &PacketArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a reduction between two barriers.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_reduce(
        &self,
        arguments: &ReduceArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a reduction in which members push their elements. The number of threads per block is a multiple of
    /// 128: whole pairs of warps, whether a warp has 32 or 64 threads.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_reduce_push(
        &self,
        arguments: &ReducePushArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a transfer of bytes in pieces. The number of threads per block is as for
    /// [`CollectiveKernels::collective_reduce_push`].
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_pieces(
        &self,
        arguments: &PieceArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a reduction in LL packets.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_reduce_packets(
        &self,
        arguments: &ReducePacketArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues loads and stores through multicast addresses between two barriers. If
    /// [`super::Multicast::multicast_support`] is `EMULATED`, the kernels use the members' own addresses and do the
    /// switch's work.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_multicast(
        &self,
        arguments: &MulticastArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues sends and receives that run concurrently.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_exchange(
        &self,
        arguments: &ExchangeArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a reduction in Lamport packets.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_reduce_lamport(
        &self,
        arguments: &ReduceLamportArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a transfer of bytes in Lamport packets.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_move_lamport(
        &self,
        arguments: &MoveLamportArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Enqueues a sum of rows in Lamport packets, with a residual and a norm.
    ///
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    unsafe fn collective_reduce_norm(
        &self,
        arguments: &ReduceNormArguments,
        geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()>;
}
