//! Turns a program into a plan: every number resolved, every byte that a read must return known, and a wait wherever two
//! streams would touch the same memory or channel.

use crate::call::{Call, Id, Memory, Range};
use crate::program::*;
use crate::scenes;
use crate::usage::{Resource, Usage};
use std::collections::BTreeSet;
use symmem::Algorithm;

/// What a rank does.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "as in the program, with everything resolved")]
pub enum Action {
    Allocate {
        id: Id,
        element: Element,
        length: usize,
    },
    Drop {
        id: Id,
        ranks: u8,
    },
    /// `used`: by a live graph, so that the call may be refused.
    Free {
        id: Id,
        used: bool,
    },
    Stream {
        id: Id,
    },
    DropStream {
        id: Id,
    },
    Enqueue {
        stream: Id,
        call: Call,
    },
    Capture {
        stream: Id,
        id: Id,
        calls: Vec<Call>,
    },
    DropGraph {
        id: Id,
    },
    Write {
        stream: Id,
        buffer: Id,
        at: usize,
        /// By rank.
        bytes: Vec<Vec<u8>>,
    },
    Read {
        stream: Id,
        buffer: Id,
        at: usize,
        /// By rank; `None` where a rank has no handle.
        bytes: Vec<Option<Vec<u8>>>,
    },
    Synchronize {
        stream: Id,
    },
    /// Each rank waits for its stream, then for all ranks.
    Ordered {
        stream: Id,
    },
    HostBarrier,
    HostAllGather {
        bytes: usize,
    },
    Split {
        id: Id,
        colors: [u8; RANKS],
        keys: [u8; RANKS],
        members: Vec<Vec<usize>>,
    },
    DropGroup {
        id: Id,
    },
    Threads {
        first: Side,
        second: Side,
        buffer: Option<Id>,
        graph: Option<Id>,
    },
    Refused {
        refusal: Refusal,
        stream: Id,
        buffer: Id,
        /// Of the other communicator.
        other: Option<Id>,
    },
    Disagree {
        disagreement: Disagreement,
        rank: usize,
        buffers: Option<(Id, Id)>,
    },
    Scene {
        scene: Scene,
        stream: Id,
        /// A buffer of the next communicator.
        dropped: Option<Id>,
    },
}

/// What one of two threads does.
#[derive(Clone, Debug)]
pub struct Side {
    /// On which stream.
    pub stream: Id,
    /// What it enqueues.
    pub calls: Vec<Call>,
    /// What it reads then: a whole buffer, and its bytes by rank.
    pub read: Option<(Id, Vec<Vec<u8>>)>,
}

/// What all ranks do in a phase, in order; the first number is the communicator.
pub struct PhasePlan {
    /// Whether calls of each communicator are compared.
    pub checked: Vec<bool>,
    /// The actions.
    pub actions: Vec<(usize, Action)>,
    /// How each communicator ends.
    pub endings: Vec<Ending>,
    /// Decides the order of drops.
    pub order: u64,
}

/// Plans a program.
pub fn plan(program: &Program) -> Vec<PhasePlan> {
    let mut next = 0;
    // A rebuilt communicator keeps its options.
    let mut rebuilt: Vec<Option<bool>> = vec![None; program.communicators];
    let mut phases = Vec::new();
    for phase in &program.phases {
        let checked: Vec<bool> = rebuilt
            .iter()
            .map(|before| before.unwrap_or(phase.checked))
            .collect();
        let planned = of_phase(program, phase, checked, &mut next);
        for (on, ending) in planned.endings.iter().enumerate() {
            let good = matches!(ending, Ending::Finalize | Ending::Drop);
            rebuilt[on] = (!good).then_some(planned.checked[on]);
        }
        phases.push(planned);
    }
    phases
}

fn of_phase(program: &Program, phase: &Phase, checked: Vec<bool>, next: &mut Id) -> PhasePlan {
    let places = checked.iter();
    let mut places: Vec<Place> = places
        .map(|&checked| Place::new(program.world, checked))
        .collect();
    let mut actions = Vec::new();
    let fresh = &mut || {
        *next += 1;
        *next
    };
    for step in &phase.steps {
        let on = step.on % program.communicators;
        if let Act::Scene { scene, stream } = step.act {
            let next = (on + 1) % program.communicators;
            let dropped = match scene {
                Scene::Blocked { dropped } => places[next].dropped(dropped),
                _ => None,
            };
            places[on].scene(scene, stream, dropped, fresh);
            actions.extend(places[on].actions.drain(..).map(|action| (on, action)));
            continue;
        }
        let other = (program.communicators > 1).then(|| places[1 - on].buffers.first());
        let other = other.flatten().map(|buffer| buffer.id);
        let place = &mut places[on];
        place.act(&step.act, other, fresh);
        actions.extend(place.actions.drain(..).map(|action| (on, action)));
    }
    for (on, place) in places.iter_mut().enumerate() {
        place.read_all(fresh);
        actions.extend(place.actions.drain(..).map(|action| (on, action)));
    }
    let endings = phase.endings.iter().copied();
    let endings = endings.chain(std::iter::repeat(Ending::Finalize));
    let endings = endings.zip(&checked);
    let endings = endings.map(|(ending, &checked)| possible(ending, program.world, checked));
    PhasePlan {
        actions,
        endings: endings.collect(),
        order: phase.order,
        checked,
    }
}

/// Returns the ending, or another one where it cannot be had.
fn possible(ending: Ending, world: usize, checked: bool) -> Ending {
    match ending {
        Ending::Missing { .. } | Ending::Size { .. } | Ending::ReceiveDropped { .. }
            if world == 1 =>
        {
            Ending::Drop
        }
        // Where calls are compared, the host waits for a rank that does not come, and for the receiver.
        Ending::ReceiveDropped { rank, .. } | Ending::Missing { rank, .. } if checked => {
            Ending::Abort { rank, busy: false }
        }
        other => other,
    }
}

/// A buffer of which handles are left.
#[derive(Clone, Copy)]
struct Held {
    id: Id,
    element: Element,
    length: usize,
    /// Bit `r`: rank `r` has its handle.
    ranks: u8,
}

/// A group of each rank that has one.
struct Division {
    id: Id,
    members: Vec<Vec<usize>>,
}

/// What a communicator has at some point of a program.
struct Place {
    world: usize,
    checked: bool,
    buffers: Vec<Held>,
    /// Buffers that some rank has dropped and another has not.
    halves: Vec<Held>,
    streams: Vec<Id>,
    graphs: Vec<Id>,
    groups: Vec<Division>,
    memory: Memory,
    usage: Usage,
    actions: Vec<Action>,
}

fn pick<T: Copy>(list: &[T], number: usize) -> Option<T> {
    (!list.is_empty()).then(|| list[number % list.len()])
}

impl Place {
    fn new(world: usize, checked: bool) -> Self {
        Self {
            world,
            checked,
            buffers: Vec::new(),
            halves: Vec::new(),
            streams: Vec::new(),
            graphs: Vec::new(),
            groups: Vec::new(),
            memory: Memory::default(),
            usage: Usage::default(),
            actions: Vec::new(),
        }
    }

    fn all(&self) -> u8 {
        (1 << self.world) - 1
    }

    /// Returns a stream, which it makes if there is none.
    fn stream(&mut self, number: usize, fresh: &mut dyn FnMut() -> Id) -> Id {
        if let Some(stream) = pick(&self.streams, number) {
            return stream;
        }
        let id = fresh();
        self.streams.push(id);
        self.actions.push(Action::Stream { id });
        id
    }

    /// Adds waits so that `stream` may use `resources`; returns false if a stream that is gone may use them still.
    fn order(&mut self, stream: Id, resources: &[(Resource, bool)]) -> bool {
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

    fn act(&mut self, act: &Act, other: Option<Id>, fresh: &mut dyn FnMut() -> Id) {
        match *act {
            Act::Allocate { element, length } => {
                let id = fresh();
                self.add(id, element, length);
                self.actions.push(Action::Allocate {
                    id,
                    element,
                    length,
                });
            }
            Act::Drop { buffer, ranks } => self.drop_buffer(buffer, ranks),
            Act::Free { buffer } => {
                if let Some(held) = pick(&self.buffers, buffer) {
                    self.buffers.retain(|other| other.id != held.id);
                    let used = self.used_by_graphs().contains(&held.id);
                    self.actions.push(Action::Free { id: held.id, used });
                }
            }
            Act::Stream if self.streams.len() < 4 => {
                let id = fresh();
                self.streams.push(id);
                self.actions.push(Action::Stream { id });
            }
            Act::Stream => {}
            Act::DropStream { stream } => {
                if let Some(id) = pick(&self.streams, stream) {
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

    /// Gives up a buffer that a scene drops.
    fn dropped(&mut self, buffer: usize) -> Option<Id> {
        let held = pick(&self.buffers, buffer)?;
        self.give_up(held.id, self.all());
        Some(held.id)
    }

    fn scene(
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

    fn give_up(&mut self, id: Id, ranks: u8) {
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
        let mut used = BTreeSet::new();
        let mut left = self.graphs.clone();
        while let Some(graph) = left.pop() {
            for call in &self.memory.graphs[&graph] {
                left.extend(call.graph);
                used.extend([call.from.buffer, call.to.buffer]);
            }
        }
        used
    }

    fn moves(&self, call: &Call) -> bool {
        !matches!(call.kind, Kind::Barrier | Kind::GroupBarrier | Kind::Launch)
    }

    /// Returns what a call uses, and whether it changes it.
    fn resources(&self, call: &Call) -> Vec<(Resource, bool)> {
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
        match call.kind {
            Kind::Local => {}
            kind if kind.is_collective() => {
                used.push((Resource::Channel(call.group, call.channel % 4), true));
            }
            _ => used.push((Resource::Barrier(call.channel), true)),
        }
        used
    }

    /// Resolves an operation with what there is; `None` if that does not allow it.
    fn resolve(&self, operation: &Operation) -> Option<Call> {
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
                call.graph = Some(pick(&self.graphs, operation.number)?);
                return Some(call);
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
        call.in_place = operation.in_place && from.id == to.id && can_be_in_place(kind, largest);
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
    fn read_all(&mut self, fresh: &mut dyn FnMut() -> Id) {
        let held: Vec<Held> = self.buffers.iter().chain(&self.halves).copied().collect();
        if held.is_empty() {
            return;
        }
        let stream = self.stream(0, fresh);
        for held in held {
            self.read(stream, held, 0, held.length);
        }
    }

    fn threads(
        &mut self,
        first: &[Operation],
        second: &[Operation],
        dropped: usize,
        fresh: &mut dyn FnMut() -> Id,
    ) {
        // The ranks would compare the calls of both threads in different orders.
        if self.checked {
            return;
        }
        let one = self.stream(0, fresh);
        if self.streams.len() < 2 {
            self.act(&Act::Stream, None, fresh);
        }
        let two = self.streams[1];
        let mut sides = [one, two].map(|stream| Side {
            stream,
            calls: Vec::new(),
            read: None,
        });
        let mut used: Vec<(Resource, bool)> = Vec::new();
        for (side, operations) in sides.iter_mut().zip([first, second]) {
            let mut own = Vec::new();
            let resolved = operations.iter().filter_map(|one| self.resolve(one));
            for call in resolved.collect::<Vec<_>>() {
                let resources = self.resources(&call);
                let apart = !Usage::conflict(&used, &resources);
                if apart && self.order(side.stream, &resources) {
                    self.memory.apply(&call);
                    own.extend(resources);
                    side.calls.push(call);
                }
            }
            used.extend(own);
            let moves = side.calls.iter().rfind(|call| self.moves(call));
            let read = moves.map(|call| call.to.buffer);
            side.read = read.map(|id| (id, self.memory.bytes[&id].clone()));
        }
        let buffer = pick(&self.buffers, dropped).map(|held| held.id);
        let buffer =
            buffer.filter(|&id| !used.iter().any(|(used, _)| *used == Resource::Buffer(id)));
        let graph = pick(&self.graphs, dropped);
        let graph = graph.filter(|&id| !used.iter().any(|(used, _)| *used == Resource::Graph(id)));
        if let Some(id) = buffer {
            self.give_up(id, self.all());
        }
        self.graphs.retain(|&other| Some(other) != graph);
        let [first, second] = sides;
        self.actions.push(Action::Threads {
            first,
            second,
            buffer,
            graph,
        });
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

fn can_be_in_place(kind: Kind, _members: usize) -> bool {
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
            Element::F32 => bytes.extend(small(at).to_le_bytes()),
            Element::Bf16 => bytes.extend(half::bf16::from_f32(small(at)).to_le_bytes()),
        }
    }
    bytes
}
