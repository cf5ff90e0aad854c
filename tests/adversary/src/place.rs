//! What a communicator has at some point of a program, and what its model's memory holds.

use crate::call::{Call, Id, Memory};
use crate::plan::Action;
use crate::program::*;
use crate::resolve::elements;
use crate::scenes;
use crate::usage::{Resource, Usage};
use std::collections::BTreeSet;

/// A buffer of which handles are left.
#[derive(Clone, Copy)]
pub struct Held {
    pub id: Id,
    pub element: Element,
    pub length: usize,
    /// Bit `r`: rank `r` has its handle.
    pub ranks: u8,
}

/// Most streams that a communicator has at a time, those apart that were dropped.
const LIVE: usize = 4;
/// Most streams that a communicator ever has. Its ending needs two of them.
pub const STREAMS: usize = 8;

/// A group of each rank that has one.
pub struct Division {
    pub id: Id,
    pub members: Vec<Vec<usize>>,
}

/// What a communicator has at some point of a program.
pub struct Place {
    pub world: usize,
    pub checked: bool,
    pub buffers: Vec<Held>,
    /// Buffers that some rank has dropped and another has not.
    halves: Vec<Held>,
    pub streams: Vec<Id>,
    /// Number of streams made so far.
    made: usize,
    pub graphs: Vec<Id>,
    pub groups: Vec<Division>,
    pub memory: Memory,
    usage: Usage,
    pub actions: Vec<Action>,
}

/// Returns the item of this number, modulo their number; from [`LAST`] on, numbers count from the end.
pub fn pick<T: Copy>(list: &[T], number: usize) -> Option<T> {
    let last = list.len().checked_sub(1)?;
    Some(match number.checked_sub(LAST) {
        Some(back) => list[last - back % list.len()],
        None => list[number % list.len()],
    })
}

impl Place {
    pub fn new(world: usize, checked: bool) -> Self {
        Self {
            world,
            checked,
            buffers: Vec::new(),
            halves: Vec::new(),
            streams: Vec::new(),
            made: 0,
            graphs: Vec::new(),
            groups: Vec::new(),
            memory: Memory::default(),
            usage: Usage::default(),
            actions: Vec::new(),
        }
    }

    pub fn all(&self) -> u8 {
        (1 << self.world) - 1
    }

    /// Returns a stream, which it makes if there is none.
    pub fn stream(&mut self, number: usize, fresh: &mut dyn FnMut() -> Id) -> Id {
        pick(&self.streams, number).unwrap_or_else(|| self.make_stream(fresh))
    }

    fn make_stream(&mut self, fresh: &mut dyn FnMut() -> Id) -> Id {
        let id = fresh();
        self.made += 1;
        self.streams.push(id);
        self.actions.push(Action::Stream { id });
        id
    }

    /// Whether there may be more streams.
    fn has_room(&self) -> bool {
        self.made + 2 < STREAMS
    }

    /// Adds waits so that `stream` may use `resources`; returns false if a stream that is gone may use them still.
    pub fn order(&mut self, stream: Id, resources: &[(Resource, bool)]) -> bool {
        let before = self.usage.conflicts(stream, resources);
        if before.iter().any(|other| !self.streams.contains(other)) {
            return false;
        }
        for other in before {
            self.actions.push(Action::Ordered { stream: other });
            self.usage.done(other);
        }
        self.usage.add(stream, resources);
        true
    }

    /// Waits until peers have received what they receive from buffers.
    fn received(&mut self, buffer: impl Fn(Id) -> bool) {
        let of = |resource| matches!(resource, Resource::Received(id) if buffer(id));
        for stream in self.usage.users(of) {
            self.actions.push(Action::Ordered { stream });
            self.usage.done(stream);
        }
    }

    /// Waits for all streams, as an application does before it frees memory by the driver; false if one is gone that
    /// may still have work.
    pub fn idle(&mut self) -> bool {
        let users = self.usage.users(|_| true);
        if users.iter().any(|user| !self.streams.contains(user)) {
            return false;
        }
        for stream in users {
            self.actions.push(Action::Ordered { stream });
            self.usage.done(stream);
        }
        true
    }

    /// Waits until peers have received what they receive by a graph, which alone keeps their memory.
    pub fn received_by(&mut self, graph: Id) {
        let used = self.uses(vec![graph]);
        self.received(|id| used.contains(&id));
    }

    pub fn act(&mut self, act: &Act, other: Option<Id>, fresh: &mut dyn FnMut() -> Id) {
        match *act {
            Act::Allocate { element, length } => {
                let id = fresh();
                self.add(id, element, length);
                self.actions.push(Action::Allocate {
                    id,
                    element,
                    length,
                });
                // Zeros would hide what is read from, or written to, a wrong place. Some stay as they were allocated.
                if !id.is_multiple_of(4) {
                    let stream = self.stream(id, fresh);
                    self.write(stream, LAST, (0, length), id as u32);
                }
            }
            Act::Drop { buffer, ranks } => self.drop_buffer(buffer, ranks),
            Act::Free { buffer } => {
                if let Some(held) = pick(&self.buffers, buffer) {
                    self.received(|id| id == held.id);
                    self.buffers.retain(|other| other.id != held.id);
                    let used = self.used_by_graphs().contains(&held.id);
                    self.actions.push(Action::Free { id: held.id, used });
                }
            }
            Act::Stream => {
                if self.streams.len() < LIVE && self.has_room() {
                    self.make_stream(fresh);
                }
            }
            Act::DropStream { stream } => {
                // The last stream is dropped only if another one can be made.
                let left = self.streams.len() > 1 || self.has_room();
                if let Some(id) = pick(&self.streams, stream).filter(|_| left) {
                    self.received(|_| true);
                    self.streams.retain(|&other| other != id);
                    self.actions.push(Action::DropStream { id });
                }
            }
            Act::Enqueue {
                stream,
                ref operation,
            } => {
                let stream = self.stream(stream, fresh);
                if let Some(call) = self.resolve(operation)
                    && self.order(stream, &self.resources(&call))
                {
                    self.memory.apply(&call);
                    self.actions.push(Action::Enqueue { stream, call });
                }
            }
            Act::Capture {
                stream,
                ref operations,
            } => {
                let (stream, id) = (self.stream(stream, fresh), fresh());
                let resolved = operations.iter().filter_map(|one| self.resolve(one));
                let calls: Vec<Call> = resolved.collect();
                self.memory.graphs.insert(id, calls.clone());
                self.graphs.push(id);
                self.actions.push(Action::Capture { stream, id, calls });
            }
            Act::Launch { graph, stream } => {
                let operation = Operation {
                    kind: Kind::Launch,
                    number: graph,
                    ..Operation::plain()
                };
                self.act(&Act::Enqueue { stream, operation }, other, fresh);
            }
            Act::DropGraph { graph } => {
                if let Some(id) = pick(&self.graphs, graph) {
                    self.received_by(id);
                    self.graphs.retain(|&other| other != id);
                    self.actions.push(Action::DropGraph { id });
                }
            }
            Act::Write {
                stream,
                buffer,
                at,
                count,
                pattern,
            } => {
                let stream = self.stream(stream, fresh);
                self.write(stream, buffer, (at, count), pattern);
            }
            Act::Read {
                stream,
                buffer,
                at,
                count,
            } => {
                let stream = self.stream(stream, fresh);
                if let Some(held) = pick(&self.buffers, buffer) {
                    let at = at % (held.length + 1);
                    self.read(stream, held, at, count.min(held.length - at));
                }
            }
            Act::Synchronize { stream } => {
                let stream = self.stream(stream, fresh);
                self.actions.push(Action::Synchronize { stream });
            }
            Act::HostBarrier => self.actions.push(Action::HostBarrier),
            Act::HostAllGather { bytes } => self.actions.push(Action::HostAllGather { bytes }),
            Act::Split { colors, keys } if self.groups.len() < 3 => {
                let id = fresh();
                let members = divided(self.world, &colors, &keys);
                self.actions.push(Action::Split {
                    id,
                    colors,
                    keys,
                    members: members.clone(),
                });
                self.groups.push(Division { id, members });
            }
            Act::Split { .. } => {}
            Act::DropGroup { group } => {
                if !self.groups.is_empty() {
                    let division = self.groups.remove(group % self.groups.len());
                    self.actions.push(Action::DropGroup { id: division.id });
                }
            }
            Act::Threads {
                ref first,
                ref second,
                dropped,
            } => self.threads(first, second, dropped, fresh),
            Act::Refused {
                refusal,
                stream,
                buffer,
            } => {
                let stream = self.stream(stream, fresh);
                if let Some(held) = pick(&self.buffers, buffer)
                    && held.length >= 4
                    && held.element == Element::U32
                    // A rank alone copies, whatever algorithm is named.
                    && (refusal != Refusal::Algorithm || self.world > 1)
                {
                    self.actions.push(Action::Refused {
                        refusal,
                        stream,
                        buffer: held.id,
                        other,
                    });
                }
            }
            Act::Disagree { disagreement, rank } => self.disagree(disagreement, rank),
            // Concerns two communicators.
            Act::Scene { .. } => {}
        }
    }

    /// Gives up a buffer that a scene drops. Returns it, and whether no graph uses it.
    pub fn dropped(&mut self, buffer: usize) -> (Option<Id>, bool) {
        let Some(held) = pick(&self.buffers, buffer) else {
            return (None, true);
        };
        self.give_up(held.id, self.all());
        (Some(held.id), !self.used_by_graphs().contains(&held.id))
    }

    pub fn scene(
        &mut self,
        scene: Scene,
        stream: usize,
        dropped: Option<Id>,
        fresh: &mut dyn FnMut() -> Id,
    ) {
        let stream = self.stream(stream, fresh);
        let used = [
            (Resource::Channel(None, 0), true),
            (Resource::Barrier(scenes::CHANNEL), true),
        ];
        if self.order(stream, &used) {
            self.actions.push(Action::Scene {
                scene,
                stream,
                dropped,
            });
        } else if let Some(id) = dropped {
            let ranks = self.all();
            self.actions.push(Action::Drop { id, ranks });
        }
    }

    fn add(&mut self, id: Id, element: Element, length: usize) {
        let ranks = self.all();
        self.buffers.push(Held {
            id,
            element,
            length,
            ranks,
        });
        let zeros = vec![vec![0; length * element.size()]; self.world];
        self.memory.bytes.insert(id, zeros);
    }

    fn drop_buffer(&mut self, buffer: usize, ranks: u8) {
        let ranks = ranks & self.all();
        let Some(held) = pick(&self.buffers, buffer).filter(|_| ranks != 0) else {
            return;
        };
        self.give_up(held.id, ranks);
        self.actions.push(Action::Drop { id: held.id, ranks });
    }

    pub fn give_up(&mut self, id: Id, ranks: u8) {
        self.received(|other| other == id);
        let Some(at) = self.buffers.iter().position(|held| held.id == id) else {
            return;
        };
        let mut held = self.buffers.remove(at);
        held.ranks &= !ranks;
        if held.ranks != 0 {
            self.halves.push(held);
        }
    }

    /// Returns the buffers that live graphs use, those of graphs in graphs included.
    fn used_by_graphs(&self) -> BTreeSet<Id> {
        self.uses(self.graphs.clone())
    }

    fn uses(&self, mut left: Vec<Id>) -> BTreeSet<Id> {
        let mut used = BTreeSet::new();
        while let Some(graph) = left.pop() {
            for call in &self.memory.graphs[&graph] {
                left.extend(call.graph);
                used.extend([call.from.buffer, call.to.buffer]);
            }
        }
        used
    }

    fn write(&mut self, stream: Id, buffer: usize, (at, count): (usize, usize), pattern: u32) {
        let Some(held) = pick(&self.buffers, buffer) else {
            return;
        };
        if !self.order(stream, &[(Resource::Buffer(held.id), true)]) {
            return;
        }
        let at = at % (held.length + 1);
        let count = count.min(held.length - at);
        let of_rank =
            |rank: usize| elements(held.element, count, pattern.wrapping_add(rank as u32 * 97));
        let bytes: Vec<Vec<u8>> = (0..self.world).map(of_rank).collect();
        let size = held.element.size();
        let copies = self.memory.bytes.entry(held.id).or_default();
        for (copy, bytes) in copies.iter_mut().zip(&bytes) {
            copy[at * size..][..bytes.len()].copy_from_slice(bytes);
        }
        self.actions.push(Action::Write {
            stream,
            buffer: held.id,
            at,
            bytes,
        });
    }

    fn read(&mut self, stream: Id, held: Held, at: usize, count: usize) {
        if !self.order(stream, &[(Resource::Buffer(held.id), false)]) {
            return;
        }
        let of_rank = |rank: usize| {
            let bytes = self.memory.read(held.id, rank, held.element, at, count);
            (held.ranks & 1 << rank != 0).then(|| bytes.to_vec())
        };
        let bytes = (0..self.world).map(of_rank).collect();
        self.actions.push(Action::Read {
            stream,
            buffer: held.id,
            at,
            bytes,
        });
    }

    /// Reads every buffer, also those of which not all ranks have handles.
    pub fn read_all(&mut self, fresh: &mut dyn FnMut() -> Id) {
        self.received(|_| true);
        let held: Vec<Held> = self.buffers.iter().chain(&self.halves).copied().collect();
        if held.is_empty() {
            return;
        }
        let stream = self.stream(0, fresh);
        for held in held {
            self.read(stream, held, 0, held.length);
        }
    }

    fn disagree(&mut self, disagreement: Disagreement, rank: usize) {
        let rank = rank % self.world;
        let alone = matches!(disagreement, Disagreement::Overflow | Disagreement::Payload);
        let mut buffers = None;
        if self.world == 1 && !alone {
            return;
        }
        if disagreement == Disagreement::Free {
            let &[one, two, ..] = &self.buffers[..] else {
                return;
            };
            buffers = Some((one.id, two.id));
            // Each rank has given up the one that it named.
            self.give_up(one.id, self.all() & !(1 << rank));
            self.give_up(two.id, 1 << rank);
        }
        self.actions.push(Action::Disagree {
            disagreement,
            rank,
            buffers,
        });
    }
}

/// Returns the groups of a split, each in the order of its members' numbers.
fn divided(world: usize, colors: &[u8; RANKS], keys: &[u8; RANKS]) -> Vec<Vec<usize>> {
    let group = |color: u8| {
        let mut members: Vec<usize> = (0..world).filter(|&rank| colors[rank] == color).collect();
        members.sort_by_key(|&rank| (keys[rank], rank));
        members
    };
    let groups = (0..3).map(group);
    groups.filter(|members| !members.is_empty()).collect()
}
