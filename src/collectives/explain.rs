//! How a call would be done, without making it: the question that a call itself puts to the selector.

use crate::backend::abi::{CollectiveOperation, ElementType, ReduceOperation};
use crate::base::error::{Error, Result};
use crate::collectives::call::CollectiveOptions;
use crate::group::membership::Membership;
use crate::group::selector::{Choice, Query, Wish};
use crate::group::slots::COLLECTIVE_CHANNELS;
use crate::group::state::State;
use crate::world::communicator::Communicator;
use std::sync::Arc;

/// A collective call, as far as that decides, beside its options, how it is done
/// ([`Communicator::explain_call`]). Alike on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectiveCall {
    /// What it does.
    pub operation: CollectiveOperation,
    /// The size that benchmarks of collectives give: of an all-reduce, reduce and broadcast one rank's
    /// elements; otherwise the whole buffer of a rank that has it.
    pub bytes: u64,
    /// What is reduced; anything where nothing is.
    pub element: ElementType,
    /// How; anything where nothing is.
    pub reduce: ReduceOperation,
    /// Whether source and destination are the same memory.
    pub in_place: bool,
    /// Whether both ranges, and each rank's part of them, start at multiples of 16 bytes.
    pub aligned: bool,
    /// Whether multicast reaches both buffers ([`crate::SymmetricBuffer::is_in_multicast`]).
    pub in_multicast: bool,
}

impl CollectiveCall {
    /// A call out of place, of sums where it reduces, of aligned ranges in buffers that multicast reaches where
    /// there is any.
    pub fn new(operation: CollectiveOperation, bytes: u64, element: ElementType) -> Self {
        Self {
            operation,
            bytes,
            element,
            reduce: ReduceOperation::SUM,
            in_place: false,
            aligned: true,
            in_multicast: true,
        }
    }
}

impl From<&CollectiveOptions<'_>> for Wish {
    fn from(options: &CollectiveOptions<'_>) -> Self {
        Self {
            algorithm: options.algorithm,
            blocks: options.blocks,
            threads: options.threads,
            concurrent: options.concurrent,
            provider: options.provider,
        }
    }
}

impl State {
    /// What the selector is asked about a call of these members; `vendor` where the vendor's communicator could
    /// do it.
    pub fn query(
        &self,
        call: &CollectiveCall,
        membership: &Membership,
        channel: u32,
        vendor: bool,
    ) -> Query {
        let slots = &membership.slots;
        Query {
            operation: call.operation,
            element: call.element,
            reduce: call.reduce,
            world: membership.world() as u32,
            bytes: call.bytes,
            in_place: call.in_place,
            vendor,
            multicast: call.in_multicast && slots.at_all(channel).is_some(),
            push_channels: if call.aligned {
                self.selector.push_channels(slots.inboxes(channel))
            } else {
                0
            },
        }
    }
}

impl Communicator {
    /// How the selector would do a collective of all ranks with default options: one of
    /// [`CollectiveCall::new`].
    ///
    /// # Errors
    /// As [`Communicator::explain_call`].
    pub fn explain(
        &self,
        operation: CollectiveOperation,
        bytes: u64,
        element: ElementType,
    ) -> Result<Choice> {
        let call = CollectiveCall::new(operation, bytes, element);
        self.explain_call(&call, &CollectiveOptions::default())
    }

    /// How a call with these options would be done. An algorithm that is named need not be the one that does it:
    /// where multicast does not reach, or the switch does not reduce, others take its place. A group of one and a
    /// call without elements are not asked about: they have nothing to choose.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if it cannot be done so, with the reason and what is possible.
    pub fn explain_call(
        &self,
        call: &CollectiveCall,
        options: &CollectiveOptions<'_>,
    ) -> Result<Choice> {
        let shared = self.shared();
        let invalid = |message: String| Error::InvalidArgument {
            rank: shared.rank,
            operation: "explain",
            message,
        };
        let state = shared.collectives();
        let membership = match options.group {
            None => &state.everyone,
            Some(group) if Arc::ptr_eq(group.shared(), shared) => group.membership(),
            Some(_) => return Err(invalid("the group is another communicator's".into())),
        };
        if options.channel >= COLLECTIVE_CHANNELS {
            return Err(invalid(no_channel(options.channel)));
        }
        let vendors = membership.whole.then_some(&state.vendors);
        let vendor = vendors.and_then(|vendors| vendors.of(options.provider, call.aligned));
        let query = state.query(call, membership, options.channel, vendor.is_some());
        let choice = state.selector.choose(&query, &options.into());
        choice.map_err(invalid)
    }
}

/// What is said of a channel that there is not.
pub fn no_channel(channel: u32) -> String {
    format!("channel {channel}; there are {COLLECTIVE_CHANNELS}, from 0")
}
