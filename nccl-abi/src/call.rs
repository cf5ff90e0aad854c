//! A collective call: who does it, and how symmem does.

use crate::abi::{self, Code, Comm, Stream};
use crate::element::{element_of, operator_of, with_type};
use crate::failure::{Failure, run};
use crate::group;
use crate::member::{self, Member};
use std::ffi::{c_int, c_void};
use symmem::{
    CollectiveOperation, CollectiveOptions, DeviceAddress, DeviceSlice, Provider, ReduceOp,
};

/// A collective that symmem does too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AllReduce,
    Reduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    AllToAll,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::Reduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::AllToAll,
    ];

    /// Returns its name in `nccl.h`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "ncclAllReduce",
            Self::Reduce => "ncclReduce",
            Self::ReduceScatter => "ncclReduceScatter",
            Self::AllGather => "ncclAllGather",
            Self::Broadcast => "ncclBroadcast",
            Self::AllToAll => "ncclAlltoAll",
        }
    }

    /// Returns its name in the library.
    pub fn operation(self) -> CollectiveOperation {
        match self {
            Self::AllReduce => CollectiveOperation::AllReduce,
            Self::Reduce => CollectiveOperation::Reduce,
            Self::ReduceScatter => CollectiveOperation::ReduceScatter,
            Self::AllGather => CollectiveOperation::AllGather,
            Self::Broadcast => CollectiveOperation::Broadcast,
            Self::AllToAll => CollectiveOperation::AllToAll,
        }
    }
}

/// The arguments of a collective call, as the program gave them.
#[derive(Clone, Copy)]
pub struct Call {
    pub kind: Kind,
    pub source: *const c_void,
    pub destination: *mut c_void,
    /// Elements of a part.
    pub count: usize,
    pub element: c_int,
    /// The reduction's number; [`Call::MOVES`] for calls that move only.
    pub reduce: c_int,
    /// The root; 0 for calls that have none.
    pub root: c_int,
    pub comm: Comm,
    pub stream: Stream,
}

impl Call {
    /// In place of a reduction, for calls that move only.
    pub const MOVES: c_int = 0;

    /// Returns the reduction, or that of [`Call::MOVES`]; `None` for one that the program made.
    pub fn operator(&self) -> Option<ReduceOp> {
        operator_of(self.reduce)
    }

    /// Does the call, or lets NCCL do it, at once or at the end of the thread's group.
    ///
    /// # Safety
    /// The memory is on the rank's device and has the elements that the call says, until the stream has passed the work.
    pub unsafe fn dispatch(self, nccl: impl FnOnce() -> Result<(), Failure>) -> Code {
        run(self.kind.name(), || {
            let Some(member) = member::find(self.comm) else {
                return nccl();
            };
            if !member.does(&self) {
                member.counts.add(self.kind, false);
                return nccl();
            }
            if !group::defer(self) {
                // SAFETY: guaranteed by the caller.
                unsafe { self.enqueue(&member) }?;
            }
            Ok(())
        })
    }

    /// Enqueues the call.
    ///
    /// # Errors
    /// What is wrong with the arguments, or failed.
    ///
    /// # Safety
    /// As [`Call::dispatch`].
    pub unsafe fn enqueue(&self, member: &Member) -> Result<(), Failure> {
        let wrong = |message: String| Failure::new(abi::INVALID_ARGUMENT, message);
        let name = self.kind.name();
        let (element, size) = element_of(self.element)
            .ok_or_else(|| wrong(format!("{name}: there is no element type {}", self.element)))?;
        let operator = self.operator().ok_or_else(|| {
            let message = format!("{name}: reduction {} is NCCL's own", self.reduce);
            Failure::new(abi::INVALID_USAGE, message)
        })?;
        let world = member.communicator.world_size();
        let root = usize::try_from(self.root).ok().filter(|root| *root < world);
        let root = root.ok_or_else(|| wrong(format!("{name}: there is no rank {}", self.root)))?;
        let is_root = root == member.communicator.rank();
        member.counts.add(self.kind, true);
        if self.count == 0 {
            return Ok(());
        }
        // Programs may pass anything where a rank has nothing to give or to get.
        let (mut source, mut destination) = (self.source.addr(), self.destination.addr());
        match self.kind {
            Kind::Reduce if !is_root => destination = source,
            Kind::Broadcast if !is_root => source = destination,
            _ => {}
        }
        let (to, from) = match self.kind {
            Kind::AllReduce | Kind::Reduce | Kind::Broadcast => (1, 1),
            Kind::ReduceScatter => (1, world),
            Kind::AllGather => (world, 1),
            Kind::AllToAll => (world, world),
        };
        let operands = Operands {
            member,
            destination: (destination, to),
            source: (source, from),
        };
        let options = CollectiveOptions::new().provider(Provider::Symmem);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.kind {
                Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => {
                    with_type!(element, T => {
                        let (to, from) = operands.of::<T>(self.count)?;
                        member.enqueue(self.stream, |queue| {
                            let on = queue.with(&options);
                            match self.kind {
                                Kind::Reduce => on.reduce(root, to, from, operator),
                                Kind::ReduceScatter => on.reduce_scatter(to, from, operator),
                                _ => on.all_reduce(to, from, operator),
                            }
                        })
                    })
                }
                Kind::AllGather | Kind::Broadcast | Kind::AllToAll => {
                    let bytes = self.count.checked_mul(size);
                    let too_many = || wrong(format!("{name}: {} elements", self.count));
                    let (to, from) = operands.of::<u8>(bytes.ok_or_else(too_many)?)?;
                    member.enqueue(self.stream, |queue| {
                        let on = queue.with(&options);
                        match self.kind {
                            Kind::Broadcast => on.broadcast(root, to, from),
                            Kind::AllToAll => on.all_to_all(to, from),
                            _ => on.all_gather(to, from),
                        }
                    })
                }
            }
        }
    }
}

/// Destination and source: each an address and its number of parts.
struct Operands<'a> {
    member: &'a Member,
    destination: (usize, usize),
    source: (usize, usize),
}

impl<'a> Operands<'a> {
    /// Returns destination and source, with `count` elements a part.
    ///
    /// # Safety
    /// As [`Call::dispatch`].
    unsafe fn of<T: symmem::Element>(
        &self,
        count: usize,
    ) -> Result<(DeviceSlice<'a, T>, DeviceSlice<'a, T>), Failure> {
        let slice = |(address, parts): (usize, usize)| {
            let length = count.checked_mul(parts).ok_or_else(|| {
                let message = format!("{parts} parts of {count} elements");
                Failure::new(abi::INVALID_ARGUMENT, message)
            })?;
            let address = DeviceAddress(address as u64);
            let communicator = &self.member.communicator;
            // SAFETY: guaranteed by the caller.
            Ok::<_, Failure>(unsafe { communicator.device_slice::<T>(address, length) }?)
        };
        Ok((slice(self.destination)?, slice(self.source)?))
    }
}
