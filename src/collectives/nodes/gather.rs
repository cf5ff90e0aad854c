//! All-gather and broadcast over nodes.

use super::layout::{BUFFER, LINE, slot_bytes, windows};
use super::stages::{Elements, Nodes};
use super::task::{Task, Work};
use crate::backend::abi::CollectiveOperationCode as O;
use crate::base::error::Result;
use crate::collectives::plan::PartLayout;
use crate::network::leg::parts::{Parts, Span};
use crate::rank::memory_range::MemoryRange;

impl<'n> Nodes<'n> {
    /// Enqueues a broadcast from member `root`.
    pub fn broadcast(&self, root: usize, to: MemoryRange<'_>, from: MemoryRange<'_>) -> Result<()> {
        let leaders = self.leaders(root);
        let leader = self.leader_here(root);
        self.in_turn(
            windows(to.bytes(), BUFFER),
            |offset, (at, bytes)| {
                let staged = self.staged(offset, bytes);
                if self.own() == root {
                    self.copy(staged, from.part(at, bytes))?;
                }
                let mut calls = Vec::new();
                if self.membership.rank == leader {
                    calls.push(Task {
                        members: leaders.clone(),
                        own: self.node(),
                        work: Work::Broadcast {
                            root: self.placement().node(root),
                            data: Span { offset, bytes },
                        },
                    });
                }
                Ok((self.begin_legs(calls)?, (to.part(at, bytes), staged)))
            },
            |(to, staged)| self.within(O::BROADCAST, Elements::BYTES, leader, to, staged),
        )
    }

    /// Returns the number within node `node` of the rank that receives the part of a member of another node.
    fn holder(&self, member: usize, node: usize) -> usize {
        self.placement().local_rank(member) % self.placement().members(node).len()
    }

    /// Returns the slot of a member's part at its holder on this node: its own has slot 0, and the others follow in
    /// the order of the group.
    fn slot(&self, member: usize) -> u64 {
        let placement = self.placement();
        let here = self.node();
        if placement.node(member) == here {
            return 0;
        }
        let holder = self.holder(member, here);
        let earlier = (0..member)
            .filter(|&other| placement.node(other) != here && self.holder(other, here) == holder);
        1 + earlier.count() as u64
    }

    /// Enqueues an all-gather of parts that may differ in length. `longest` is the longest.
    pub fn all_gather(
        &self,
        parts: &PartLayout<'_>,
        longest: u64,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let placement = self.placement();
        let members = self.membership.span.members.len();
        let (own, here) = (self.own(), self.node());
        // The same number of slots on all nodes.
        let fewest = (0..placement.nodes())
            .map(|node| placement.members(node).len())
            .min();
        let slots = 1 + members.div_ceil(fewest.unwrap_or(1)) as u64;
        let most = slot_bytes(slots);
        for (at, window) in windows(longest, most) {
            let stride = window.next_multiple_of(LINE);
            let bytes = |member: usize| parts.bytes(member).saturating_sub(at).min(window);
            let span = |member: usize| Span {
                offset: self.slot(member) * stride,
                bytes: bytes(member),
            };
            let mine = span(own);
            self.copy(self.staged(0, mine.bytes), from.part(at, mine.bytes))?;
            let is_far = |member: usize| placement.node(member) != here;
            let sent = |member: usize| {
                let node = placement.node(member);
                let holds =
                    is_far(member) && placement.local_rank(member) == self.holder(own, node);
                if holds { mine } else { Span::default() }
            };
            let received = |member: usize| {
                let holds = is_far(member) && self.holder(member, here) == self.membership.rank;
                if holds { span(member) } else { Span::default() }
            };
            // On equal nodes, the holders of a part have its member's number: its rail.
            let (ranks, numbers, own) = match &self.far.rail {
                Some(rail) => (rail, placement.rail(self.membership.rank), here),
                None => (&self.far.everyone, (0..members).collect(), own),
            };
            let parts_of = |part: &dyn Fn(usize) -> Span| {
                Parts::Each(numbers.iter().map(|&member| part(member)).collect())
            };
            self.legs(vec![Task {
                members: ranks.clone(),
                own,
                work: Work::Exchange {
                    sent: parts_of(&sent),
                    received: parts_of(&received),
                },
            }])?;
            self.spread(parts, at, to, &span)?;
        }
        Ok(())
    }

    /// Spreads parts from their holders on this node.
    fn spread(
        &self,
        parts: &PartLayout<'_>,
        at: u64,
        to: MemoryRange<'_>,
        span: &dyn Fn(usize) -> Span,
    ) -> Result<()> {
        let placement = self.placement();
        let here = self.membership.world();
        for node in 0..placement.nodes() {
            let numbers = placement.members(node);
            let first = numbers[0];
            let part = span(first);
            // The parts of a node lie side by side, and each is with the rank of its member's number.
            let side_by_side = numbers.len() == here
                && numbers.iter().enumerate().all(|(local, &number)| {
                    let one = span(number);
                    number == first + local && one == part && one.bytes == parts.bytes(number)
                });
            if side_by_side {
                let to = to.part(parts.offset(first), part.bytes * here as u64);
                let from = self.staged(part.offset, part.bytes);
                self.within(O::ALL_GATHER, Elements::BYTES, 0, to, from)?;
                continue;
            }
            for &number in numbers {
                let Span { offset, bytes } = span(number);
                let root = match node == self.node() {
                    true => placement.local_rank(number),
                    false => self.holder(number, self.node()),
                };
                let to = to.part(parts.offset(number) + at, bytes);
                self.within(
                    O::BROADCAST,
                    Elements::BYTES,
                    root,
                    to,
                    self.staged(offset, bytes),
                )?;
            }
        }
        Ok(())
    }
}
