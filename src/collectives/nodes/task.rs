//! What a leg does, whoever does it: the network's own legs, or NCCL.

use super::layout::INBOX_SPAN;
use super::stages::Elements;
use crate::network::leg::leg::Leg;
use crate::network::leg::memory::Reduction;
use crate::network::leg::parts::{Parts, Span};
use std::sync::Arc;

/// A leg among some members of a group, one of each node unless it moves parts.
pub struct Task {
    /// The members, as ranks of the world.
    pub members: Arc<[usize]>,
    /// This rank's number among them.
    pub own: usize,
    /// What they do.
    pub work: Work,
}

/// What the members of a leg do, in ranges of the channel's staging memory that are the same at all.
#[derive(Clone)]
pub enum Work {
    /// They reduce `data`, at all.
    AllReduce {
        /// The elements.
        elements: Elements,
        /// Where they are.
        data: Span,
    },
    /// They reduce `data` at `root`; that of the others is undefined then.
    Reduce {
        /// The number of the member that has the result.
        root: usize,
        /// The elements.
        elements: Elements,
        /// Where they are.
        data: Span,
    },
    /// Each reduces its part; the other parts are undefined then.
    ReduceScatter {
        /// The elements.
        elements: Elements,
        /// The first byte of the first member's part.
        offset: u64,
        /// Distance of two parts: the bytes of one in whole lines.
        stride: u64,
        /// Bytes of a part.
        bytes: u64,
    },
    /// `root` sends `data` to the others.
    Broadcast {
        /// The number of the member that has it.
        root: usize,
        /// Where it is.
        data: Span,
    },
    /// Each sends parts to the others.
    Exchange {
        /// What this rank sends to each member.
        sent: Parts,
        /// Where what each member sends arrives.
        received: Parts,
    },
    /// They wait for each other.
    Barrier,
}

impl Work {
    /// Returns the network's leg of `members`, whose averages divide by `divisor`; `None` if it does not know the type or the
    /// operator.
    pub fn leg(self, members: usize, divisor: usize) -> Option<Leg> {
        let reduction =
            |elements: Elements| Reduction::new(elements.element, elements.reduce, divisor);
        Some(match self {
            Self::AllReduce { elements, data } => {
                Leg::all_reduce(data, members, reduction(elements)?, INBOX_SPAN)
            }
            Self::Reduce {
                root,
                elements,
                data,
            } => Leg::reduce(root, data, members, reduction(elements)?, INBOX_SPAN),
            Self::ReduceScatter {
                elements,
                offset,
                stride,
                bytes,
            } => {
                let parts = Parts::Equal {
                    offset,
                    stride,
                    bytes,
                };
                Leg::reduce_scatter(parts, bytes, members, reduction(elements)?, INBOX_SPAN)
            }
            Self::Broadcast { root, data } => Leg::broadcast(root, data),
            Self::Exchange { sent, received } => Leg::exchange(sent, received),
            Self::Barrier => Leg::Barrier,
        })
    }
}
