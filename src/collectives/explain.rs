//! Explains how a call would be done, by the query that the call itself makes of the selector.

use crate::base::error::Result;
use crate::base::names::{CollectiveOperation, ElementType, ReduceOp};
use crate::collectives::options::CollectiveOptions;
use crate::collectives::select::{Asked, CollectiveCall, membership};
use crate::group::choice::Choice;
use crate::group::operations;
use crate::world::communicator::Communicator;

/// Returns whether NVLS reduces these elements with the library's semantics. It does not compute products,
/// reduce 8- or 16-bit integers, or sum signed 64-bit integers; it computes minimum and maximum of integers
/// only. If a call names a multicast algorithm for any other reduction, another algorithm does it
/// ([`Communicator::explain_call`]).
pub fn multicast_reduces(element: ElementType, operator: ReduceOp) -> bool {
    operations::multicast_reduces(element.into(), operator.into())
}

impl Communicator {
    /// Returns the selector's choice for a collective of all ranks with default options: the call that
    /// [`CollectiveCall::new`] makes. Enqueues nothing and does not block.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(communicator: &Communicator) -> Result<()> {
    /// let choice = communicator.explain(CollectiveOperation::AllReduce, 1 << 20, ElementType::F32)?;
    /// println!("{:?}: {} blocks of {} threads", choice.algorithm(), choice.blocks, choice.threads);
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
    ) -> Result<Choice> {
        let call = CollectiveCall::new(operation, bytes, element);
        self.explain_call(&call, &CollectiveOptions::default())
    }

    /// Returns the selector's choice for a call with these options. Enqueues nothing and does not block. The
    /// choice may differ from a named algorithm: where multicast does not reach the memory, or the switch lacks
    /// the reduction, another algorithm takes its place. Calls of a group of one, and calls without elements,
    /// never query the selector.
    ///
    /// ```no_run
    /// # use symmem::*;
    /// # fn f(communicator: &Communicator) -> Result<()> {
    /// let call = CollectiveCall {
    ///     in_place: true,
    ///     ..CollectiveCall::new(CollectiveOperation::AllReduce, 1 << 20, ElementType::F32)
    /// };
    /// let options = CollectiveOptions::new().provider(Provider::Symmem);
    /// let choice = communicator.explain_call(&call, &options)?;
    /// println!("{:?}", choice.algorithm());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::InvalidArgument`] if the call cannot be done with these options, with the reason and the
    /// possible algorithms.
    pub fn explain_call(
        &self,
        call: &CollectiveCall,
        options: &CollectiveOptions<'_>,
    ) -> Result<Choice> {
        let world = self.world();
        let state = &world.collectives;
        let membership = membership(world, "explain", options)?;
        let (query, _) = Asked::from(call).question(state, membership, options);
        let choice = state.selector.choose(&query, &options.into());
        choice.map_err(|message| world.invalid("explain", message))
    }
}
