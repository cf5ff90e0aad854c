//! All-gather and broadcast over nodes.

use super::layout::{BUFFER, LINE, slot_bytes};
use super::stages::{Elements, Nodes};
use super::task::{Task, Work};
use crate::backend::abi::{CollectiveOperationCode as O, RawNccl};
use crate::base::error::Result;
use crate::collectives::plan::PartLayout;
use crate::network::leg::parts::{Parts, Span};
use crate::rank::memory_range::MemoryRange;
use std::sync::Arc;

impl<'n> Nodes<'n> {
    /// Enqueues a broadcast from member `root`.
    pub fn broadcast(&self, root: usize, to: MemoryRange<'_>, from: MemoryRange<'_>) -> Result<()> {
        let leaders = self.leaders(root);
        let leader = self.leader_here(root);
        self.in_turn(
            self.windows(to.bytes(), BUFFER),
            |offset, (at, bytes)| {
                let staged = self.staged(offset, bytes);
                if self.own() == root {
                    self.copy(staged, from.part(at, bytes))?;
                }
                let mut calls = Vec::new();
                if self.local() == leader {
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
        let members = self.members();
        let (own, here) = (self.own(), self.node());
        if let (Ok(library), Some(rail), false) = (self.library, &self.far.rail, to.is_own()) {
            return self.all_gather_by_library((library, rail), parts, to, from);
        }
        // The same number of slots on all nodes.
        let fewest = (0..placement.nodes())
            .map(|node| placement.members(node).len())
            .min();
        let slots = 1 + members.div_ceil(fewest.unwrap_or(1)) as u64;
        let most = slot_bytes(slots);
        for (at, window) in self.windows(longest, most) {
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
                let holds = is_far(member) && self.holder(member, here) == self.local();
                if holds { span(member) } else { Span::default() }
            };
            // On equal nodes, the holders of a part have its member's number: its rail.
            let (ranks, numbers, own) = match &self.far.rail {
                Some(rail) => (rail, placement.rail(self.local()), here),
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

    /// An all-gather whose legs are NCCL's: it needs no memory but the destination, and cuts large calls itself.
    fn all_gather_by_library(
        &self,
        (library, rail): (RawNccl, &Arc<[usize]>),
        parts: &PartLayout<'_>,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let placement = self.placement();
        let place = |member: usize| Span {
            offset: parts.offset(member),
            bytes: parts.bytes(member),
        };
        let part = |member: usize| to.part(parts.offset(member), parts.bytes(member));
        let equals = placement.rail(self.local());
        self.copy(part(self.own()), from)?;
        let task = Task {
            members: rail.clone(),
            own: self.node(),
            work: Work::Exchange {
                sent: Parts::Whole(place(self.own())),
                received: Parts::Each(equals.iter().map(|&member| place(member)).collect()),
            },
        };
        self.by_rail(library, &task, to)?;
        // This rank has the parts of its equals on all nodes.
        for (node, &equal) in equals.iter().enumerate() {
            let numbers = placement.members(node);
            let (first, bytes) = (parts.offset(numbers[0]), parts.bytes(numbers[0]));
            let side_by_side = numbers.iter().enumerate().all(|(local, &member)| {
                let offset = first + local as u64 * bytes;
                place(member) == Span { offset, bytes }
            });
            if side_by_side {
                let whole = to.part(first, bytes * numbers.len() as u64);
                self.within(O::ALL_GATHER, Elements::BYTES, 0, whole, part(equal))?;
                continue;
            }
            for (local, &member) in numbers.iter().enumerate() {
                let one = part(member);
                self.within(O::BROADCAST, Elements::BYTES, local, one, one)?;
            }
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
        let here = self.here();
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
