//! Runs a plan as one rank.

use crate::buffer::{self, Buffer, with_buffer};
use crate::call::{Call, Id};
use crate::counts::Counts;
use crate::ending;
use crate::enqueue::enqueue;
use crate::place::STREAMS;
use crate::plan::{Action, PhasePlan, Side};
use crate::program::RANKS;
use crate::reduce::same;
use crate::refused;
use crate::scenes;
use crate::world::Meeting;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use symmem::{Algorithm, Communicator, Error, ErrorKind, Graph, Group, Stream};

/// Deadline of every wait, and of every step of a collective host call. None of them takes a second on an idle machine.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// Counts the actions of all ranks: a program that makes no progress hangs.
pub static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// What went wrong, in words.
pub type Failure = String;

/// What a rank has of all communicators.
#[derive(Default)]
pub struct Held {
    /// Whether the device has a copy engine.
    pub copy_engine: bool,
    /// By communicator; `None` once it has ended.
    pub communicators: Vec<Option<Communicator>>,
    pub streams: BTreeMap<Id, Stream>,
    pub buffers: BTreeMap<Id, Buffer>,
    pub graphs: BTreeMap<Id, Graph>,
    /// `None` where a rank joined no group.
    pub groups: BTreeMap<Id, Option<Group>>,
    /// The communicator that each belongs to.
    pub owners: BTreeMap<Id, usize>,
}

impl Held {
    /// Whether the device can do an algorithm of its operation.
    pub fn can(&self, algorithm: Algorithm) -> bool {
        self.copy_engine || algorithm != Algorithm::CopyEngine
    }

    /// Returns a buffer of the plan.
    pub fn buffer(&self, id: Id) -> &Buffer {
        &self.buffers[&id]
    }

    /// Returns a communicator that has not ended.
    pub fn communicator(&self, on: usize) -> &Communicator {
        let communicator = self.communicators[on].as_ref();
        communicator.expect("a plan uses a communicator before its end")
    }
}

/// One rank of a program.
pub struct Rank<'a> {
    pub rank: usize,
    pub world: usize,
    pub held: Held,
    pub counts: &'a Counts,
    pub meeting: &'a Meeting,
    /// Opens this rank's communicator of a job with this number; the flag says whether calls are compared.
    pub open: &'a (dyn Fn(usize, bool) -> symmem::Result<Communicator> + Sync),
    /// Communicators opened so far.
    pub opened: usize,
    /// Meetings so far.
    pub met: Cell<usize>,
}

/// Turns an error that no step of the program explains into a failure.
pub fn unexpected(what: impl std::fmt::Display) -> impl FnOnce(Error) -> Failure {
    move |error| format!("{what}: {error:?}")
}

impl Rank<'_> {
    /// Waits until all ranks have come, without the library.
    pub fn meet(&self) -> Result<(), Failure> {
        self.met.set(self.met.get() + 1);
        self.meeting.meet(self.met.get() * self.world)
    }

    /// Runs all phases.
    pub fn run(&mut self, phases: &[PhasePlan], communicators: usize) -> Result<(), Failure> {
        self.held.communicators.resize_with(communicators, || None);
        for (number, phase) in phases.iter().enumerate() {
            let within = |failure| format!("phase {number}: {failure}");
            self.phase(phase).map_err(within)?;
        }
        for on in 0..communicators {
            if let Some(communicator) = self.held.communicators[on].take() {
                communicator
                    .finalize()
                    .map_err(unexpected("finalize of a rebuilt communicator"))?;
            }
        }
        Ok(())
    }

    fn phase(&mut self, phase: &PhasePlan) -> Result<(), Failure> {
        for on in 0..self.held.communicators.len() {
            if self.held.communicators[on].is_none() {
                let opened = (self.open)(self.opened, phase.checked[on]);
                self.opened += 1;
                let opened = opened.map_err(unexpected("open"))?;
                self.share_device(&opened)?;
                self.held.communicators[on] = Some(opened);
            }
        }
        for (number, (on, action)) in phase.actions.iter().enumerate() {
            PROGRESS.fetch_add(1, Ordering::Relaxed);
            let within = |failure| format!("action {number}, {}: {failure}", describe(action));
            self.act(*on, action).map_err(within)?;
        }
        for on in 0..self.held.communicators.len() {
            PROGRESS.fetch_add(1, Ordering::Relaxed);
            let ending = phase.endings[on];
            let within = |failure| format!("end of communicator {on}, {ending:?}: {failure}");
            ending::end(self, on, ending, phase.order, phase.checked[on]).map_err(within)?;
        }
        Ok(())
    }

    /// Lets a collective of each stream of all communicators be under way at once. Without this call, two grids that
    /// wait for peers need not have room together.
    pub fn share_device(&self, communicator: &Communicator) -> Result<(), Failure> {
        let at_once = STREAMS * self.held.communicators.len();
        let allowed = communicator.allow_concurrent_collectives(at_once as u32);
        allowed.map_err(unexpected("allow_concurrent_collectives"))
    }

    fn own<T>(
        &mut self,
        on: usize,
        id: Id,
        value: T,
        place: fn(&mut Held) -> &mut BTreeMap<Id, T>,
    ) {
        self.held.owners.insert(id, on);
        place(&mut self.held).insert(id, value);
    }

    fn act(&mut self, on: usize, action: &Action) -> Result<(), Failure> {
        let rank = self.rank;
        self.counts.action(action);
        match action {
            Action::Allocate {
                id,
                element,
                length,
            } => {
                let communicator = self.held.communicator(on);
                let made = buffer::allocate(communicator, *element, *length);
                self.own(on, *id, made.map_err(unexpected("allocate"))?, |held| {
                    &mut held.buffers
                });
            }
            Action::Drop { id, ranks } => {
                if ranks & 1 << rank != 0 {
                    self.held.buffers.remove(id);
                }
            }
            Action::Free { id, used } => {
                let buffer = self.held.buffers.remove(id);
                let freed = buffer.expect("a plan frees what there is").free();
                match (used, freed) {
                    // Not every recorded call uses its buffers on every rank.
                    (true, Err(error)) => {
                        let kinds = [ErrorKind::InvalidArgument, ErrorKind::PeerFailed];
                        self.expect(Err(error), &kinds, "free of what a graph uses")?;
                    }
                    (_, freed) => freed.map_err(unexpected("free"))?,
                }
            }
            Action::Stream { id } => {
                let made = self.held.communicator(on).stream();
                self.own(on, *id, made.map_err(unexpected("stream"))?, |held| {
                    &mut held.streams
                });
            }
            Action::DropStream { id } => drop(self.held.streams.remove(id)),
            Action::Enqueue { stream, call } => {
                let stream = &self.held.streams[stream];
                self.enqueue(call, stream)?;
            }
            Action::Capture { stream, id, calls } => {
                let mut taken = self.held.streams.remove(stream).expect("a plan's stream");
                let made = taken.capture(|queue| {
                    let mut calls = calls.iter();
                    calls.try_for_each(|call| enqueue(call, rank, queue, &self.held, DEADLINE))
                });
                calls.iter().for_each(|call| self.counts.call(call));
                self.held.streams.insert(*stream, taken);
                self.own(on, *id, made.map_err(unexpected("capture"))?, |held| {
                    &mut held.graphs
                });
            }
            Action::DropGraph { id } => drop(self.held.graphs.remove(id)),
            Action::Write {
                stream,
                buffer,
                at,
                bytes,
            } => {
                let written =
                    self.held
                        .buffer(*buffer)
                        .write(&self.held.streams[stream], *at, &bytes[rank]);
                written.map_err(unexpected("write"))?;
            }
            Action::Read {
                stream,
                buffer,
                at,
                bytes,
            } => {
                if let Some(expected) = &bytes[rank] {
                    self.read(*stream, *buffer, *at, expected)?;
                }
            }
            Action::Synchronize { stream } => {
                let stream = &self.held.streams[stream];
                stream.is_idle().map_err(unexpected("is_idle"))?;
                stream.synchronize().map_err(unexpected("synchronize"))?;
                let idle = stream.is_idle().map_err(unexpected("is_idle"))?;
                if !idle {
                    return Err("a stream is not idle behind its synchronization".into());
                }
            }
            Action::Ordered { stream } => {
                let waited = self.held.streams[stream].synchronize();
                waited.map_err(unexpected("synchronize"))?;
                let met = self.held.communicator(on).host_barrier();
                met.map_err(unexpected("host_barrier"))?;
            }
            Action::HostBarrier => {
                let met = self.held.communicator(on).host_barrier();
                met.map_err(unexpected("host_barrier"))?;
            }
            Action::HostAllGather { bytes } => self.host_all_gather(on, *bytes)?,
            Action::Split {
                id,
                colors,
                keys,
                members,
            } => self.split(on, *id, (colors, keys), members)?,
            Action::DropGroup { id } => drop(self.held.groups.remove(id)),
            Action::Threads {
                first,
                second,
                buffer,
                graph,
            } => self.threads(first, second, (*buffer, *graph))?,
            Action::Refused {
                refusal,
                stream,
                buffer,
                other,
            } => {
                let other = other.map(|other| self.held.buffer(other));
                let stream = &self.held.streams[stream];
                let outcomes = refused::refused(*refusal, stream, self.held.buffer(*buffer), other);
                for (call, outcome) in outcomes.map_err(unexpected("the arguments"))? {
                    self.expect(outcome, &[ErrorKind::InvalidArgument], call)?;
                }
            }
            Action::Disagree {
                disagreement,
                rank,
                buffers,
            } => refused::disagree(self, on, *disagreement, *rank, *buffers)?,
            Action::Scene {
                scene,
                stream,
                dropped,
            } => scenes::play(self, on, *scene, *stream, *dropped)?,
        }
        Ok(())
    }

    fn enqueue(&self, call: &Call, stream: &Stream) -> Result<(), Failure> {
        self.counts.call(call);
        let enqueued = enqueue(call, self.rank, stream, &self.held, DEADLINE);
        enqueued.map_err(unexpected("the call"))
    }

    /// Counts an error of one of these kinds; anything else is a failure.
    pub fn expect(
        &self,
        outcome: symmem::Result<()>,
        kinds: &[ErrorKind],
        what: &str,
    ) -> Result<(), Failure> {
        match outcome {
            Err(error) if kinds.contains(&error.kind()) => {
                self.counts.error(error.kind());
                Ok(())
            }
            Err(error) => Err(format!(
                "{what}: expected one of {kinds:?}, got {:?}: {error:?}",
                error.kind()
            )),
            Ok(()) => Err(format!("{what}: expected one of {kinds:?}, got no error")),
        }
    }

    fn read(&self, stream: Id, buffer: Id, at: usize, expected: &[u8]) -> Result<(), Failure> {
        let buffer = self.held.buffer(buffer);
        compare(
            self.counts,
            &self.held.streams[&stream],
            buffer,
            at,
            expected,
        )
    }

    fn host_all_gather(&self, on: usize, bytes: usize) -> Result<(), Failure> {
        let of_rank = |rank: usize| vec![rank as u8; bytes + rank];
        let all = self
            .held
            .communicator(on)
            .host_all_gather(&of_rank(self.rank));
        let expected: Vec<Vec<u8>> = (0..self.world).map(of_rank).collect();
        match all.map_err(unexpected("host_all_gather"))? == expected {
            true => Ok(()),
            false => Err("host_all_gather returned other bytes".into()),
        }
    }

    fn split(
        &mut self,
        on: usize,
        id: Id,
        (colors, keys): (&[u8; RANKS], &[u8; RANKS]),
        members: &[Vec<usize>],
    ) -> Result<(), Failure> {
        let rank = self.rank;
        let color = Some(colors[rank]).filter(|&color| color < 3);
        let communicator = self.held.communicator(on);
        let made = communicator.split(color.map(u32::from), u32::from(keys[rank]));
        let group = made.map_err(unexpected("split"))?;
        let expected = members.iter().find(|members| members.contains(&rank));
        if group.as_ref().map(Group::members) != expected.map(Vec::as_slice) {
            return Err(format!("the group is {group:?}, not {expected:?}"));
        }
        self.own(on, id, group, |held| &mut held.groups);
        Ok(())
    }

    /// Enqueues on two streams from two threads, while this one drops a buffer and a graph.
    fn threads(
        &mut self,
        first: &Side,
        second: &Side,
        (buffer, graph): (Option<Id>, Option<Id>),
    ) -> Result<(), Failure> {
        let buffer = buffer.and_then(|id| self.held.buffers.remove(&id));
        let graph = graph.and_then(|id| self.held.graphs.remove(&id));
        let streams = [first, second].map(|side| {
            side.calls.iter().for_each(|call| self.counts.call(call));
            let stream = self.held.streams.remove(&side.stream);
            (stream.expect("a plan's stream"), side)
        });
        let here = Beside {
            rank: self.rank,
            counts: self.counts,
            held: &self.held,
        };
        let ended = std::thread::scope(|scope| {
            let sides = streams.map(|(stream, side)| {
                scope.spawn(move || {
                    let done = here.side(&stream, side);
                    (stream, done)
                })
            });
            drop(buffer);
            drop(graph);
            sides.map(std::thread::ScopedJoinHandle::join)
        });
        let mut outcome = Ok(());
        for (ended, side) in ended.into_iter().zip([first, second]) {
            let (stream, done) = ended.map_err(|_| "a thread panicked".to_owned())?;
            self.held.streams.insert(side.stream, stream);
            outcome = outcome.and(done);
        }
        outcome
    }
}

/// What a second thread of a rank needs.
#[derive(Clone, Copy)]
struct Beside<'a> {
    rank: usize,
    counts: &'a Counts,
    held: &'a Held,
}

impl Beside<'_> {
    fn side(self, stream: &Stream, side: &Side) -> Result<(), Failure> {
        let mut calls = side.calls.iter();
        calls
            .try_for_each(|call| enqueue(call, self.rank, stream, self.held, DEADLINE))
            .and_then(|()| stream.synchronize())
            .map_err(unexpected("a thread's calls"))?;
        match &side.read {
            Some((buffer, bytes)) => {
                // More than once, beside the other thread's reads.
                let buffer = self.held.buffer(*buffer);
                let expected = &bytes[self.rank];
                (0..4).try_for_each(|_| compare(self.counts, stream, buffer, 0, expected))
            }
            None => Ok(()),
        }
    }
}

/// Reads a buffer and compares it with the model.
fn compare(
    counts: &Counts,
    stream: &Stream,
    buffer: &Buffer,
    at: usize,
    expected: &[u8],
) -> Result<(), Failure> {
    let seen = buffer.read(stream, at, expected.len());
    let seen = seen.map_err(unexpected("read"))?;
    counts.checked(expected.len());
    let size = buffer.element().size();
    match same(buffer.element(), expected, &seen) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "wrong bytes: element {} of {} is {:?}, not {:?}",
            at + wrong,
            with_buffer!(buffer, buffer => buffer.len()),
            &seen[wrong * size..(wrong + 1) * size],
            &expected[wrong * size..(wrong + 1) * size],
        )),
    }
}

/// Returns an action without its bytes.
fn describe(action: &Action) -> String {
    match action {
        Action::Write {
            stream,
            buffer,
            at,
            bytes,
        } => format!(
            "write of {} bytes at {at} of {buffer} on {stream}",
            bytes[0].len()
        ),
        Action::Read {
            stream, buffer, at, ..
        } => format!("read at {at} of {buffer} on {stream}"),
        other => format!("{other:?}"),
    }
}
