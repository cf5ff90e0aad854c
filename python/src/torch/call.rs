//! What an operator asks for, and how that is enqueued.

use crate::calls::{self, Collective};
use crate::failure::{Result, invalid};
use crate::operand::Memory;
use crate::rank::{self, Keeps, Rank, Where};
use crate::{arrays, element};
use std::sync::Arc;
use symmem::ElementType;

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
}

/// Where a tensor's memory is. PyTorch calls AMD's GPUs CUDA too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceType {
    Cpu,
    Cuda,
}

/// A collective on addresses.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub kind: Kind,
    /// May equal `source`. Null only where there are no elements, as `source`.
    pub destination: u64,
    pub source: u64,
    /// Elements: of the whole tensor for an all-reduce, of the source for an all-gather, of the destination for a
    /// reduce-scatter, of the whole source for an all-to-all.
    pub count: usize,
    /// The number of ranks that the tensors were sized for, if the operator knows it.
    pub world: Option<usize>,
    pub element: ElementType,
    /// The number of the reduction; 0 where nothing is reduced.
    pub op: i64,
    pub target: Target,
}

/// Where an operator's work goes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The number of the communicator.
    pub communicator: i64,
    pub device_type: DeviceType,
    /// The number of the device; -1 for the host's memory.
    pub device_index: i32,
    /// PyTorch's current stream on that device; 0 for the host's memory.
    pub stream: u64,
}

impl Target {
    /// Returns the rank, and where a call on its tensors is enqueued.
    ///
    /// # Errors
    /// If there is no such communicator, or its rank has another device.
    pub fn find(&self) -> Result<(Arc<Rank>, Where)> {
        let number = u64::try_from(self.communicator).ok();
        let rank = number.and_then(rank::find).ok_or_else(|| {
            invalid(format!(
                "there is no communicator {}, or it was finalized, left or rebuilt",
                self.communicator
            ))
        })?;
        let place = match self.device_type {
            DeviceType::Cpu => {
                arrays::on_host(&rank, "the tensor")?;
                Where::AtOnce(Vec::new())
            }
            DeviceType::Cuda => {
                arrays::on_ordinal(&rank, "the tensor", i64::from(self.device_index))?;
                Where::On(self.stream, Keeps::default())
            }
        };
        Ok((rank, place))
    }
}

/// Enqueues a call. Blocks on the host backend only. Needs nothing of Python.
///
/// # Errors
/// If communicator, device or sizes do not fit; the call's.
///
/// # Safety
/// The addresses are valid until the stream has passed the work: PyTorch's allocator frees memory in the order of streams.
pub unsafe fn enqueue(call: &Call) -> Result<()> {
    let (rank, place) = call.target.find()?;
    same_world(&rank, call.world)?;
    let world = rank.communicator.world_size();
    let count = call.count;
    let all = count.checked_mul(world);
    let all = all.ok_or_else(|| invalid(format!("{count} elements for each of {world} ranks")))?;
    let (collective, to, from) = match call.kind {
        Kind::AllReduce => {
            let operator = element::reduction_of(call.op)?;
            (Collective::AllReduce(operator), count, count)
        }
        Kind::ReduceScatter => {
            let operator = element::reduction_of(call.op)?;
            (Collective::ReduceScatter(operator), count, all)
        }
        Kind::AllGather => (Collective::AllGather, all, count),
        Kind::AllToAll => (Collective::AllToAll, count, count),
    };
    // PyTorch knows on which device a tensor is.
    let destination = Memory::known(call.destination, to, call.element);
    let source = Memory::known(call.source, from, call.element);
    // SAFETY: guaranteed by the caller; the stream is PyTorch's, of the rank's device.
    unsafe { calls::enqueue(&rank, collective, (&destination, &source), place) }
}

/// Checks the number of ranks that tensors were sized for.
///
/// # Errors
/// If the communicator has another.
pub fn same_world(rank: &Rank, theirs: Option<usize>) -> Result<()> {
    let world = rank.communicator.world_size();
    match theirs.filter(|theirs| *theirs != world) {
        None => Ok(()),
        Some(theirs) => Err(invalid(format!(
            "the tensors are sized for {theirs} ranks, and the communicator has {world}"
        ))),
    }
}
