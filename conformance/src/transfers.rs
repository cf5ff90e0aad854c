//! Checks of transfers between ranks: the data arrives, nothing else changes, and a signal or barrier
//! comes after its data.
//!
//! Destinations are filled with random poison, and sources with other random elements. Every rank can
//! compute both from their tags, so a rank knows every byte that its destination must hold after a
//! round: the sources' elements in their places, poison everywhere else.
//!
//! ```text
//! destination   [set][lane]  guard | offset | length elements | guard     one lane per sender
//! source        [set]        guard | offset | length elements | guard
//! ```

use super::buffers::{Memory, Part, Side};
use super::context::{Context, STREAMS};
use super::findings::{Fault, Findings};
use super::length::OFFSETS;
use super::pattern::{Tag, difference, elements};
use super::transfer_case::{Operation, Placement, TransferCase};
use std::time::Duration;
use symmem::{CHANNELS, Error, Queue, Result, Stream};

/// Guard bytes on each side of the data, and the alignment that offsets are relative to.
const GUARD_BYTES: usize = 256;

/// Delay of a rank that `stagger` delays.
const LATE: Duration = Duration::from_micros(500);

/// Independent sets of data for the cases with several streams or channels.
const SETS: usize = STREAMS;

/// Positions in the buffers of a case, in elements.
#[derive(Clone, Copy)]
struct Layout {
    sets: usize,
    lanes: usize,
    /// Elements of a lane.
    stride: usize,
    length: usize,
    /// First element of the data in a lane.
    destination: usize,
    source: usize,
}

impl Layout {
    fn of(case: &TransferCase, world: usize) -> Self {
        let size = case.dtype.size();
        let guard = GUARD_BYTES / size;
        let length = case.length.elements(size);
        let furthest = OFFSETS[OFFSETS.len() - 1];
        let sets = match case.operation {
            Operation::Streams | Operation::Channels => SETS,
            _ => 1,
        };
        Self {
            sets,
            lanes: case.traffic.givers(0, world).len(),
            stride: (guard + furthest + length + guard).next_multiple_of(guard),
            length,
            destination: guard + case.destination_offset,
            source: guard + case.source_offset,
        }
    }

    fn arriving(self, set: usize, lane: usize) -> Part {
        Part {
            side: Side::Destination,
            first: (set * self.lanes + lane) * self.stride + self.destination,
            length: self.length,
        }
    }

    fn leaving(self, set: usize) -> Part {
        Part {
            side: Side::Source,
            first: set * self.stride + self.source,
            length: self.length,
        }
    }
}

/// Returns the number of elements that a case needs in its destination and in its source.
pub fn sizes(case: &TransferCase, world: usize) -> (usize, usize) {
    let layout = Layout::of(case, world);
    let sources = layout.sets * layout.stride;
    (sources * layout.lanes, sources)
}

/// One rank in a transfer case.
struct Transfer<'a> {
    context: &'a Context<'a>,
    memory: &'a dyn Memory,
    /// Bytes of an element.
    size: usize,
    layout: Layout,
    rank: usize,
    targets: Vec<usize>,
    givers: Vec<usize>,
    channel: u32,
    findings: Findings,
}

/// Runs a case of [`Operation::TRANSFERS`].
pub fn check(context: &Context<'_>, memory: &dyn Memory) -> Result<Findings> {
    let (rank, world) = (
        context.communicator.rank(),
        context.communicator.world_size(),
    );
    let case = context.case;
    let mut transfer = Transfer {
        context,
        memory,
        size: case.dtype.size(),
        layout: Layout::of(case, world),
        rank,
        targets: case.traffic.targets(rank, world),
        givers: case.traffic.givers(rank, world),
        channel: (case.seed % u64::from(CHANNELS - SETS as u32)) as u32,
        findings: Findings::new(),
    };
    transfer.poison()?;
    match case.operation {
        Operation::Get => transfer.get()?,
        Operation::PutSignal => transfer.signals(1)?,
        Operation::Barrier => transfer.barriers()?,
        Operation::Replay => transfer.replay()?,
        Operation::Streams => transfer.signals(STREAMS)?,
        Operation::Channels => transfer.signals(1)?,
        _ => transfer.put()?,
    }
    Ok(transfer.findings)
}

impl Transfer<'_> {
    fn stream(&self) -> &Stream {
        &self.context.streams[0]
    }

    fn tag(&self, rank: usize, round: Option<u32>) -> Tag {
        Tag {
            seed: self.context.case.seed,
            rank,
            round,
        }
    }

    fn poisoned(&self, rank: usize) -> Vec<u8> {
        let layout = self.layout;
        let length = layout.sets * layout.lanes * layout.stride;
        elements(self.tag(rank, None), length * self.size)
    }

    fn sources(&self, rank: usize, round: u32) -> Vec<u8> {
        let length = self.layout.sets * self.layout.stride;
        elements(self.tag(rank, Some(round)), length * self.size)
    }

    fn poison(&self) -> Result<()> {
        let bytes = self.poisoned(self.rank);
        (self.memory).write(self.stream(), Side::Destination, 0, &bytes)
    }

    fn fill(&self, round: u32) -> Result<()> {
        let bytes = self.sources(self.rank, round);
        (self.memory).write(self.stream(), Side::Source, 0, &bytes)
    }

    /// The lane in which `target` expects this rank's data.
    fn lane_at(&self, target: usize) -> usize {
        let world = self.context.communicator.world_size();
        let givers = self.context.case.traffic.givers(target, world);
        givers
            .iter()
            .position(|&giver| giver == self.rank)
            .unwrap_or(0)
    }

    fn put_all(&self, queue: &Queue, set: usize, signal: Option<u32>) -> Result<()> {
        let options = self.context.case.engine.options();
        let source = self.layout.leaving(set);
        let signal = signal.filter(|_| !self.context.planted(Fault::MissingSignal));
        for &target in &self.targets {
            let destination = self.layout.arriving(set, self.lane_at(target));
            (self.memory).put(queue, target, destination, source, signal, &options)?;
        }
        Ok(())
    }

    fn wait_all(&self, queue: &Queue, channel: u32) -> Result<()> {
        let deadline = self.context.deadline;
        self.givers
            .iter()
            .try_for_each(|&giver| queue.wait_signal_within(giver, channel, deadline))
    }

    /// Delays every other rank, so that the rest already waits when a signal arrives and reads the data
    /// at once. Ranks in lockstep would hide a signal that arrives before its data.
    fn stagger(&self, round: u32) {
        if (self.rank + round as usize) % 2 == 1 {
            std::thread::sleep(LATE);
        }
    }

    /// Has twice the deadline of other waits: a rank that waits in vain for a signal is the one to say so, and not a rank
    /// that waits for it in the barrier behind, from nearly the same moment.
    fn device_barrier(&self, queue: &Queue) -> Result<()> {
        let channel = self.channel % symmem::BARRIER_CHANNELS;
        queue.barrier_within(channel, 2 * self.context.deadline)
    }

    fn synchronize(&self) -> Result<()> {
        self.stream().synchronize_within(self.context.deadline)
    }

    fn put(&mut self) -> Result<()> {
        self.fill(0)?;
        self.context.communicator.host_barrier()?;
        self.put_all(self.stream(), 0, None)?;
        self.synchronize()?;
        self.context.communicator.host_barrier()?;
        let givers = self.givers.clone();
        self.compare("after a host barrier", &givers, 0)
    }

    fn get(&mut self) -> Result<()> {
        self.fill(0)?;
        self.context.communicator.host_barrier()?;
        let options = self.context.case.engine.options();
        let source = self.layout.leaving(0);
        for (lane, &target) in self.targets.iter().enumerate() {
            let destination = self.layout.arriving(0, lane);
            (self.memory).get(self.stream(), target, destination, source, &options)?;
        }
        self.synchronize()?;
        let targets = self.targets.clone();
        self.compare("after a get", &targets, 0)
    }

    fn barriers(&mut self) -> Result<()> {
        let givers = self.givers.clone();
        for round in 0..2 {
            self.fill(round)?;
            if round == 0 {
                // Every rank must have written its poison before any data arrives.
                self.device_barrier(self.stream())?;
            }
            self.stagger(round);
            if !self.context.planted(Fault::Late) {
                self.put_all(self.stream(), 0, None)?;
            }
            self.device_barrier(self.stream())?;
            self.compare("after a barrier", &givers, round)?;
            self.device_barrier(self.stream())?;
            if self.context.planted(Fault::Late) {
                self.put_all(self.stream(), 0, None)?;
            }
        }
        self.synchronize()
    }

    /// Checks puts with signals: each set of data has its own channel, and the sets are distributed over `streams`
    /// streams.
    fn signals(&mut self, streams: usize) -> Result<()> {
        let streams = &self.context.streams[..streams];
        let givers = self.givers.clone();
        for round in 0..2 {
            self.fill(round)?;
            if round == 0 {
                self.device_barrier(self.stream())?;
                self.synchronize()?;
            }
            let sets = self.layout.sets;
            self.stagger(round);
            for set in 0..sets {
                let channel = self.channel + set as u32;
                self.put_all(&streams[set % streams.len()], set, Some(channel))?;
            }
            for set in (0..sets).rev() {
                self.wait_all(&streams[set % streams.len()], self.channel + set as u32)?;
            }
            for stream in &streams[1..] {
                stream.synchronize_within(self.context.deadline)?;
            }
            self.compare("after a signal", &givers, round)?;
            self.device_barrier(self.stream())?;
        }
        self.synchronize()
    }

    /// Alternates eager rounds with replays of the same work, captured on a separate stream.
    fn replay(&mut self) -> Result<()> {
        let signals = self.context.case.placement == Placement::Device;
        let mut recorder = self.context.communicator.stream()?;
        let capabilities = self.context.communicator.capabilities();
        if capabilities.flags & symmem::backend::abi::CAPABILITY_GRAPHS == 0 {
            // Without graphs, a capture must fail as unsupported.
            let refused = recorder.capture(|_| Ok(()));
            if !matches!(refused, Err(Error::Unsupported { .. })) {
                self.findings
                    .push("a capture was not refused as unsupported".into());
            }
            return Ok(());
        }
        let channel = self.channel;
        let work = |transfer: &Self, queue: &Queue| {
            transfer.put_all(queue, 0, signals.then_some(channel))?;
            if signals {
                transfer.wait_all(queue, channel)?;
            }
            transfer.device_barrier(queue)
        };
        let nodes = self.context.communicator.peers();
        let is_near = |target: &usize| nodes[*target].node == nodes[self.rank].node;
        // Signals to other nodes go by the network, which a graph starts.
        if !signals && self.targets.iter().any(is_near) {
            let refused = recorder.capture(|queue| self.put_all(queue, 0, Some(channel)));
            if !matches!(refused, Err(Error::Unsupported { .. })) {
                self.findings.push(format!(
                    "a capture of signals in host memory was not refused as unsupported: {:?}",
                    refused.err()
                ));
            }
        }
        let graph = recorder.capture(|queue| work(self, queue))?;
        let givers = self.givers.clone();
        // Number of graph launches per round; 0 means that the round is eager.
        for (round, launches) in [0, 1, 3, 0, 2].into_iter().enumerate() {
            let round = round as u32;
            self.fill(round)?;
            if round == 0 {
                self.device_barrier(self.stream())?;
            }
            self.stagger(round);
            if launches == 0 {
                work(self, self.stream())?;
            }
            for _ in 0..launches {
                self.stream().launch_graph(&graph)?;
            }
            self.compare("after a replay", &givers, round)?;
            self.device_barrier(self.stream())?;
        }
        self.synchronize()
    }

    /// Compares every byte of this rank's destination and source with the expected data, ordered by
    /// stream 0.
    fn compare(&mut self, when: &str, givers: &[usize], round: u32) -> Result<()> {
        self.plant()?;
        let (layout, size) = (self.layout, self.size);
        let mut expected = self.poisoned(self.rank);
        for (lane, &giver) in givers.iter().enumerate() {
            let sources = self.sources(giver, round);
            for set in 0..layout.sets {
                let to = (set * layout.lanes + lane) * layout.stride + layout.destination;
                let from = set * layout.stride + layout.source;
                let bytes = &sources[from * size..][..layout.length * size];
                expected[to * size..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        let seen = self.read(Side::Destination, expected.len())?;
        if let Some(found) = difference(&seen, &expected) {
            let element = found.byte / size;
            let (lane, at) = (element / layout.stride, element % layout.stride);
            let data = layout.destination..layout.destination + layout.length;
            let giver = givers[lane % layout.lanes];
            let place = if data.contains(&at) {
                format!("element {} from rank {giver}", at - layout.destination)
            } else {
                format!("guard element {at} beside the data from rank {giver}")
            };
            self.findings.push(format!(
                "round {round}, {when}: {place}: byte {} is {:#04x}, not {:#04x}; {} bytes differ",
                found.byte, found.seen, found.expected, found.count
            ));
        }
        let expected = self.sources(self.rank, round);
        let seen = self.read(Side::Source, expected.len())?;
        if let Some(found) = difference(&seen, &expected) {
            self.findings.push(format!(
                "round {round}, {when}: byte {} of the source has become {:#04x}",
                found.byte, found.seen
            ));
        }
        Ok(())
    }

    /// Reads the first `bytes` bytes of a buffer.
    fn read(&self, side: Side, bytes: usize) -> Result<Vec<u8>> {
        let part = Part {
            side,
            first: 0,
            length: bytes / self.size,
        };
        self.memory.read(self.stream(), part)
    }

    /// Applies the planted fault to this rank's memory.
    fn plant(&self) -> Result<()> {
        let (side, first) = if self.context.planted(Fault::WrongByte) {
            (Side::Destination, self.layout.destination)
        } else if self.context.planted(Fault::Guard) {
            let end = self.layout.destination + self.layout.length;
            (Side::Destination, end)
        } else if self.context.planted(Fault::Source) {
            (Side::Source, self.layout.source)
        } else {
            return Ok(());
        };
        let element = Part {
            side,
            first,
            length: 1,
        };
        let mut bytes = self.memory.read(self.stream(), element)?;
        bytes[0] ^= 1;
        self.memory.write(self.stream(), side, first, &bytes)
    }
}

/// Writes and reads parts of the local copy, with guards on both sides.
pub fn host_copy(context: &Context<'_>, memory: &dyn Memory) -> Result<Findings> {
    let case = context.case;
    let rank = context.communicator.rank();
    let layout = Layout::of(case, 1);
    let size = case.dtype.size();
    let stream = &context.streams[0];
    let tag = Tag {
        seed: case.seed,
        rank,
        round: None,
    };
    let mut expected: Vec<u8> = elements(tag, layout.stride * size);
    memory.write(stream, Side::Destination, 0, &expected)?;
    let round = Some(0);
    let data: Vec<u8> = elements(Tag { round, ..tag }, layout.length * size);
    memory.write(stream, Side::Destination, layout.destination, &data)?;
    expected[layout.destination * size..][..data.len()].copy_from_slice(&data);

    let mut findings = Findings::new();
    for (what, first, length) in [
        ("all elements", 0, layout.stride),
        ("a part of them", layout.source, layout.length),
    ] {
        let part = Part {
            side: Side::Destination,
            first,
            length,
        };
        let seen = memory.read(stream, part)?;
        if let Some(found) = difference(&seen, &expected[first * size..][..length * size]) {
            findings.push(format!("{what}: {found:?}"));
        }
    }
    Ok(findings)
}
