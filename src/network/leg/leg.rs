//! Legs: what is to be done, and what is under way.

use super::barrier;
use super::chain::{self, Chain};
use super::exchange::{self, Exchange};
use super::fault::LegFault;
use super::memory::Reduction;
use super::parts::{Parts, Span};
use super::pieces::{self, Needed, Pieces};
use super::progress::Progress;
use super::small::{self, Small};
use super::tree::{self, Tree};
use crate::network::wire::{MOST_MESSAGE, Wire};

/// A leg of a collective: what is done among its members, in ranges of their regions.
#[derive(Clone, Debug)]
pub enum Leg {
    /// A reduction by messages.
    Small(Small),
    /// A reduction in pieces.
    Pieces(Pieces),
    /// A move of parts.
    Exchange(Exchange),
    /// A broadcast by messages.
    Tree(Tree),
    /// A broadcast in pieces.
    Chain(Chain),
    /// A barrier.
    Barrier,
}

/// Bytes that a member of a direct reduction may send to every other however many there are; and most bytes that it sends to
/// all of them together if its vector is longer. Beyond that, shares take less time: each byte is sent twice, not to all. They
/// take three more messages in a row, each way: between two nodes over TCP, an all-reduce of 32 KiB by two ranks each took
/// 250 µs by shares and takes 70.
const DIRECT: (u64, u64) = (16 << 10, 256 << 10);

/// Returns whether vectors are reduced directly.
fn is_direct(bytes: u64, members: usize) -> bool {
    let (each, all) = DIRECT;
    bytes <= each || bytes <= MOST_MESSAGE as u64 && bytes * (members as u64 - 1) <= all
}

impl Leg {
    /// Reduces `data` of all members, at all members.
    pub fn all_reduce(data: Span, members: usize, reduction: Reduction, inbox: Span) -> Self {
        match is_direct(data.bytes, members) {
            true => Self::Small(Small {
                parts: Parts::Whole(data),
                root: None,
                reduction,
            }),
            false => Self::shares(data, Needed::All, reduction, inbox),
        }
    }

    /// Reduces `data` of all members at one. The data of the others is undefined then.
    pub fn reduce(
        root: usize,
        data: Span,
        members: usize,
        reduction: Reduction,
        inbox: Span,
    ) -> Self {
        match is_direct(data.bytes, members) {
            true => Self::Small(Small {
                parts: Parts::Whole(data),
                root: Some(root),
                reduction,
            }),
            false => Self::shares(data, Needed::Root(root), reduction, inbox),
        }
    }

    /// Reduces, at each member, its part of all members' data. The other parts are undefined then. `longest` is the length of
    /// the longest part.
    pub fn reduce_scatter(
        parts: Parts,
        longest: u64,
        members: usize,
        reduction: Reduction,
        inbox: Span,
    ) -> Self {
        match is_direct(longest, members) {
            true => Self::Small(Small {
                parts,
                root: None,
                reduction,
            }),
            false => Self::Pieces(Pieces {
                shares: parts,
                needed: Needed::Owner,
                reduction,
                inbox,
            }),
        }
    }

    /// Sends `sent` to the members, and receives into `received` what they send.
    pub fn exchange(sent: Parts, received: Parts) -> Self {
        Self::Exchange(Exchange { sent, received })
    }

    /// Copies `span` of the root to all members.
    pub fn broadcast(root: usize, span: Span) -> Self {
        match span.bytes <= MOST_MESSAGE as u64 {
            true => Self::Tree(Tree { root, span }),
            false => Self::Chain(Chain { root, span }),
        }
    }

    fn shares(span: Span, needed: Needed, reduction: Reduction, inbox: Span) -> Self {
        Self::Pieces(Pieces {
            shares: Parts::Shares {
                span,
                element_bytes: reduction.element_bytes,
            },
            needed,
            reduction,
            inbox,
        })
    }

    /// Begins the leg at member `own` of `members`.
    ///
    /// # Panics
    /// If the inbox of a reduction in pieces has less than 64 bytes for each other member.
    pub fn begin(&self, members: usize, own: usize) -> Running {
        match self {
            Self::Small(small) => Running::Small(small.begin(members, own)),
            Self::Pieces(pieces) => Running::Pieces(pieces.begin(members, own)),
            Self::Exchange(exchange) => Running::Exchange(exchange.begin(members, own)),
            Self::Tree(tree) => Running::Tree(tree.begin()),
            Self::Chain(chain) => Running::Chain(chain.begin(members, own)),
            Self::Barrier => Running::Barrier(barrier::Running::default()),
        }
    }
}

/// A leg under way.
pub enum Running {
    /// A reduction by messages.
    Small(small::Running),
    /// A reduction in pieces.
    Pieces(pieces::Running),
    /// A move of parts.
    Exchange(exchange::Running),
    /// A broadcast by messages.
    Tree(tree::Running),
    /// A broadcast in pieces.
    Chain(chain::Running),
    /// A barrier.
    Barrier(barrier::Running),
}

impl Running {
    /// Does what can be done, and returns without blocking. Not to be called again once it has returned
    /// [`Progress::Done`] or an error.
    ///
    /// # Errors
    /// The failure of a connection, and a member that sends another number of bytes than expected.
    pub fn poll<W: Wire>(&mut self, wire: &mut W) -> Result<Progress, LegFault<W::Fault>> {
        match self {
            Self::Small(small) => small.poll(wire),
            Self::Pieces(pieces) => pieces.poll(wire),
            Self::Exchange(exchange) => exchange.poll(wire),
            Self::Tree(tree) => tree.poll(wire),
            Self::Chain(chain) => chain.poll(wire),
            Self::Barrier(barrier) => barrier.poll(wire),
        }
    }
}
