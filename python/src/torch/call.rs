//! What an operator asks for, and how that is enqueued.

use crate::calls::{self, Collective};
use crate::failure::{Result, invalid};
use crate::operand::Memory;
use crate::rank::{self, Keeps, Where};
use crate::{arrays, element};
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
    /// The number of the communicator.
    pub communicator: i64,
    pub device_type: DeviceType,
    /// The number of the device; -1 for the host's memory.
    pub device_index: i32,
    /// PyTorch's current stream on that device; 0 for the host's memory.
    pub stream: u64,
}

/// Enqueues a call. Blocks on the host backend only. Needs nothing of Python.
///
/// # Errors
/// If communicator, device or sizes do not fit; the call's.
///
/// # Safety
/// The addresses are valid until the stream has passed the work: PyTorch's allocator frees memory in the order of streams.
pub unsafe fn enqueue(call: &Call) -> Result<()> {
    let number = u64::try_from(call.communicator).ok();
    let rank = number.and_then(rank::find).ok_or_else(|| {
        let number = call.communicator;
        invalid(format!(
            "there is no communicator {number}, or it was finalized"
        ))
    })?;
    let place = match call.device_type {
        DeviceType::Cpu => {
            arrays::on_host(&rank, "the tensor")?;
            Where::AtOnce(Vec::new())
        }
        DeviceType::Cuda => {
            arrays::on_ordinal(&rank, "the tensor", i64::from(call.device_index))?;
            Where::On(call.stream, Keeps::default())
        }
    };
    let world = rank.communicator.world_size();
    if let Some(theirs) = call.world.filter(|theirs| *theirs != world) {
        return Err(invalid(format!(
            "the tensors are sized for {theirs} ranks, and the communicator has {world}"
        )));
    }
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
