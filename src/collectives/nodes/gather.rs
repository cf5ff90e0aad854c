//! All-gather and broadcast over nodes.

use super::layout::{BUFFER, DIRECT, LINE, slot_bytes, stride};
use super::legs::Legs;
use super::stages::{Elements, Nodes};
use super::task::{Task, Work};
use crate::backend::abi::{CollectiveOperationCode as O, RawNccl};
use crate::base::error::Result;
use crate::base::placement::Placement;
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

    /// Returns the slot of a member's part at its holder on this node.
    fn slot(&self, member: usize) -> u64 {
        slot(self.placement(), self.node(), member)
    }

    /// Enqueues an all-gather of parts that may differ in length. `longest` is the longest.
    pub fn all_gather(
        &self,
        parts: &PartLayout<'_>,
        longest: u64,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let own = self.own();
        if let (Ok(library), Some(rail), false) = (self.library, &self.far.rail, to.is_own()) {
            return self.all_gather_by_library((library, rail), parts, to, from);
        }
        if let (Some(rail), None, false) = (&self.far.rail, self.far.mirror, to.is_own()) {
            return self.all_gather_directly(rail, (parts, longest), to, from);
        }
        // The same number of slots on all nodes, since a part's windows are the same everywhere.
        let slots = most_slots(self.placement());
        self.in_turn(
            self.windows(longest, slot_bytes(slots)),
            |buffer, (at, window)| {
                let slot = window.next_multiple_of(LINE);
                let span = move |member: usize| Span {
                    offset: buffer + self.slot(member) * slot,
                    bytes: parts.bytes(member).saturating_sub(at).min(window),
                };
                let mine = span(own);
                self.copy(
                    self.staged(mine.offset, mine.bytes),
                    from.part(at, mine.bytes),
                )?;
                let legs = self.begin_legs(vec![self.gather_task(own, &span)])?;
                if at == 0 {
                    // Beside the first leg.
                    self.gather_near(parts, to, from)?;
                }
                Ok((legs, (at, span)))
            },
            |(at, span)| self.spread(parts, at, to, &span),
        )
    }

    /// An all-gather of symmetric ranges whose legs go from operand to operand: each rank receives the parts of its equals on
    /// the other nodes.
    fn all_gather_directly(
        &self,
        rail: &Arc<[usize]>,
        (parts, longest): (&PartLayout<'_>, u64),
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let placement = self.placement();
        let (own, here) = (self.own(), self.node());
        let equals = placement.rail(self.local());
        let window_of = |member: usize, at: u64, most: u64| Span {
            offset: parts.offset(member) + at,
            bytes: parts.bytes(member).saturating_sub(at).min(most),
        };
        self.in_turn(
            self.windows(longest, DIRECT),
            |_, (at, most)| {
                let of_others = |span: &dyn Fn(usize) -> Span| {
                    let of = |&equal: &usize| match equal == own {
                        true => Span::default(),
                        false => span(equal),
                    };
                    Parts::Each(equals.iter().map(of).collect())
                };
                let bytes = window_of(own, at, most).bytes;
                let task = Task {
                    members: rail.clone(),
                    own: here,
                    work: Work::Exchange {
                        sent: of_others(&|_| Span { offset: at, bytes }),
                        received: of_others(&|equal| window_of(equal, at, most)),
                    },
                };
                self.begin_direct_legs(std::iter::once(task), (to, from))?;
                if at == 0 {
                    // Beside the first leg.
                    self.gather_near(parts, to, from)?;
                }
                Ok((Legs::default(), (at, most)))
            },
            |(at, most)| {
                let mut others = (0..placement.nodes()).filter(|&node| node != here);
                others.try_for_each(|node| self.gather_window(node, parts, (at, most), to))
            },
        )
    }

    /// Gathers the windows at `at`, of at most `most` bytes, of the parts of a node, each of which is in the destination of the
    /// rank of its member's number here. For nodes of equal size.
    fn gather_window(
        &self,
        node: usize,
        parts: &PartLayout<'_>,
        (at, most): (u64, u64),
        to: MemoryRange<'_>,
    ) -> Result<()> {
        let numbers = self.placement().members(node);
        let window = |member: usize| {
            let bytes = parts.bytes(member).saturating_sub(at).min(most);
            to.part(parts.offset(member) + at, bytes)
        };
        let own = window(numbers[self.local()]);
        if let Some(whole) = node_range(parts, numbers, at..at + own.bytes()) {
            return self.gather_range(whole, to, own);
        }
        for (local, &member) in numbers.iter().enumerate() {
            let one = window(member);
            self.within(O::BROADCAST, Elements::BYTES, local, one, one)?;
        }
        Ok(())
    }

    /// Returns the leg by which members receive the parts that they hold, whose places `span` returns.
    fn gather_task(&self, own: usize, span: &dyn Fn(usize) -> Span) -> Task {
        let (placement, here) = (self.placement(), self.node());
        let is_far = |member: usize| placement.node(member) != here;
        let sent = |member: usize| {
            let node = placement.node(member);
            let holds =
                is_far(member) && placement.local_rank(member) == holder(placement, node, own);
            if holds { span(own) } else { Span::default() }
        };
        let received = |member: usize| {
            let holds = is_far(member) && holder(placement, here, member) == self.local();
            if holds { span(member) } else { Span::default() }
        };
        // On equal nodes, the holders of a part have its member's number: its rail.
        let everyone = || (0..self.members()).collect();
        let (ranks, numbers, own) = match &self.far.rail {
            Some(rail) => (rail, placement.rail(self.local()), here),
            None => (&self.far.everyone, everyone(), own),
        };
        let parts_of = |part: &dyn Fn(usize) -> Span| {
            Parts::Each(numbers.iter().map(|&member| part(member)).collect())
        };
        Task {
            members: ranks.clone(),
            own,
            work: Work::Exchange {
                sent: parts_of(&sent),
                received: parts_of(&received),
            },
        }
    }

    /// Gathers the parts of the members on this node, all of each.
    fn gather_near(
        &self,
        parts: &PartLayout<'_>,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let numbers = self.placement().members(self.node());
        let own = self.own();
        let from = from.part(0, parts.bytes(own));
        if let Some(whole) = node_range(parts, numbers, 0..parts.bytes(numbers[0])) {
            return self.gather_range(whole, to, from);
        }
        let part = |member: usize| to.part(parts.offset(member), parts.bytes(member));
        self.copy(part(own), from)?;
        for (local, &member) in numbers.iter().enumerate() {
            let one = part(member);
            self.within(O::BROADCAST, Elements::BYTES, local, one, one)?;
        }
        Ok(())
    }

    /// Gathers the windows of a node's parts from the ranks of this node, each of which has one.
    fn gather_range(
        &self,
        NodeRange {
            first,
            bytes,
            stride,
        }: NodeRange,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let to = to.part(first, bytes);
        self.strided_within(O::ALL_GATHER, Elements::BYTES, stride, to, from)
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
        (0..placement.nodes())
            .try_for_each(|node| self.gather_window(node, parts, (0, u64::MAX), to))
    }

    /// Spreads windows of the parts of other nodes from their holders on this node.
    fn spread(
        &self,
        parts: &PartLayout<'_>,
        at: u64,
        to: MemoryRange<'_>,
        span: &dyn Fn(usize) -> Span,
    ) -> Result<()> {
        let placement = self.placement();
        let here = self.here();
        for node in (0..placement.nodes()).filter(|&node| node != self.node()) {
            let numbers = placement.members(node);
            let part = span(numbers[0]);
            // Each is with the rank of its member's number, at the same place.
            let alike = numbers.len() == here && numbers.iter().all(|&number| span(number) == part);
            let whole = node_range(parts, numbers, at..at + part.bytes).filter(|_| alike);
            if let Some(whole) = whole {
                self.gather_range(whole, to, self.staged(part.offset, part.bytes))?;
                continue;
            }
            for &number in numbers {
                let Span { offset, bytes } = span(number);
                let root = holder(placement, self.node(), number);
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

/// The range from the first to the last of equal windows of a node's parts, which lie at equal distances.
struct NodeRange {
    first: u64,
    bytes: u64,
    stride: u64,
}

/// Returns the range of a window of the parts of some members. `None` if the window is empty, or the parts or their distances
/// differ, which all ranks of the node see alike.
fn node_range(
    parts: &PartLayout<'_>,
    numbers: &[usize],
    window: std::ops::Range<u64>,
) -> Option<NodeRange> {
    let bytes = parts.bytes(numbers[0]);
    let are_equal = numbers.iter().all(|&number| parts.bytes(number) == bytes);
    if window.is_empty() || !are_equal {
        return None;
    }
    let stride = stride(numbers.iter().map(|&number| parts.offset(number)), bytes)?;
    let behind = numbers.len() as u64 - 1;
    Some(NodeRange {
        first: parts.offset(numbers[0]) + window.start,
        bytes: stride * behind + (window.end - window.start),
        stride,
    })
}

/// Returns the rank, by its number on a node, that holds the parts of a member of another node.
fn holder(placement: &Placement, node: usize, member: usize) -> usize {
    placement.local_rank(member) % placement.members(node).len()
}

/// Returns the slot of a member's part at its holder on node `here`: the holder's own part has slot 0, and the others follow
/// in the order of the group.
fn slot(placement: &Placement, here: usize, member: usize) -> u64 {
    if placement.node(member) == here {
        return 0;
    }
    let own = holder(placement, here, member);
    let earlier = (0..member)
        .filter(|&other| placement.node(other) != here && holder(placement, here, other) == own);
    1 + earlier.count() as u64
}

/// Returns the number of slots of a rank that holds the most parts: its own, and those of each other node in turn.
fn most_slots(placement: &Placement) -> u64 {
    let members = |node: usize| placement.members(node).len();
    let on = |here: usize| {
        let others = (0..placement.nodes()).filter(|&node| node != here);
        1 + others
            .map(|node| members(node).div_ceil(members(here)) as u64)
            .sum::<u64>()
    };
    (0..placement.nodes()).map(on).max().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_one_of_those_that_a_buffer_is_divided_into() {
        let nodes_of: [&[usize]; 8] = [
            &[2, 2],
            &[3, 1],
            &[1, 3],
            &[3, 3, 2],
            &[8, 8, 7],
            &[4, 4, 3],
            &[3, 2, 1],
            &[5, 4, 4, 4],
        ];
        for sizes in nodes_of {
            let nodes = sizes.iter().enumerate();
            let keys: Vec<usize> = nodes.flat_map(|(node, &size)| vec![node; size]).collect();
            let placement = Placement::of(&keys);
            let slots = (0..sizes.len())
                .flat_map(|here| (0..keys.len()).map(move |member| (here, member)))
                .map(|(here, member)| slot(&placement, here, member));
            assert_eq!(
                slots.max().unwrap() + 1,
                most_slots(&placement),
                "{sizes:?}"
            );
        }
    }

    #[test]
    fn a_window_of_equal_parts_is_one_range_also_if_other_nodes_parts_lie_between() {
        let parts = PartLayout::Equal(100);
        let range = |numbers: &[usize], window| {
            let range = node_range(&parts, numbers, window)?;
            Some((range.first, range.bytes, range.stride))
        };
        assert_eq!(range(&[2, 3], 0..100), Some((200, 200, 100)));
        assert_eq!(range(&[0, 2, 4], 40..60), Some((40, 420, 200)));
        assert_eq!(range(&[1], 40..60), Some((140, 20, 100)));
        assert_eq!(range(&[0, 1, 3], 40..60), None);
        assert_eq!(range(&[0, 1], 40..40), None);
    }

    #[test]
    fn parts_of_different_lengths_are_no_range_whatever_the_window() {
        let counts: &[usize] = &[100, 80, 100];
        let parts = PartLayout::Counted {
            counts,
            element_bytes: 1,
        };
        assert!(node_range(&parts, &[0, 1], 0..50).is_none());
        assert!(node_range(&parts, &[0, 2], 0..100).is_some());
    }
}
