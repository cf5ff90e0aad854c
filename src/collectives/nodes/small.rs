//! Small calls, by one member of each node: its *leader*.
//!
//! A message between nodes takes more of a processor than a signal within one, so that only leaders send any: on 2 cores,
//! all-reduces of 8 B of 2x2 ranks take 0.11 to 0.19 ms this way, and 0.16 to 0.27 if every rank sends (`benches/NOTES.md`).

use super::layout::BUFFER;
use super::stages::{Elements, Nodes};
use super::task::{Task, Work};
use crate::backend::abi::CollectiveOperationCode as O;
use crate::base::error::Result;
use crate::collectives::explanation::WithoutNccl;
use crate::network::leg::parts::{Parts, Span};
use crate::rank::memory_range::MemoryRange;

/// Most bytes that a leader sends if it sends a member's whole vector to all others. Measured for two nodes of two ranks only:
/// calls of 32 and 64 KiB took 0.6 to 0.8 of the time by rails, all-to-alls as long.
const SMALL: u64 = 64 << 10;
/// Most members of an all-to-all by leaders, after which every rank copies the parts from other nodes one by one.
const MOST_MEMBERS: usize = 16;

impl<'n> Nodes<'n> {
    /// Returns whether leaders do a call whose members have vectors of `bytes` bytes. The stages are other operations than the
    /// call's, so that a named algorithm or grid would not fit them.
    pub fn is_small(&self, bytes: u64) -> bool {
        let others = self.placement().nodes() as u64 - 1;
        bytes.saturating_mul(others) <= SMALL
            && self.here() > 1
            && self.library.is_err()
            && !self.names_grid()
    }

    /// Returns whether as many members are on each node, and follow each other in the group.
    pub fn is_in_blocks(&self) -> bool {
        let placement = self.placement();
        let follow = |numbers: &[usize]| numbers.windows(2).all(|two| two[1] == two[0] + 1);
        placement.is_even() && (0..placement.nodes()).all(|node| follow(placement.members(node)))
    }

    fn leads(&self) -> bool {
        self.local() == 0
    }

    /// Enqueues the leaders' leg.
    pub fn leg_of_leaders(&self, work: Work) -> Result<()> {
        if !self.leads() {
            return Ok(());
        }
        self.legs(vec![Task {
            members: self.leaders(0),
            own: self.node(),
            work,
        }])
    }

    /// Enqueues a small all-gather of equal parts, for members in blocks.
    pub fn all_gather_by_leaders(&self, to: MemoryRange<'_>, from: MemoryRange<'_>) -> Result<()> {
        let part = from.bytes();
        let block = part * self.here() as u64;
        let at = block * self.node() as u64;
        self.within(
            O::ALL_GATHER,
            Elements::BYTES,
            0,
            self.staged(at, block),
            from,
        )?;
        self.leg_of_leaders(Work::Exchange {
            sent: Parts::Whole(Span {
                offset: at,
                bytes: block,
            }),
            received: Parts::Equal {
                offset: 0,
                stride: block,
                bytes: block,
            },
        })?;
        let staged = self.staged(0, to.bytes());
        self.within(O::BROADCAST, Elements::BYTES, 0, to, staged)
    }

    /// Enqueues a small reduce-scatter, for members in blocks.
    pub fn reduce_scatter_by_leaders(
        &self,
        elements: Elements,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let part = to.bytes();
        let block = part * self.here() as u64;
        let staged = self.staged(0, from.bytes());
        self.within(O::REDUCE, self.before_leg(elements), 0, staged, from)?;
        self.leg_of_leaders(Work::ReduceScatter {
            elements,
            offset: 0,
            stride: block,
            bytes: block,
        })?;
        // All of the node's parts to every member take less time than a scatter, whose sender waits to know that they came.
        let staged = self.staged(block * self.node() as u64, block);
        self.within(O::BROADCAST, Elements::BYTES, 0, staged, staged)?;
        self.copy(to, staged.part(part * self.local() as u64, part))
    }

    /// Returns whether leaders do an all-to-all with these operands.
    pub fn is_small_all_to_all(&self, bytes: u64) -> bool {
        self.is_small(bytes) && self.members() <= MOST_MEMBERS && self.is_in_blocks()
    }

    /// Enqueues a small all-to-all, for members in blocks: the leader gets the vectors of its node, and each member all that
    /// comes from other nodes.
    pub fn all_to_all_by_leaders(&self, to: MemoryRange<'_>, from: MemoryRange<'_>) -> Result<()> {
        self.refuse_library(WithoutNccl::Pairs)?;
        let part = to.bytes() / self.members() as u64;
        let here = self.here() as u64;
        let (block, node) = (part * here, self.node());
        // Bytes from one node to another.
        let all = block * here;
        let nodes = self.placement().nodes();
        // Vectors lie behind what is sent: of 16 members at most, they have half of a buffer each.
        let vectors = self.staged(BUFFER / 2, from.bytes() * here);
        let vector = |local: u64| vectors.part(local * from.bytes(), from.bytes());
        self.within(O::ALL_GATHER, Elements::BYTES, 0, vectors, from)?;
        if self.leads() {
            for other in (0..nodes).filter(|&other| other != node) {
                for local in 0..here {
                    let sent = self.staged(other as u64 * all + local * block, block);
                    self.copy(sent, vector(local).part(other as u64 * block, block))?;
                }
            }
        }
        let spans = |offset: u64| {
            let span = |other: usize| Span {
                offset: offset + other as u64 * all,
                bytes: if other == node { 0 } else { all },
            };
            Parts::Each((0..nodes).map(span).collect())
        };
        self.leg_of_leaders(Work::Exchange {
            sent: spans(0),
            received: spans(BUFFER),
        })?;
        let received = self.staged(BUFFER, nodes as u64 * all);
        self.within(O::BROADCAST, Elements::BYTES, 0, received, received)?;
        for other in 0..nodes {
            for local in 0..here {
                let sent = match other == node {
                    true => vector(local).part(node as u64 * block, block),
                    false => received.part(other as u64 * all + local * block, block),
                };
                let sender = other * self.here() + local as usize;
                self.copy(
                    numbered(to, sender, part),
                    numbered(sent, self.local(), part),
                )?;
            }
        }
        Ok(())
    }
}

/// Returns a member's part of a range of equal parts.
fn numbered(range: MemoryRange<'_>, member: usize, bytes: u64) -> MemoryRange<'_> {
    range.part(member as u64 * bytes, bytes)
}
