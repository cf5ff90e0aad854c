//! Reductions over nodes.

use super::layout::{BUFFER, LINE, slot_bytes, stride};
use super::stages::{Elements, Nodes};
use super::task::{Task, Work};
use crate::backend::abi::{CollectiveOperationCode as O, RawNccl};
use crate::base::error::Result;
use crate::network::leg::parts::Span;
use crate::rank::memory_range::MemoryRange;
use std::sync::Arc;

/// Most bytes of an all-reduce in which every rail carries the whole vector: one stage and one leg, and no all-gather.
/// Not tuned yet.
const SMALL: u64 = 16 << 10;
/// Fewest bytes of a rank's share in a chunk.
const LEAST_CHUNK: u64 = 256 << 10;
/// Chunks of a call, if they are not too small or too large: the first stage and the last overlap with no leg.
const CHUNKS: u64 = 4;

impl<'n> Nodes<'n> {
    /// Enqueues an all-reduce.
    pub fn all_reduce(
        &self,
        elements: Elements,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let rail = self.far.rail.as_ref();
        let Some(rail) = rail.filter(|_| !self.is_small(to.bytes())) else {
            return self.all_reduce_by_leaders(elements, to, from);
        };
        let members = self.here() as u64;
        let bytes = to.bytes();
        // Parts of whole lines in every chunk; the rest is small.
        let line = LINE.max(elements.bytes) * members;
        let bulk = match bytes <= SMALL {
            true => 0,
            false => bytes / line * line,
        };
        let share = bulk / members;
        if let (Ok(library), false) = (self.library, to.is_own()) {
            return self.all_reduce_by_library((library, rail), elements, (to, from), share);
        }
        let chunk = (share / CHUNKS)
            .clamp(LEAST_CHUNK, BUFFER)
            .next_multiple_of(LINE);
        self.in_turn(
            self.windows(share, chunk),
            |buffer, (at, share)| {
                let staged = self.staged(buffer, share);
                let (at, bytes) = (at * members, share * members);
                self.within(
                    O::REDUCE_SCATTER,
                    self.before_leg(elements),
                    0,
                    staged,
                    from.part(at, bytes),
                )?;
                let task = self.all_reduce_task(rail, elements, buffer, share);
                Ok((self.begin_legs(vec![task])?, (to.part(at, bytes), staged)))
            },
            |(to, staged)| self.within(O::ALL_GATHER, Elements::BYTES, 0, to, staged),
        )?;
        for (at, bytes) in self.windows(bytes - bulk, BUFFER) {
            let (to, from) = (to.part(bulk + at, bytes), from.part(bulk + at, bytes));
            let staged = self.staged(0, bytes);
            self.within(O::ALL_REDUCE, self.before_leg(elements), 0, staged, from)?;
            self.legs(vec![self.all_reduce_task(rail, elements, 0, bytes)])?;
            self.copy(to, staged)?;
        }
        Ok(())
    }

    /// An all-reduce whose legs are NCCL's: it needs no memory but the destination, and cuts large calls itself.
    fn all_reduce_by_library(
        &self,
        (library, rail): (RawNccl, &Arc<[usize]>),
        elements: Elements,
        (to, from): (MemoryRange<'_>, MemoryRange<'_>),
        share: u64,
    ) -> Result<()> {
        let stage = self.before_leg(elements);
        let bulk = share * self.here() as u64;
        if share > 0 {
            let at = share * self.local() as u64;
            let (whole, own) = (to.part(0, bulk), to.part(at, share));
            self.within(O::REDUCE_SCATTER, stage, 0, own, from.part(0, bulk))?;
            self.by_rail(
                library,
                &self.all_reduce_task(rail, elements, at, share),
                to,
            )?;
            self.within(O::ALL_GATHER, Elements::BYTES, 0, whole, own)?;
        }
        let rest = to.bytes() - bulk;
        if rest > 0 {
            let (to_rest, from_rest) = (to.part(bulk, rest), from.part(bulk, rest));
            self.within(O::ALL_REDUCE, stage, 0, to_rest, from_rest)?;
            self.by_rail(
                library,
                &self.all_reduce_task(rail, elements, bulk, rest),
                to,
            )?;
        }
        Ok(())
    }

    fn all_reduce_task(
        &self,
        members: &Arc<[usize]>,
        elements: Elements,
        offset: u64,
        bytes: u64,
    ) -> Task {
        Task {
            members: members.clone(),
            own: self.node(),
            work: Work::AllReduce {
                elements,
                data: Span { offset, bytes },
            },
        }
    }

    /// Returns the number within a node of the member that has the legs of a call with this root: the root's own number, so
    /// that on equal nodes it is the root's rail, or 0 if the node has fewer members.
    fn leader_on(&self, node: usize, root: usize) -> usize {
        let local = self.placement().local_rank(root);
        match local < self.placement().members(node).len() {
            true => local,
            false => 0,
        }
    }

    /// Returns one member of each node, as ranks of the world: `root`, and its equals on the other nodes.
    pub fn leaders(&self, root: usize) -> Arc<[usize]> {
        let placement = self.placement();
        let leader = |node| placement.members(node)[self.leader_on(node, root)];
        let leaders = (0..placement.nodes()).map(|node| self.membership.span.members[leader(node)]);
        leaders.collect()
    }

    /// Returns the number within the node of this node's leader.
    pub fn leader_here(&self, root: usize) -> usize {
        self.leader_on(self.node(), root)
    }

    /// An all-reduce by one member of each node.
    fn all_reduce_by_leaders(
        &self,
        elements: Elements,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        for (at, bytes) in self.windows(to.bytes(), BUFFER) {
            let staged = self.staged(0, bytes);
            self.within(
                O::REDUCE,
                self.before_leg(elements),
                0,
                staged,
                from.part(at, bytes),
            )?;
            let data = Span { offset: 0, bytes };
            self.leg_of_leaders(Work::AllReduce { elements, data })?;
            self.within(O::BROADCAST, Elements::BYTES, 0, to.part(at, bytes), staged)?;
        }
        Ok(())
    }

    /// Enqueues a reduce to member `root`.
    pub fn reduce(
        &self,
        root: usize,
        elements: Elements,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let leaders = self.leaders(root);
        let leader = self.leader_here(root);
        self.in_turn(
            self.windows(from.bytes(), BUFFER),
            |offset, (at, bytes)| {
                let staged = self.staged(offset, bytes);
                self.within(
                    O::REDUCE,
                    self.before_leg(elements),
                    leader,
                    staged,
                    from.part(at, bytes),
                )?;
                let mut calls = Vec::new();
                if self.local() == leader {
                    calls.push(Task {
                        members: leaders.clone(),
                        own: self.node(),
                        work: Work::Reduce {
                            root: self.placement().node(root),
                            elements,
                            data: Span { offset, bytes },
                        },
                    });
                }
                let to = (self.own() == root).then(|| to.part(at, bytes));
                Ok((self.begin_legs(calls)?, (to, staged)))
            },
            |(to, staged)| to.map_or(Ok(()), |to| self.copy(to, staged)),
        )
    }

    /// Enqueues a reduce-scatter.
    pub fn reduce_scatter(
        &self,
        elements: Elements,
        to: MemoryRange<'_>,
        from: MemoryRange<'_>,
    ) -> Result<()> {
        let part = to.bytes();
        let members = self.members();
        if self.is_small(from.bytes()) && self.is_in_blocks() {
            return self.reduce_scatter_by_leaders(elements, to, from);
        }
        let Some(rail) = &self.far.rail else {
            // A part after the other, each to its member.
            for member in 0..members {
                let from = from.part(member as u64 * part, part);
                self.reduce(member, elements, to, from)?;
            }
            return Ok(());
        };
        let placement = self.placement();
        let (nodes, here) = (placement.nodes(), self.here() as u64);
        // A slot for this rank's part, and for those of its equals on the other nodes.
        let slot = slot_bytes(nodes as u64);
        self.in_turn(
            self.windows(part, slot),
            |buffer, (at, bytes)| {
                let slot = bytes.next_multiple_of(LINE);
                let staged = |node: usize| self.staged(buffer + node as u64 * slot, bytes);
                for node in 0..nodes {
                    let numbers = placement.members(node);
                    let places = numbers.iter().map(|&number| number as u64 * part);
                    if let Some(stride) = stride(places, bytes) {
                        let first = numbers[0] as u64 * part + at;
                        self.strided_within(
                            O::REDUCE_SCATTER,
                            self.before_leg(elements),
                            stride,
                            staged(node),
                            from.part(first, stride * (here - 1) + bytes),
                        )?;
                        continue;
                    }
                    for (local, &number) in numbers.iter().enumerate() {
                        let from = from.part(number as u64 * part + at, bytes);
                        self.within(
                            O::REDUCE,
                            self.before_leg(elements),
                            local,
                            staged(node),
                            from,
                        )?;
                    }
                }
                let legs = self.begin_legs(vec![Task {
                    members: rail.clone(),
                    own: self.node(),
                    work: Work::ReduceScatter {
                        elements,
                        offset: buffer,
                        stride: slot,
                        bytes,
                    },
                }])?;
                Ok((legs, (to.part(at, bytes), staged(self.node()))))
            },
            |(to, staged)| self.copy(to, staged),
        )
    }
}
