//! Legs of a collective over nodes by NCCL or RCCL, on its communicator of this rank's rail. They are on the caller's stream and
//! work on device memory: the staging memory, or the call's own.

use super::rehearsal::Purpose;
use super::stages::{Elements, Nodes};
use super::task::{Task, Work};
use crate::backend::NcclCollectives;
use crate::backend::abi::{
    AlgorithmCode, CollectiveOperationCode as O, ElementTypeCode, NcclCall, RawNccl, ReduceOpCode,
};
use crate::base::error::Result;
use crate::collectives::explanation::WithoutNccl;
use crate::group::nccl;
use crate::group::operations;
use crate::group::provider::Provider;
use crate::network::leg::parts::Span;
use crate::rank::memory_range::MemoryRange;

/// Fewest bytes of a leg that NCCL carries without being named. Between two H100s that posed as two hosts, over TCP, an
/// all-reduce by one rank a GPU took 85 µs by NCCL's legs and 38 by UCX's for 8 B, 264 and 273 for 256 KiB, and 6.4 and 11.8
/// ms for 16 MiB (`benches/NOTES.md`, "Between nodes"). No other machine has been measured.
const NCCL_FROM: u64 = 256 << 10;

/// Returns whether NCCL reduces elements as legs do. It has no 16-bit integers, and sums 8-bit floats in their own type.
fn reduces_alike(element: ElementTypeCode, reduce: ReduceOpCode) -> bool {
    use ElementTypeCode as E;
    let has = !matches!(element, E::I16 | E::U16 | E::F8_E4M3 | E::F8_E5M2);
    has && (reduce != ReduceOpCode::AVERAGE || operations::nccl_averages_alike(element))
}

/// Returns whether an operation moves parts between ranks of different numbers within their nodes.
fn goes_between_pairs(operation: O) -> bool {
    matches!(
        operation,
        O::ALL_TO_ALL | O::ALL_TO_ALL_V | O::GATHER | O::SCATTER | O::EXCHANGE
    )
}

impl Nodes<'_> {
    /// Returns whether the call names NCCL.
    fn names_library(&self) -> bool {
        self.options.provider == Provider::Nccl || self.options.algorithm == AlgorithmCode::VENDOR
    }

    /// Refuses a call that names NCCL, for the reason why it does not do its legs.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported).
    pub fn refuse_library(&self, reason: WithoutNccl) -> Result<()> {
        match self.names_library() {
            false => Ok(()),
            true => Err(self.unsupported(format!(
                "NCCL or RCCL does not carry this call between nodes: {reason}{}",
                match reason {
                    WithoutNccl::NotOpen => "",
                    WithoutNccl::Excluded => "; name `Provider::Nccl` or no provider",
                    _ => "; leave the provider to symmem",
                }
            ))),
        }
    }

    /// Lets NCCL do the legs of a call of `bytes` bytes that reduces `elements`, or moves them, if it is open and can, and
    /// takes less time than UCX or is named. All members decide alike, by what all know.
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the call names NCCL, which cannot.
    pub fn with_library(self, elements: Elements, (operation, bytes): (O, u64)) -> Result<Self> {
        let library = self.rail_library(elements, (operation, bytes));
        if let Err(reason) = library {
            self.refuse_library(reason)?;
        }
        Ok(Self { library, ..self })
    }

    /// Returns NCCL's communicator of this rank's rail, or why it does not do the legs of a call.
    fn rail_library(
        &self,
        elements: Elements,
        (operation, bytes): (O, u64),
    ) -> std::result::Result<RawNccl, WithoutNccl> {
        let collectives = &self.world.collectives;
        let world = collectives.everyone.far.as_ref();
        let world_rail = world.and_then(|far| far.rail.as_ref());
        if goes_between_pairs(operation) {
            Err(WithoutNccl::Pairs)
        } else if self.options.provider == Provider::Symmem {
            Err(WithoutNccl::Excluded)
        } else if self.far.rail.is_none() {
            Err(WithoutNccl::UnevenNodes)
        } else if self.far.rail.as_ref() != world_rail {
            Err(WithoutNccl::OtherRails)
        } else if operations::reduces(operation)
            && !reduces_alike(elements.element, elements.reduce)
        {
            Err(WithoutNccl::Elements)
        } else {
            let library = collectives.nccl.rail().ok_or(WithoutNccl::NotOpen)?;
            match self.names_library() || self.leg_bytes(operation, bytes) >= NCCL_FROM {
                true => Ok(library),
                false => Err(WithoutNccl::Small),
            }
        }
    }

    /// Returns the bytes of a leg of a call of `bytes` bytes on nodes of equal size: a broadcast and a reduce have one leg,
    /// the others one on each rail.
    fn leg_bytes(&self, operation: O, bytes: u64) -> u64 {
        match operation {
            O::BROADCAST | O::REDUCE => bytes,
            _ => bytes / self.here() as u64,
        }
    }

    /// Enqueues a leg of this rank's rail, whose ranges are in `region`.
    pub fn by_rail(&self, library: RawNccl, task: &Task, region: MemoryRange<'_>) -> Result<()> {
        let queue = match self.purpose {
            Purpose::Enqueue(queue) => queue,
            Purpose::Rehearse(rehearsal) => {
                rehearsal.add_leg(self.describe(task)?);
                return Ok(());
            }
        };
        self.log_leg(task)?;
        let sequence = self.membership.sequence(self.options.channel);
        queue.admit(self.name, sequence)?;
        let submit = queue.submit(self.name);
        // NCCL chooses its own grid.
        submit.follow(sequence, u32::MAX);
        let (backend, stream, rank) = (submit.backend(), submit.stream(), submit.rank());
        let address = |span: Span| submit.address(&region.part(span.offset, span.bytes), rank);
        let bytes = Elements::BYTES;
        let one =
            |operation, elements: Elements, (from, to): (Span, Span), count: u64, root: usize| {
                let call = NcclCall {
                    source: address(from),
                    destination: address(to),
                    count: count / elements.bytes,
                    operation,
                    element: elements.element,
                    reduce: elements.reduce,
                    peer: root as u32,
                };
                // SAFETY: the ranges are inside the region, which `submit` keeps. The members of the rail make the same calls
                // in the same order, since plans depend only on what all know.
                unsafe { backend.nccl_call(library, &call, stream) }
            };
        let enqueued = match &task.work {
            Work::AllReduce { elements, data } => {
                one(O::ALL_REDUCE, *elements, (*data, *data), data.bytes, 0)
            }
            Work::Reduce {
                root,
                elements,
                data,
            } => one(O::REDUCE, *elements, (*data, *data), data.bytes, *root),
            Work::ReduceScatter {
                elements,
                offset,
                stride,
                ..
            } => {
                // Whole lines: what is behind a part is nobody's.
                let part = |member: u64| Span {
                    offset: offset + member * stride,
                    bytes: *stride,
                };
                let places = (part(0), part(task.own as u64));
                one(O::REDUCE_SCATTER, *elements, places, *stride, 0)
            }
            Work::Broadcast { root, data } => {
                one(O::BROADCAST, bytes, (*data, *data), data.bytes, *root)
            }
            Work::Exchange { sent, received } => {
                let members = task.members.len();
                let others = (0..members).filter(|&member| member != task.own);
                let messages = others.flat_map(|member| {
                    let (sent, received) = (sent.of(member, members), received.of(member, members));
                    [(member, true, sent), (member, false, received)]
                });
                let messages = messages
                    .filter(|(_, _, span)| span.bytes > 0)
                    .map(|(member, sends, span)| (member, sends, address(span), span.bytes));
                // SAFETY: as above; what one member sends has as many bytes as the other receives.
                unsafe { nccl::messages(backend, library, messages, stream) }
            }
            Work::Barrier => Ok(()),
        };
        submit.end(enqueued)
    }
}
