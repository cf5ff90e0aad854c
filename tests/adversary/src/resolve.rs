//! Operations with every number resolved, and what each call uses.

use crate::call::{Call, Id, Range};
use crate::place::{Held, Place, pick};
use crate::program::*;
use crate::usage::Resource;
use symmem::Algorithm;

impl Place {
    /// Whether a call uses buffers of its own.
    pub fn moves(&self, call: &Call) -> bool {
        !matches!(call.kind, Kind::Barrier | Kind::GroupBarrier | Kind::Launch)
    }

    /// Returns what a call uses, and whether it changes it.
    pub fn resources(&self, call: &Call) -> Vec<(Resource, bool)> {
        if let Some(graph) = call.graph {
            let calls = self.memory.graphs[&graph].iter();
            let inner = calls.flat_map(|call| self.resources(call));
            return inner.chain([(Resource::Graph(graph), true)]).collect();
        }
        let mut used = Vec::new();
        if self.moves(call) {
            let both = matches!(call.kind, Kind::Atomic(_));
            used.push((Resource::Buffer(call.from.buffer), both));
            used.push((Resource::Buffer(call.to.buffer), true));
        }
        if receives(call) {
            used.push((Resource::Received(call.from.buffer), false));
        }
        match call.kind {
            Kind::Local => {}
            kind if kind.is_collective() => {
                used.push((Resource::Channel(call.group, call.channel % 4), true));
            }
            _ => used.push((Resource::Barrier(call.channel), true)),
        }
        used
    }

    /// Whether every rank still has its handle of what a graph's peers receive from.
    fn can_receive(&self, graph: Id) -> bool {
        self.memory.graphs[&graph].iter().all(|call| {
            let whole = self.buffers.iter().any(|held| held.id == call.from.buffer);
            let inner = call.graph.is_none_or(|graph| self.can_receive(graph));
            inner && (whole || !receives(call))
        })
    }

    /// Resolves an operation with what there is; `None` if that does not allow it.
    pub fn resolve(&self, operation: &Operation) -> Option<Call> {
        let kind = operation.kind;
        let division = match operation.group.checked_sub(1) {
            Some(group) if kind.is_collective() && !self.groups.is_empty() => {
                Some(&self.groups[group % self.groups.len()])
            }
            _ => None,
        };
        let whole = || vec![(0..self.world).collect()];
        let members = division.map_or_else(whole, |division| division.members.clone());
        let largest = members.iter().map(Vec::len).max()?;
        let mut call = Call {
            kind,
            element: Element::U8,
            from: Range { buffer: 0, at: 0 },
            to: Range { buffer: 0, at: 0 },
            count: operation.count,
            channel: operation.channel,
            group: division.map(|division| division.id),
            members,
            number: operation.number,
            algorithm: None,
            in_place: false,
            graph: None,
        };
        match kind {
            Kind::Launch => {
                let graph = pick(&self.graphs, operation.number)?;
                call.graph = Some(graph);
                return self.can_receive(graph).then_some(call);
            }
            Kind::Barrier | Kind::GroupBarrier => return Some(call),
            _ => {}
        }
        let words = matches!(kind, Kind::Atomic(_));
        let fits = |held: &&Held| !words || (held.element.is_word() && held.length >= 2);
        let sources: Vec<Held> = self.buffers.iter().filter(fits).copied().collect();
        let from = pick(&sources, operation.from)?;
        let targets = sources.iter().filter(|held| held.element == from.element);
        let targets: Vec<Held> = targets.copied().collect();
        let to = pick(&targets, operation.to)?;
        call.element = from.element;
        call.in_place = operation.in_place && from.id == to.id && can_be_in_place(kind);
        self.ranges(&mut call, operation, (from, to), largest);
        call.algorithm = pick(&algorithms(kind, call.in_place), operation.algorithm).flatten();
        Some(call)
    }

    /// Sets the ranges and the count, so that both fit.
    fn ranges(
        &self,
        call: &mut Call,
        operation: &Operation,
        (from, to): (Held, Held),
        members: usize,
    ) {
        let (read, written) = match call.kind {
            Kind::Atomic(_) => (0, 0),
            kind => kind.parts(members),
        };
        let (mut first, mut room) = ((0, 0), (from.length, to.length));
        if call.in_place {
            let parts = read.max(written);
            call.count = call.count.min(from.length / parts);
            let at = operation.read_at % (from.length - call.count * parts + 1);
            call.from = Range {
                buffer: from.id,
                at,
            };
            call.to = call.from;
            return;
        }
        if from.id == to.id {
            let half = from.length / 2;
            room = (half, half);
            first = if operation.in_place {
                (0, half)
            } else {
                (half, 0)
            };
        }
        if !matches!(call.kind, Kind::Atomic(_)) {
            call.count = call.count.min(room.0 / read).min(room.1 / written);
        }
        let place =
            |first: usize, room: usize, used: usize, at: usize| first + at % (room - used + 1);
        let (used_from, used_to) = match call.kind {
            Kind::Atomic(_) => (1, 1),
            _ => (call.count * read, call.count * written),
        };
        call.from = Range {
            buffer: from.id,
            at: place(first.0, room.0, used_from, operation.read_at),
        };
        call.to = Range {
            buffer: to.id,
            at: place(first.1, room.1, used_to, operation.write_at),
        };
    }
}

/// Whether members read through the address table what others send.
fn receives(call: &Call) -> bool {
    matches!(
        call.kind,
        Kind::SendRecv | Kind::Exchange(_) | Kind::AllToAllV
    )
}

fn can_be_in_place(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::AllReduce(_)
            | Kind::Reduce(_)
            | Kind::ReduceScatter(_)
            | Kind::AllGather
            | Kind::Broadcast
            | Kind::AllToAll
    )
}

/// Returns the algorithms that can be named.
fn algorithms(kind: Kind, in_place: bool) -> Vec<Option<Algorithm>> {
    use Algorithm as A;
    let named: &[Algorithm] = match kind {
        Kind::AllReduce(_) if in_place => {
            &[A::Ll, A::LlTwoShot, A::TwoShot, A::Push, A::CopyEngine]
        }
        Kind::AllReduce(_) => &[
            A::Ll,
            A::LlTwoShot,
            A::OneShot,
            A::TwoShot,
            A::Push,
            A::CopyEngine,
        ],
        Kind::Reduce(_) => &[A::Ll, A::OneShot, A::TwoShot, A::Push],
        Kind::ReduceScatter(_) => &[A::Ll, A::OneShot, A::Push],
        Kind::AllGather | Kind::AllGatherV => &[A::Ll, A::Push, A::Pull, A::CopyEngine],
        Kind::Broadcast => &[A::Ll, A::Push, A::Pull, A::TwoShot],
        Kind::AllToAll if in_place => &[A::Ll, A::Swap],
        Kind::AllToAll => &[A::Ll, A::Push, A::Pull, A::CopyEngine],
        Kind::Gather | Kind::Scatter => &[A::Ll, A::Push, A::Pull],
        _ => &[],
    };
    let named = named.iter().copied().map(Some);
    std::iter::once(None).chain(named).collect()
}

/// Returns elements of a pattern. Those of floats are small integers, whose sums are exact.
pub fn elements(element: Element, count: usize, pattern: u32) -> Vec<u8> {
    let number = |at: usize| {
        pattern
            .wrapping_mul(0x9e37_79b9)
            .wrapping_add((at as u32).wrapping_mul(0x85eb_ca6b))
    };
    let small = |at: usize| (number(at) >> 20) as f32 % 17.0 - 8.0;
    let mut bytes = Vec::with_capacity(count * element.size());
    for at in 0..count {
        match element {
            Element::U8 => bytes.push((number(at) >> 8) as u8),
            Element::U32 => bytes.extend(number(at).to_le_bytes()),
            Element::U64 => bytes.extend((u64::from(number(at)) * 0x1_0000_0001).to_le_bytes()),
            Element::U16 => bytes.extend(((number(at) >> 8) as u16).to_le_bytes()),
            Element::F16 => bytes.extend(half::f16::from_f32(small(at)).to_le_bytes()),
            Element::Bf16 => bytes.extend(half::bf16::from_f32(small(at)).to_le_bytes()),
            Element::F32 => bytes.extend(small(at).to_le_bytes()),
            Element::F64 => bytes.extend(f64::from(small(at)).to_le_bytes()),
        }
    }
    bytes
}
