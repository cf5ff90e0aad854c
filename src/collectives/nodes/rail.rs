//! Legs of a collective over nodes by NCCL or RCCL, on its communicator of this rank's rail. They are on the caller's stream and
//! work on device memory: the staging memory, or the call's own.

use super::stages::{Elements, Nodes};
use super::task::{Task, Work};
use crate::backend::NcclCollectives;
use crate::backend::abi::{
    AlgorithmCode, CollectiveOperationCode as O, ElementTypeCode, NcclCall, RawNccl, ReduceOpCode,
};
use crate::base::error::{Error, Result};
use crate::group::nccl;
use crate::group::operations;
use crate::group::provider::Provider;
use crate::network::leg::parts::Span;
use crate::rank::memory_range::MemoryRange;

/// Returns whether NCCL reduces elements as legs do. It has no 16-bit integers, and sums 8-bit floats in their own type.
fn reduces_alike(element: ElementTypeCode, reduce: ReduceOpCode) -> bool {
    use ElementTypeCode as E;
    let has = !matches!(element, E::I16 | E::U16 | E::F8_E4M3 | E::F8_E5M2);
    has && (reduce != ReduceOpCode::AVERAGE || operations::nccl_averages_alike(element))
}

impl Nodes<'_> {
    /// Returns whether the call names NCCL.
    fn names_library(&self) -> bool {
        self.options.provider == Provider::Nccl || self.options.algorithm == AlgorithmCode::VENDOR
    }

    /// Refuses a call that names NCCL, for the reason why it does not do its legs.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn refuse_library(&self, reason: &str) -> Result<()> {
        match self.names_library() {
            false => Ok(()),
            true => Err(Error::Unsupported {
                rank: self.queue.world().rank,
                operation: self.name,
                message: format!(
                    "NCCL or RCCL does not carry this call between nodes: {reason}; leave the provider to symmem"
                ),
            }),
        }
    }

    /// Lets NCCL do the legs of a call that reduces `elements`, or moves them, among ranks of equal number within their nodes,
    /// if it is open and can.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the call names NCCL, which cannot.
    pub fn with_library(self, elements: Elements, operation: O) -> Result<Self> {
        let collectives = &self.queue.world().collectives;
        let world_rail = collectives
            .everyone
            .far
            .as_ref()
            .and_then(|far| far.rail.as_ref());
        let reason = if self.options.provider == Provider::Symmem {
            return Ok(self);
        } else if self.options.provider == Provider::NcclWindows {
            return Err(Error::Unsupported {
                rank: self.queue.world().rank,
                operation: self.name,
                message: "symmetric windows reach the ranks of one node only; use `Provider::Nccl`"
                    .into(),
            });
        } else if self.far.rail.is_none() {
            "the nodes have different numbers of ranks"
        } else if self.far.rail.as_ref() != world_rail {
            "the rails of the group are not those of the communicator"
        } else if operations::reduces(operation)
            && !reduces_alike(elements.element, elements.reduce)
        {
            "it does not reduce these elements as symmem does"
        } else if let Some(library) = collectives.nccl.rail() {
            return Ok(Self {
                library: Some(library),
                ..self
            });
        } else {
            "it is not open; call `Communicator::open_nccl` first"
        };
        self.refuse_library(reason)?;
        Ok(self)
    }

    /// Enqueues a leg of this rank's rail, whose ranges are in `region`.
    pub fn by_rail(&self, library: RawNccl, task: &Task, region: MemoryRange<'_>) -> Result<()> {
        let sequence = self.membership.sequence(self.options.channel);
        self.queue.admit(self.name, sequence)?;
        let submit = self.queue.submit(self.name);
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
