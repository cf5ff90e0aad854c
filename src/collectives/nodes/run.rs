//! From a checked request to its stages.

use super::pairs::Pair;
use super::stages::{Elements, Nodes};
use crate::backend::abi::{CollectiveOperationCode as O, ElementTypeCode, ReduceOpCode};
use crate::base::error::{Error, Result};
use crate::collectives::options::CollectiveOptions;
use crate::collectives::plan::PartLayout;
use crate::collectives::request::Request;
use crate::group::membership::Membership;
use crate::stream::queue::Queue;

/// Returns whether elements are integers that a node's sum may not hold, though their average would.
fn is_narrow_integer(element: ElementTypeCode) -> bool {
    use ElementTypeCode as E;
    matches!(element, E::I8 | E::U8 | E::I16 | E::U16)
}

impl Queue {
    /// Returns what a collective of a group that spans nodes is made with.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the group has no memory for legs.
    pub(crate) fn nodes<'n>(
        &'n self,
        name: &'static str,
        options: &'n CollectiveOptions<'n>,
        membership: &'n Membership,
    ) -> Result<Nodes<'n>> {
        let far = membership.far.as_ref().ok_or_else(|| Error::Unsupported {
            rank: self.world().rank,
            operation: name,
            message: "the group spans nodes, and has no memory for what goes between them".into(),
        })?;
        Ok(Nodes {
            queue: self,
            name,
            options,
            membership,
            far,
            library: None,
        })
    }

    /// Enqueues a checked collective of a group that spans nodes.
    pub(crate) fn collective_over_nodes(
        &self,
        request: &Request<'_>,
        options: &CollectiveOptions<'_>,
        membership: &Membership,
        (parts, in_place): (PartLayout<'_>, bool),
    ) -> Result<()> {
        let nodes = self.nodes(request.name, options, membership)?;
        nodes.check_named(request.operation)?;
        let elements = Elements {
            element: request.element,
            bytes: request.element_bytes,
            reduce: request.reduce,
        };
        if elements.reduce == ReduceOpCode::AVERAGE && is_narrow_integer(elements.element) {
            return Err(Error::Unsupported {
                rank: self.world().rank,
                operation: request.name,
                message: "between nodes, sums of integers of 8 and 16 bits wrap before an average divides them; convert to \
                    32 bits, or sum and divide"
                    .into(),
            });
        }
        let by_rails = !matches!(request.operation, O::ALL_TO_ALL | O::GATHER | O::SCATTER);
        let nodes = match by_rails {
            true => nodes.with_library(elements, request.operation)?,
            false => nodes,
        };
        let (to, from) = (request.destination, request.source);
        let (own, root) = (membership.span.rank, request.root);
        let members = membership.span.members.len();
        match request.operation {
            O::ALL_REDUCE => nodes.all_reduce(elements, to, from),
            O::REDUCE => nodes.reduce(root, elements, to, from),
            O::REDUCE_SCATTER => nodes.reduce_scatter(elements, to, from),
            O::BROADCAST => nodes.broadcast(root, to, from),
            O::ALL_GATHER | O::ALL_GATHER_V => {
                let longest = (0..members).map(|member| parts.bytes(member)).max();
                nodes.all_gather(&parts, longest.unwrap_or(0), to, from)
            }
            O::ALL_TO_ALL => {
                let part = |member: usize| (parts.offset(member), parts.bytes(member));
                nodes.pairs(in_place, |member| {
                    let (at, bytes) = part(member);
                    Pair {
                        sent: Some(from.part(at, bytes)),
                        received: Some(to.part(at, bytes)),
                    }
                })
            }
            O::GATHER => nodes.pairs(false, |member| {
                let part = |member| to.part(parts.offset(member), parts.bytes(member));
                Pair {
                    sent: (member == root).then_some(from),
                    received: (own == root).then(|| part(member)),
                }
            }),
            O::SCATTER => nodes.pairs(false, |member| {
                let part = |member| from.part(parts.offset(member), parts.bytes(member));
                Pair {
                    sent: (own == root).then(|| part(member)),
                    received: (member == root).then_some(to),
                }
            }),
            _ => Err(self.invalid(request.name, "there is no such collective over nodes")),
        }
    }
}
