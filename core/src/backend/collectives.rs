//! Operations of all ranks together.

use super::abi::*;
use super::failure::CallResult;
use enum_dispatch::enum_dispatch;

/// The kernels of collectives, and the vendor's library of them.
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

    /// The vendor's library, opened if need be. `LIBRARY_MISSING` where there is none, `UNSUPPORTED`
    /// where the vendor has none.
    fn vendor_description(&self) -> CallResult<VendorDescription>;
    /// A fresh identifier under which ranks meet.
    fn vendor_identifier(&self) -> CallResult<VendorIdentifier>;
    /// Begins to join a communicator; does not wait for the others.
    fn vendor_create(
        &self,
        identifier: &VendorIdentifier,
        rank: u32,
        world: u32,
    ) -> CallResult<RawVendor>;
    /// Whether what was begun is done. Fails if the library reports that it, or work submitted earlier, has
    /// failed. Not blocking.
    ///
    /// # Safety
    /// `vendor` is live.
    unsafe fn vendor_ready(&self, vendor: RawVendor) -> CallResult<bool>;
    /// Enqueues one call, or adds it to the open group.
    ///
    /// # Safety
    /// `vendor` is live and ready; the memory is live until the stream has passed this point.
    unsafe fn vendor_call(
        &self,
        vendor: RawVendor,
        call: &VendorCall,
        stream: RawStream,
    ) -> CallResult<()>;
    /// Opens a group of calls on this thread, or closes it.
    fn vendor_group(&self, open: bool) -> CallResult<()>;
    /// Makes memory a symmetric window; all ranks together.
    ///
    /// # Safety
    /// `vendor` is live and ready; the memory is live until it is deregistered.
    unsafe fn vendor_register(
        &self,
        vendor: RawVendor,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64>;
    /// Ends it.
    ///
    /// # Safety
    /// `vendor` is live, `window` came from [`Collectives::vendor_register`], no work uses it.
    unsafe fn vendor_deregister(&self, vendor: RawVendor, window: u64) -> CallResult<()>;
    /// Ends all that the communicator is doing and gives it up. May be called from any thread while
    /// another is in a call.
    ///
    /// # Safety
    /// `vendor` is live and not used again.
    unsafe fn vendor_abort(&self, vendor: RawVendor) -> CallResult<()>;
    /// Gives an idle communicator up.
    ///
    /// # Safety
    /// `vendor` is live and not used again.
    unsafe fn vendor_destroy(&self, vendor: RawVendor) -> CallResult<()>;

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
}
