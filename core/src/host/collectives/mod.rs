//! Collectives on the host: one thread a rank does what a grid of one block would.
//!
//! `members` is how ranks keep in step, `barriered` and `packets` the families, `exchange` sends and
//! receives, `arithmetic` what reductions compute, `rows` which algorithm for which size.

mod arithmetic;
mod barriered;
pub(super) mod exchange;
mod members;
mod packets;
mod rows;

use super::HostBackend;
use super::operation::{Operation, Progress, Step};
use super::signals::Pending;
use super::stream::Submission;
use crate::backend::abi::*;
use crate::backend::{CallResult, Collectives, Failure};

/// The arguments of a collective. They are large, and copied only if the stream has to queue them.
#[derive(Clone, Copy)]
pub(super) enum Collective<'a> {
    Move(&'a MoveArguments),
    Swap(&'a MoveArguments),
    Packets(&'a PacketArguments),
    Reduce(&'a ReduceArguments),
    ReducePackets(&'a ReducePacketArguments),
    Multicast(&'a MulticastArguments),
    Exchange(&'a ExchangeArguments),
}

impl Collective<'_> {
    /// Goes on with it as far as it can without waiting.
    ///
    /// # Safety
    /// [`Collective::check`] has passed, all memory that it names is live, and no other thread
    /// advances this progress.
    #[inline]
    pub(super) unsafe fn advance(self, pending: &mut Option<Pending>) -> Step {
        // SAFETY: the caller's word.
        unsafe {
            match self {
                Self::Move(arguments) => barriered::advance_move(arguments, pending),
                Self::Swap(arguments) => barriered::advance_swap(arguments, pending),
                Self::Packets(arguments) => packets::advance_packets(arguments, pending),
                Self::Reduce(arguments) => barriered::advance_reduce(arguments, pending),
                Self::ReducePackets(arguments) => {
                    packets::advance_reduce_packets(arguments, pending)
                }
                Self::Multicast(arguments) => barriered::advance_multicast(arguments, pending),
                Self::Exchange(arguments) => {
                    exchange::advance(arguments, pending, |address, _| Some(address))
                }
            }
        }
    }

    fn group(&self) -> &CollectiveGroup {
        match self {
            Self::Move(arguments) | Self::Swap(arguments) => &arguments.group,
            Self::Packets(arguments) => &arguments.group,
            Self::Reduce(arguments) => &arguments.group,
            Self::ReducePackets(arguments) => &arguments.group,
            Self::Multicast(arguments) => &arguments.group,
            Self::Exchange(arguments) => &arguments.group,
        }
    }

    fn call(&self) -> &'static str {
        match self {
            Self::Move(_) => "collective_move",
            Self::Swap(_) => "collective_swap",
            Self::Packets(_) => "collective_packets",
            Self::Reduce(_) => "collective_reduce",
            Self::ReducePackets(_) => "collective_reduce_packets",
            Self::Multicast(_) => "collective_multicast",
            Self::Exchange(_) => "collective_exchange",
        }
    }

    /// Refuses numbers out of range.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`.
    pub(super) fn check(&self) -> CallResult<()> {
        let refuse = |why: String| Err(Failure::new(Status::INVALID_ARGUMENT, self.call(), why));
        let group = self.group();
        let (rank, world) = (group.rank, group.world);
        if world == 0 || world as usize > MAX_RANKS || rank >= world {
            return refuse(format!(
                "rank {rank} in a group of {world}: a group has 1 to {MAX_RANKS} ranks, numbered from 0"
            ));
        }
        if matches!(self, Self::Packets(_) | Self::ReducePackets(_))
            && members::inbox_capacity(group) == 0
        {
            return refuse(format!(
                "regions of {} bytes are too small for packets among {world} ranks; give at least {}",
                group.packet_bytes,
                u64::from(world) * 32
            ));
        }
        let reduction = match self {
            Self::Reduce(arguments) => Some((arguments.element, arguments.reduce)),
            Self::ReducePackets(arguments) => Some((arguments.element, arguments.reduce)),
            Self::Move(arguments) | Self::Swap(arguments)
                if arguments.copies as usize > MAX_RANKS =>
            {
                return refuse(format!(
                    "{} copies are more than the {MAX_RANKS} of one call",
                    arguments.copies
                ));
            }
            Self::Multicast(arguments) => match (arguments.load, arguments.store) {
                (MulticastLoad::REDUCED, MulticastStore::OWN | MulticastStore::ALL) => {
                    Some((arguments.element, arguments.reduce))
                }
                (MulticastLoad::OWN, MulticastStore::OWN | MulticastStore::ALL) => None,
                (load, store) => {
                    return refuse(format!(
                        "load {} and store {} are of another version",
                        load.0, store.0
                    ));
                }
            },
            Self::Move(_) | Self::Swap(_) | Self::Packets(_) | Self::Exchange(_) => None,
        };
        if let Some((element, reduce)) = reduction
            && arithmetic::reduction(element, reduce).is_none()
        {
            return refuse(format!(
                "element type {} ({}) and operation {} ({}) name no reduction of this version",
                element.name(),
                element.0,
                reduce.name(),
                reduce.0
            ));
        }
        Ok(())
    }
}

impl Submission for Collective<'_> {
    unsafe fn advance(&self, progress: &mut Progress) -> Step {
        // SAFETY: the caller's word.
        unsafe { Collective::advance(*self, &mut progress.pending) }
    }

    fn into_operation(self) -> Operation {
        match self {
            Self::Move(arguments) => Operation::Move(*arguments),
            Self::Swap(arguments) => Operation::Swap(*arguments),
            Self::Packets(arguments) => Operation::Packets(*arguments),
            Self::Reduce(arguments) => Operation::Reduce(*arguments),
            Self::ReducePackets(arguments) => Operation::ReducePackets(*arguments),
            Self::Multicast(arguments) => Operation::Multicast(*arguments),
            Self::Exchange(arguments) => Operation::Exchange(*arguments),
        }
    }
}

impl HostBackend {
    /// # Safety
    /// As [`Collectives::collective_move`].
    #[inline]
    unsafe fn collective(&self, collective: Collective<'_>, stream: RawStream) -> CallResult<()> {
        collective.check()?;
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, collective.call())? };
        // SAFETY: the caller keeps the memory alive until the stream has passed this point.
        unsafe { stream.submit(collective) }
    }
}

impl Collectives for HostBackend {
    unsafe fn barrier(&self, barrier: &Barrier, stream: RawStream) -> CallResult<()> {
        // SAFETY: the caller names a live stream.
        let stream = unsafe { self.stream(stream, "barrier")? };
        if barrier.world as usize > MAX_RANKS {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "barrier",
                format!(
                    "{} ranks are more than the {MAX_RANKS} that a node group can have",
                    barrier.world
                ),
            ));
        }
        // SAFETY: the caller keeps the words alive until the stream has passed this point; `world`
        // was checked.
        unsafe { stream.submit(Operation::Barrier(*barrier)) }
    }

    fn collective_row(&self, index: u32) -> CallResult<CollectiveRow> {
        Ok(rows::row(index))
    }

    fn resident_blocks(
        &self,
        kernel: CollectiveKernel,
        element: ElementType,
        _threads: u32,
    ) -> CallResult<u32> {
        let known = match kernel {
            CollectiveKernel::MOVE
            | CollectiveKernel::SWAP
            | CollectiveKernel::PACKETS
            | CollectiveKernel::EXCHANGE => true,
            CollectiveKernel::MULTICAST_MOVE => self.multicast == MulticastSupport::EMULATED,
            CollectiveKernel::MULTICAST_REDUCE => {
                self.multicast == MulticastSupport::EMULATED
                    // A switch sums floats of 8 bits in f16, which is not emulated; other bytes it does not reduce.
                    && element.bytes() > 1
                    && arithmetic::reduction(element, ReduceOperation::SUM).is_some()
            }
            CollectiveKernel::REDUCE
            | CollectiveKernel::REDUCE_PACKETS
            | CollectiveKernel::REDUCE_PUSH => {
                arithmetic::reduction(element, ReduceOperation::SUM).is_some()
            }
            _ => false,
        };
        Ok(known.into())
    }

    unsafe fn collective_move(
        &self,
        arguments: &MoveArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: passed on from the caller.
        unsafe { self.collective(Collective::Move(arguments), stream) }
    }

    unsafe fn collective_swap(
        &self,
        arguments: &MoveArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: passed on from the caller.
        unsafe { self.collective(Collective::Swap(arguments), stream) }
    }

    unsafe fn collective_packets(
        &self,
        arguments: &PacketArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: passed on from the caller.
        unsafe { self.collective(Collective::Packets(arguments), stream) }
    }

    unsafe fn collective_reduce(
        &self,
        arguments: &ReduceArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: passed on from the caller.
        unsafe { self.collective(Collective::Reduce(arguments), stream) }
    }

    unsafe fn collective_reduce_packets(
        &self,
        arguments: &ReducePacketArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: passed on from the caller.
        unsafe { self.collective(Collective::ReducePackets(arguments), stream) }
    }

    unsafe fn collective_multicast(
        &self,
        arguments: &MulticastArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: passed on from the caller.
        unsafe { self.collective(Collective::Multicast(arguments), stream) }
    }

    unsafe fn collective_reduce_push(
        &self,
        arguments: &ReducePushArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // A processor loads from its peers as fast as they would store: no inbox is needed.
        // SAFETY: passed on from the caller.
        unsafe { self.collective(Collective::Reduce(&arguments.reduce), stream) }
    }

    unsafe fn collective_exchange(
        &self,
        arguments: &ExchangeArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: passed on from the caller.
        unsafe { self.collective(Collective::Exchange(arguments), stream) }
    }

    fn vendor_description(&self) -> CallResult<VendorDescription> {
        no_vendor("vendor_description")
    }

    fn vendor_identifier(&self) -> CallResult<VendorIdentifier> {
        no_vendor("vendor_identifier")
    }

    fn vendor_create(
        &self,
        _identifier: &VendorIdentifier,
        _rank: u32,
        _world: u32,
    ) -> CallResult<RawVendor> {
        no_vendor("vendor_create")
    }

    unsafe fn vendor_ready(&self, _vendor: RawVendor) -> CallResult<u32> {
        no_vendor("vendor_ready")
    }

    unsafe fn vendor_call(
        &self,
        _vendor: RawVendor,
        _call: &VendorCall,
        _stream: RawStream,
    ) -> CallResult<()> {
        no_vendor("vendor_call")
    }

    fn vendor_group(&self, _open: u32) -> CallResult<()> {
        no_vendor("vendor_group")
    }

    unsafe fn vendor_register(
        &self,
        _vendor: RawVendor,
        _address: DeviceAddress,
        _bytes: u64,
    ) -> CallResult<u64> {
        no_vendor("vendor_register")
    }

    unsafe fn vendor_deregister(&self, _vendor: RawVendor, _window: u64) -> CallResult<()> {
        no_vendor("vendor_deregister")
    }

    unsafe fn vendor_abort(&self, _vendor: RawVendor) -> CallResult<()> {
        no_vendor("vendor_abort")
    }

    unsafe fn vendor_destroy(&self, _vendor: RawVendor) -> CallResult<()> {
        no_vendor("vendor_destroy")
    }
}

fn no_vendor<T>(call: &'static str) -> CallResult<T> {
    Err(Failure::new(
        Status::UNSUPPORTED,
        call,
        "the host backend has no vendor, and so no vendor's library; use our own algorithms",
    ))
}
