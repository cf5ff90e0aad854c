//! How a call would be done, without making it: the question that a call itself puts to the selector.

use crate::base::error::Result;
use crate::base::names::{CollectiveOperation, ElementType, ReduceOp};
use crate::collectives::options::CollectiveOptions;
use crate::collectives::select::{CollectiveCall, membership, question};
use crate::group::choice::Choice;
use crate::group::operations;
use crate::world::communicator::Communicator;

/// Whether NVLS reduces elements as this library promises: no products, no integers of 8 and 16 bits, no signed
/// sums of 64; the least and the greatest of integers only. What it does not reduce other algorithms do where
/// multicast is named ([`Communicator::explain_call`]).
pub fn multicast_reduces(element: ElementType, operator: ReduceOp) -> bool {
    operations::multicast_reduces(element.into(), operator.into())
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
    /// [`crate::Error::InvalidArgument`] if it cannot be done so, with the reason and what is possible.
    pub fn explain_call(
        &self,
        call: &CollectiveCall,
        options: &CollectiveOptions<'_>,
    ) -> Result<Choice> {
        let world = self.world();
        let state = &world.collectives;
        let membership = membership(world, "explain", options)?;
        let library = membership.whole.then_some(&state.nccl);
        let library = library.and_then(|nccl| nccl.of(options.provider, call.aligned));
        let query = question(state, call, membership, options.channel, library.is_some());
        let choice = state.selector.choose(&query, &options.into());
        choice.map_err(|message| world.invalid("explain", message))
    }
}
