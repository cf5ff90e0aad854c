//! Collectives as a stream receives them: arguments, checks, and dispatch to a family.

use super::{
    arithmetic, barriered, exchange, members, move_lamport, packets, reduce_lamport, reduce_norm,
};
use crate::backend::abi::*;
use crate::backend::{CallResult, Failure};
use crate::host::progress::{Pending, Step};

/// The arguments of a collective. They are large, so they are copied only if the stream queues the call.
#[derive(Clone, Copy)]
pub(crate) enum Collective<'a> {
    Move(&'a MoveArguments),
    Swap(&'a MoveArguments),
    Packets(&'a PacketArguments),
    Reduce(&'a ReduceArguments),
    ReducePackets(&'a ReducePacketArguments),
    ReduceLamport(&'a ReduceLamportArguments),
    MoveLamport(&'a MoveLamportArguments),
    ReduceNorm(&'a ReduceNormArguments),
    Multicast(&'a MulticastArguments),
    Exchange(&'a ExchangeArguments),
}

impl Collective<'_> {
    /// Advances the collective as far as possible without waiting.
    ///
    /// # Safety
    /// [`Collective::check`] has passed, all memory in the arguments is live, and no other thread advances `pending`.
    #[inline]
    pub(crate) unsafe fn advance(self, pending: &mut Option<Pending>) -> Step {
        // SAFETY: this function has the same conditions.
        unsafe {
            match self {
                Self::Move(arguments) => barriered::advance_move(arguments, pending),
                Self::Swap(arguments) => barriered::advance_swap(arguments, pending),
                Self::Packets(arguments) => packets::advance_packets(arguments, pending),
                Self::Reduce(arguments) => barriered::advance_reduce(arguments, pending),
                Self::ReducePackets(arguments) => {
                    packets::advance_reduce_packets(arguments, pending)
                }
                Self::ReduceLamport(arguments) => reduce_lamport::advance(arguments, pending),
                Self::MoveLamport(arguments) => move_lamport::advance(arguments, pending),
                Self::ReduceNorm(arguments) => reduce_norm::advance(arguments, pending),
                Self::Multicast(arguments) => barriered::advance_multicast(arguments, pending),
                Self::Exchange(arguments) => {
                    exchange::advance(arguments, pending, &mut |address, _| Some(address))
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
            Self::ReduceLamport(arguments) => &arguments.group,
            Self::MoveLamport(arguments) => &arguments.group,
            Self::ReduceNorm(arguments) => &arguments.reduce.group,
            Self::Multicast(arguments) => &arguments.group,
            Self::Exchange(arguments) => &arguments.group,
        }
    }

    /// The contract's method for this collective.
    pub(crate) fn call(&self) -> &'static str {
        match self {
            Self::Move(_) => "collective_move",
            Self::Swap(_) => "collective_swap",
            Self::Packets(_) => "collective_packets",
            Self::Reduce(_) => "collective_reduce",
            Self::ReducePackets(_) => "collective_reduce_packets",
            Self::ReduceLamport(_) => "collective_reduce_lamport",
            Self::MoveLamport(_) => "collective_move_lamport",
            Self::ReduceNorm(_) => "collective_reduce_norm",
            Self::Multicast(_) => "collective_multicast",
            Self::Exchange(_) => "collective_exchange",
        }
    }

    /// Checks that all numbers are in range.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` names the value that is out of range.
    pub(crate) fn check(&self) -> CallResult<()> {
        let refuse = |why: String| Err(Failure::new(Status::INVALID_ARGUMENT, self.call(), why));
        let group = self.group();
        let (rank, world) = (group.rank, group.world);
        if world == 0 || world as usize > MAX_RANKS || rank >= world {
            return refuse(format!(
                "rank {rank} is not in a group of {world} ranks; a group has 1 to {MAX_RANKS} ranks, numbered from 0"
            ));
        }
        if matches!(self, Self::Packets(_) | Self::ReducePackets(_))
            && members::inbox_capacity(group) == 0
        {
            return refuse(format!(
                "packet regions of {} bytes are too small for {world} ranks; give at least {} bytes",
                group.packet_bytes,
                u64::from(world) * 32
            ));
        }
        let reduction = match self {
            Self::Reduce(arguments) => Some((arguments.element, arguments.reduce)),
            Self::ReducePackets(arguments) => Some((arguments.element, arguments.reduce)),
            Self::ReduceLamport(arguments) => {
                reduce_lamport::check(arguments).or_else(refuse)?;
                Some((arguments.element, arguments.reduce))
            }
            Self::MoveLamport(arguments) => {
                arguments.check().or_else(refuse)?;
                None
            }
            Self::ReduceNorm(arguments) => {
                arguments.check().or_else(refuse)?;
                None
            }
            Self::Move(arguments) | Self::Swap(arguments)
                if arguments.copies as usize > MAX_RANKS =>
            {
                return refuse(format!(
                    "{} copies are more than one call can make, {MAX_RANKS}; split them into several calls",
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
                        "load {} or store {} is unknown to this version; use program and backend of the same release",
                        load.0, store.0
                    ));
                }
            },
            Self::Exchange(arguments) => {
                arguments.check().or_else(refuse)?;
                None
            }
            Self::Move(_) | Self::Swap(_) | Self::Packets(_) => None,
        };
        if let Some((element, reduce)) = reduction
            && arithmetic::reduction(element, reduce).is_none()
        {
            return refuse(format!(
                "no reduction of element type {} ({}) by operator {} ({}); use types and operators of this version",
                element.name(),
                element.0,
                reduce.name(),
                reduce.0
            ));
        }
        Ok(())
    }
}
