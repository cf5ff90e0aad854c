//! Collectives on a stream of the host backend.

use crate::backend::abi::*;
use crate::backend::{CallResult, CollectiveKernels, Failure};
use crate::host::backend::HostBackend;
use crate::host::collectives::{Collective, arithmetic, rows};
use crate::host::stream::Operation;

impl HostBackend {
    /// # Safety
    /// As for [`CollectiveKernels::collective_move`].
    #[inline]
    unsafe fn collective(&self, collective: Collective<'_>, stream: RawStream) -> CallResult<()> {
        collective.check()?;
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, collective.call())? };
        // SAFETY: the caller keeps the memory live until the stream has passed this point.
        unsafe { stream.submit(collective) }
    }
}

impl CollectiveKernels for HostBackend {
    unsafe fn barrier(&self, barrier: &Barrier, stream: RawStream) -> CallResult<()> {
        // SAFETY: the caller passes a live stream.
        let stream = unsafe { self.stream(stream, "barrier")? };
        if barrier.world as usize > MAX_RANKS {
            return Err(Failure::new(
                Status::INVALID_ARGUMENT,
                "barrier",
                format!(
                    "{} ranks are more than a group can have, {MAX_RANKS}; use fewer ranks",
                    barrier.world
                ),
            ));
        }
        // SAFETY: the caller keeps the words live until the stream has passed this point, and `world` was checked.
        unsafe { stream.submit(Operation::Barrier(*barrier)) }
    }

    fn collective_row(&self, index: u32) -> CallResult<Option<CollectiveRow>> {
        Ok(rows::row(index))
    }

    fn resident_blocks(
        &self,
        kernel: CollectiveKernel,
        element: ElementTypeCode,
        _threads: u32,
    ) -> CallResult<u32> {
        let known = match kernel {
            CollectiveKernel::MOVE
            | CollectiveKernel::SWAP
            | CollectiveKernel::PACKETS
            | CollectiveKernel::PIECES
            | CollectiveKernel::EXCHANGE
            | CollectiveKernel::MOVE_LAMPORT => true,
            CollectiveKernel::MULTICAST_MOVE => self.multicast == MulticastSupportCode::EMULATED,
            CollectiveKernel::MULTICAST_REDUCE => {
                self.multicast == MulticastSupportCode::EMULATED
                    // An NVLS switch sums fp8 in f16, which is not emulated, and reduces no 8-bit integers.
                    && element.bytes() > 1
                    && arithmetic::reduction(element, ReduceOpCode::SUM).is_some()
            }
            CollectiveKernel::REDUCE
            | CollectiveKernel::REDUCE_PACKETS
            | CollectiveKernel::REDUCE_PUSH => {
                arithmetic::reduction(element, ReduceOpCode::SUM).is_some()
            }
            CollectiveKernel::REDUCE_LAMPORT => {
                ReduceLamportArguments::can_carry(element, ReduceOpCode::SUM)
            }
            CollectiveKernel::REDUCE_NORM => ReduceNormArguments::can_carry(element),
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
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::Move(arguments), stream) }
    }

    unsafe fn collective_swap(
        &self,
        arguments: &MoveArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::Swap(arguments), stream) }
    }

    unsafe fn collective_packets(
        &self,
        arguments: &PacketArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::Packets(arguments), stream) }
    }

    unsafe fn collective_reduce(
        &self,
        arguments: &ReduceArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::Reduce(arguments), stream) }
    }

    unsafe fn collective_reduce_packets(
        &self,
        arguments: &ReducePacketArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::ReducePackets(arguments), stream) }
    }

    unsafe fn collective_multicast(
        &self,
        arguments: &MulticastArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::Multicast(arguments), stream) }
    }

    unsafe fn collective_reduce_push(
        &self,
        arguments: &ReducePushArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        let reduce = &arguments.reduce;
        let members = &reduce.sources[..(reduce.group.world as usize).min(MAX_RANKS)];
        if members.contains(&DeviceAddress::NULL)
            && let Some(packets) = arguments.in_packets()
        {
            // SAFETY: the trait method has the same conditions.
            return unsafe { self.collective(Collective::ReducePackets(&packets), stream) };
        }
        // A processor loads from its peers as fast as they would store, so no inbox is needed.
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::Reduce(reduce), stream) }
    }

    unsafe fn collective_pieces(
        &self,
        arguments: &PieceArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::Packets(&arguments.in_packets()), stream) }
    }

    unsafe fn collective_exchange(
        &self,
        arguments: &ExchangeArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::Exchange(arguments), stream) }
    }

    unsafe fn collective_reduce_lamport(
        &self,
        arguments: &ReduceLamportArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::ReduceLamport(arguments), stream) }
    }

    unsafe fn collective_move_lamport(
        &self,
        arguments: &MoveLamportArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::MoveLamport(arguments), stream) }
    }

    unsafe fn collective_reduce_norm(
        &self,
        arguments: &ReduceNormArguments,
        _geometry: &Geometry,
        stream: RawStream,
    ) -> CallResult<()> {
        // SAFETY: the trait method has the same conditions.
        unsafe { self.collective(Collective::ReduceNorm(arguments), stream) }
    }
}
