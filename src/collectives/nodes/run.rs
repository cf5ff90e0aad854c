//! From a checked request to its stages.

use super::legs::NO_SUCH_REDUCTION;
use super::pairs::Pair;
use super::rehearsal::{Purpose, Rehearsal};
use super::stages::{Elements, Nodes};
use crate::backend::abi::{
    AlgorithmCode, CollectiveOperationCode as O, ElementTypeCode, ReduceOpCode,
};
use crate::base::error::{Error, Result};
use crate::collectives::explanation::WithoutNccl;
use crate::collectives::options::CollectiveOptions;
use crate::collectives::plan::PartLayout;
use crate::collectives::request::Request;
use crate::group::membership::Membership;
use crate::group::named::check_named;
use crate::group::operations;
use crate::group::provider::Provider;
use crate::network::leg::memory::Reduction;
use crate::stream::queue::Queue;
use crate::world::world::World;
use std::sync::Arc;

/// Returns whether elements are integers that a node's sum may not hold, though their average would.
fn is_narrow_integer(element: ElementTypeCode) -> bool {
    use ElementTypeCode as E;
    matches!(element, E::I8 | E::U8 | E::I16 | E::U16)
}

impl Queue {
    /// Returns what a collective of a group that spans nodes is made with, after a check of the algorithm and the grid that
    /// the caller names.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the group has no memory for legs, or the provider is [`Provider::NcclWindows`];
    /// [`Error::InvalidArgument`], at all members, if the operation
    /// has no such algorithm.
    pub(crate) fn nodes<'n>(
        &'n self,
        (name, operation): (&'static str, O),
        options: &'n CollectiveOptions<'n>,
        membership: &'n Membership,
    ) -> Result<Nodes<'n>> {
        let how = (Purpose::Enqueue(self), options);
        Nodes::new(self.world(), (name, operation), how, membership)
    }

    /// Enqueues a checked collective of a group that spans nodes.
    pub(crate) fn collective_over_nodes(
        &self,
        request: &Request<'_>,
        options: &CollectiveOptions<'_>,
        membership: &Membership,
        placed: (PartLayout<'_>, bool),
    ) -> Result<()> {
        self.nodes((request.name, request.operation), options, membership)?
            .checked(request, &placed)?
            .perform(request, &placed)
    }
}

impl<'n> Nodes<'n> {
    /// Makes what a collective is enqueued with, or rehearsed.
    ///
    /// # Errors
    /// As [`Queue::nodes`].
    pub fn new(
        world: &'n Arc<World>,
        (name, operation): (&'static str, O),
        (purpose, options): (Purpose<'n>, &'n CollectiveOptions<'n>),
        membership: &'n Membership,
    ) -> Result<Self> {
        let far = membership.far.as_ref().ok_or_else(|| Error::Unsupported {
            rank: world.rank,
            operation: name,
            message: "the group spans nodes, and has no memory for what goes between them".into(),
        })?;
        // A barrier names algorithms of other operations.
        if operation != O::BARRIER {
            check_named(operation, &options.into()).map_err(|text| world.invalid(name, text))?;
        }
        let nodes = Self {
            world,
            purpose,
            member: membership.span.rank,
            name,
            options,
            membership,
            far,
            library: Err(match operation {
                O::BARRIER => WithoutNccl::Operation,
                _ => WithoutNccl::Pairs,
            }),
        };
        if operation != O::BARRIER && options.provider == Provider::NcclWindows {
            return Err(nodes.unsupported(
                "symmetric windows reach the ranks of one node only; use `Provider::Nccl`",
            ));
        }
        Ok(nodes)
    }

    /// Checks what depends on nodes, at all members alike and before anything is sent. Returns what the call is made with.
    ///
    /// # Errors
    /// [`Error::Unsupported`].
    pub fn checked(self, request: &Request<'_>, placed: &(PartLayout<'_>, bool)) -> Result<Self> {
        let elements = Elements::of(request);
        if operations::reduces(request.operation) {
            if elements.reduce == ReduceOpCode::AVERAGE && is_narrow_integer(elements.element) {
                return Err(self.unsupported(
                    "between nodes, sums of integers of 8 and 16 bits wrap before an average divides them; convert to \
                     32 bits, or sum and divide",
                ));
            }
            if Reduction::new(elements.element, elements.reduce, 1).is_none() {
                return Err(self.unsupported(NO_SUCH_REDUCTION));
            }
        }
        let call = (request.operation, request.counted_bytes(self.members()));
        let nodes = self.with_library(elements, call)?;
        nodes.check_stages(request, placed)?;
        Ok(nodes)
    }

    /// Returns whether the caller names an algorithm or a grid, which a node may not have.
    pub fn names_grid(&self) -> bool {
        let CollectiveOptions {
            algorithm,
            blocks,
            threads,
            ..
        } = self.options;
        // NCCL carries legs only.
        !matches!(*algorithm, AlgorithmCode::AUTOMATIC | AlgorithmCode::VENDOR)
            || blocks.is_some()
            || threads.is_some()
    }

    /// Checks that the ranks of every node can make their stages as the caller names them: some nodes may have no stage, or
    /// one with fewer ranks, and would go on alone.
    fn check_stages(&self, request: &Request<'_>, placed: &(PartLayout<'_>, bool)) -> Result<()> {
        if !self.names_grid() || self.library == Err(WithoutNccl::Pairs) {
            // Without names, the selector finds something for every call. `pairs` checks itself.
            return Ok(());
        }
        let (placement, own) = (self.placement(), self.node());
        let alike = placement.is_even();
        for node in (0..placement.nodes()).filter(|&node| !alike || node == own) {
            let rehearsal = Rehearsal::default();
            let there = Nodes {
                member: match node == own {
                    true => self.member,
                    false => placement.members(node)[0],
                },
                purpose: Purpose::Rehearse(&rehearsal),
                ..*self
            };
            // This rank's own part is not there; that of the member is, at its place in the destination.
            let elsewhere = Request {
                source: match request.operation {
                    O::ALL_GATHER | O::ALL_GATHER_V if node != own => {
                        let (parts, member) = (&placed.0, there.member);
                        (request.destination).part(parts.offset(member), parts.bytes(member))
                    }
                    _ => request.source,
                },
                ..*request
            };
            there
                .perform(&elsewhere, placed)
                .map_err(|error| self.refused_on(node, error))?;
        }
        Ok(())
    }

    /// Returns the error of a call of which a node cannot do its stages.
    pub fn refused_on(&self, node: usize, error: Error) -> Error {
        match error {
            Error::InvalidArgument { message, .. } | Error::Unsupported { message, .. } => {
                let ranks = self.placement().members(node).len();
                self.unsupported(format!(
                    "node {node} of the group, with {ranks} of its ranks, cannot do its part as named: {message}"
                ))
            }
            other => other,
        }
    }

    /// Enqueues or rehearses a call that was checked.
    pub fn perform(
        &self,
        request: &Request<'_>,
        (parts, in_place): &(PartLayout<'_>, bool),
    ) -> Result<()> {
        let elements = Elements::of(request);
        let (to, from) = (request.destination, request.source);
        let (own, root) = (self.own(), request.root);
        match request.operation {
            O::ALL_REDUCE => self.all_reduce(elements, to, from),
            O::REDUCE => self.reduce(root, elements, to, from),
            O::REDUCE_SCATTER => self.reduce_scatter(elements, to, from),
            O::BROADCAST => self.broadcast(root, to, from),
            // Parts of other lengths are not known before a call is made, and explained as equal.
            O::ALL_GATHER if self.is_small(to.bytes()) && self.is_in_blocks() => {
                self.all_gather_by_leaders(to, from)
            }
            O::ALL_GATHER | O::ALL_GATHER_V => {
                let longest = (0..self.members()).map(|member| parts.bytes(member)).max();
                self.all_gather(parts, longest.unwrap_or(0), to, from)
            }
            O::ALL_TO_ALL if !in_place && self.is_small_all_to_all(to.bytes()) => {
                self.all_to_all_by_leaders(to, from)
            }
            O::ALL_TO_ALL | O::ALL_TO_ALL_V | O::EXCHANGE => {
                let pair = |member: usize| {
                    let (at, bytes) = (parts.offset(member), parts.bytes(member));
                    Pair {
                        sent: Some(from.part(at, bytes)),
                        received: Some(to.part(at, bytes)),
                    }
                };
                // Other operations' ranges differ from rank to rank.
                let symmetric =
                    request.operation == O::ALL_TO_ALL && !to.is_own() && !from.is_own();
                match symmetric && !in_place {
                    true => self.pairs_between((to, from), pair),
                    false => self.pairs(*in_place, pair),
                }
            }
            O::GATHER => self.pairs(false, |member| {
                let part = |member| to.part(parts.offset(member), parts.bytes(member));
                Pair {
                    sent: (member == root).then_some(from),
                    received: (own == root).then(|| part(member)),
                }
            }),
            O::SCATTER => self.pairs(false, |member| {
                let part = |member| from.part(parts.offset(member), parts.bytes(member));
                Pair {
                    sent: (own == root).then(|| part(member)),
                    received: (member == root).then_some(to),
                }
            }),
            _ => Err(self.invalid("there is no such collective over nodes")),
        }
    }
}
