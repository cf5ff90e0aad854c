//! Explains how a call would be done, by the query that the call itself makes of the selector, and by the plan that a call over
//! nodes enqueues.

use crate::backend::abi::{CollectiveOperationCode as O, DeviceAddress, ReduceOpCode};
use crate::base::error::Result;
use crate::base::names::{CollectiveOperation, ElementType, ReduceOp};
use crate::collectives::explanation::{Carrier, Explanation, Stage};
use crate::collectives::nodes::rehearsal::{Purpose, Rehearsal};
use crate::collectives::nodes::stages::Nodes;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::plan::PartLayout;
use crate::collectives::request::Request;
use crate::collectives::select::{Asked, CollectiveCall, Near, choose, group};
use crate::group::membership::Membership;
use crate::group::operations;
use crate::rank::memory_range::MemoryRange;
use crate::world::communicator::Communicator;

/// The method's name, for errors.
const NAME: &str = "explain";
/// Where the ranges of a call that is only explained would start, so that they do not overlap. Nobody dereferences them.
const SOURCE: u64 = 1 << 60;
const DESTINATION: u64 = 1 << 61;
/// Most bytes of the ranges, so that they stay apart. Larger calls make more of the same stages.
const MOST_BYTES: u64 = 1 << 58;

/// Returns whether NVLS reduces these elements with the library's semantics. It does not compute products,
/// reduce 8- or 16-bit integers, or sum signed 64-bit integers; it computes minimum and maximum of integers
/// only. If a call names a multicast algorithm for any other reduction, another algorithm does it
/// ([`Communicator::explain_call`]).
pub fn multicast_reduces(element: ElementType, operator: ReduceOp) -> bool {
    operations::multicast_reduces(element.into(), operator.into())
}

impl Communicator {
    /// Returns how a collective of all ranks with default options is done: the call that [`CollectiveCall::new`] makes.
    /// Enqueues nothing and does not block.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(communicator: &Communicator) -> Result<()> {
    /// let explanation = communicator.explain(CollectiveOperation::AllReduce, 1 << 20, ElementType::F32)?;
    /// if let Some(choice) = explanation.choice() {
    ///     println!("{:?}: {} blocks of {} threads", choice.algorithm(), choice.blocks, choice.threads);
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::explain_call`].
    pub fn explain(
        &self,
        operation: CollectiveOperation,
        bytes: u64,
        element: ElementType,
    ) -> Result<Explanation> {
        let call = CollectiveCall::new(operation, bytes, element);
        self.explain_call(&call, &CollectiveOptions::default())
    }

    /// Returns how a call with these options is done: the selector's choice for what the ranks of a node do, and, if the group
    /// spans nodes, what goes between them. Enqueues nothing and does not block. The choice may differ from a named algorithm:
    /// where multicast does not reach the memory, or the switch lacks the reduction, another algorithm takes its place. Calls
    /// of a group of one, and calls without elements, never query the selector.
    ///
    /// The explained call of an operation with a root has root 0, and one whose parts may differ in length has equal parts.
    /// Over nodes, ranks may have different answers: see [`Explanation`].
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(communicator: &Communicator) -> Result<()> {
    /// let call = CollectiveCall {
    ///     in_place: true,
    ///     ..CollectiveCall::new(CollectiveOperation::AllReduce, 1 << 20, ElementType::F32)
    /// };
    /// let options = CollectiveOptions::new().provider(Provider::Symmem);
    /// println!("{}", communicator.explain_call(&call, &options)?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if the call cannot be done with these options, with the reason and the
    /// possible algorithms; [`crate::Error::Unsupported`] for what nodes exclude.
    pub fn explain_call(
        &self,
        call: &CollectiveCall,
        options: &CollectiveOptions<'_>,
    ) -> Result<Explanation> {
        let world = self.world();
        let membership = group(world, NAME, options)?;
        if membership.span.placement.spans_nodes() {
            return self.explain_over_nodes(call, options, membership);
        }
        let state = &world.collectives;
        let near = Near::here(state, membership, options.channel);
        let (query, _) = Asked::from(call).question(state, &near, options);
        Ok(Explanation {
            stages: vec![Stage {
                operation: call.operation,
                bytes: call.bytes,
                choice: choose(world, NAME, &query, options)?,
            }],
            between_nodes: None,
        })
    }

    /// Rehearses the call.
    fn explain_over_nodes(
        &self,
        call: &CollectiveCall,
        options: &CollectiveOptions<'_>,
        membership: &Membership,
    ) -> Result<Explanation> {
        let rehearsal = Rehearsal::default();
        let how = (Purpose::Rehearse(&rehearsal), options);
        let operation = O::from(call.operation);
        let mut nodes = Nodes::new(self.world(), (NAME, operation), how, membership)?;
        let supposed = Supposed::new(call, membership);
        if call.operation == CollectiveOperation::Barrier {
            nodes.barrier()?;
        } else if supposed.part == 0 {
            return Ok(rehearsal.explanation(None));
        } else {
            let (request, placed) = supposed.request(call, membership.span.rank);
            nodes = nodes.checked(&request, &placed)?;
            nodes.perform(&request, &placed)?;
        }
        let carrier = match nodes.library {
            Ok(_) => Carrier::Nccl,
            Err(without_nccl) => Carrier::Ucx {
                staged: nodes.far.mirror.is_some(),
                without_nccl,
            },
        };
        Ok(rehearsal.explanation(Some(carrier)))
    }
}

/// Returns the bytes of an element: of a byte in operations that move, whatever the element.
fn element_bytes(call: &CollectiveCall) -> u64 {
    match operations::reduces(O::from(call.operation)) {
        true => call.element.bytes(),
        false => 1,
    }
}

/// The ranges of a call that is only explained.
struct Supposed {
    /// Bytes of a member's part.
    part: u64,
    /// Bytes of destination and source.
    destination: u64,
    source: u64,
}

impl Supposed {
    fn new(call: &CollectiveCall, membership: &Membership) -> Self {
        let members = membership.span.members.len() as u64;
        // Whole elements, and whole parts.
        let whole = |bytes: u64, unit: u64| bytes / unit * unit;
        let element = element_bytes(call);
        let bytes = call.bytes.min(MOST_BYTES);
        let (part, parts) = match call.operation {
            CollectiveOperation::AllReduce
            | CollectiveOperation::Reduce
            | CollectiveOperation::Broadcast => {
                let bytes = whole(bytes, element);
                (bytes, bytes)
            }
            _ => {
                let parts = whole(bytes, element * members);
                (parts / members, parts)
            }
        };
        let (destination, source) = match O::from(call.operation) {
            O::ALL_GATHER | O::ALL_GATHER_V | O::GATHER => (parts, part),
            O::REDUCE_SCATTER | O::SCATTER => (part, parts),
            _ => (parts, parts),
        };
        Self {
            part,
            destination,
            source,
        }
    }

    /// Returns the request of member `own`, its parts, and whether it is in place.
    fn request(
        &self,
        call: &CollectiveCall,
        own: usize,
    ) -> (Request<'static>, (PartLayout<'static>, bool)) {
        let range = |start: u64, bytes: u64| match call.own_memory {
            true => MemoryRange::own(DeviceAddress(start), bytes),
            false => {
                let offset = if call.aligned { 0 } else { element_bytes(call) };
                MemoryRange::supposed(start, (offset, bytes), call.in_multicast)
            }
        };
        let mut destination = range(DESTINATION, self.destination);
        let mut source = range(SOURCE, self.source);
        if call.in_place {
            let at = self.part * own as u64;
            match self.destination >= self.source {
                true if self.source == self.destination => source = destination,
                true => source = destination.part(at, self.source),
                false => destination = source.part(at, self.destination),
            }
        }
        let operation = O::from(call.operation);
        let moves = !operations::reduces(operation);
        let request = Request {
            name: NAME,
            operation,
            element: match moves {
                true => ElementType::U8.into(),
                false => call.element.into(),
            },
            element_bytes: element_bytes(call),
            reduce: match moves {
                true => ReduceOpCode::default(),
                false => call.reduce.into(),
            },
            root: 0,
            counts: None,
            stride: None,
            destination,
            source,
        };
        (request, (PartLayout::Equal(self.part), call.in_place))
    }
}
