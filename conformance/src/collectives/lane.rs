//! One collective with its memory: what is filled in before, enqueued, and compared after.
//!
//! The destination is poisoned with random bytes, the source holds others, and both are known
//! everywhere by their tag. So a member knows every byte that its destination must hold afterwards:
//! the results where they belong, poison everywhere else.
//!
//! ```text
//! destination   guard | offset | the longer of both ranges | guard
//! source        guard | offset | the source range          | guard
//! ```
//!
//! In place, the data is copied from the source buffer to where the call reads it, within the work:
//! so a replay finds it fresh.

use super::call::{Call, Piece};
use super::case::{AlgorithmName, Collective, CollectiveCase};
use super::closeness::Closeness;
use super::values;
use crate::buffers::Buffers;
use crate::findings::Fault;
use crate::length::OFFSETS;
use crate::pattern::{Tag, elements};
use std::time::Duration;
use symmem::{
    Algorithm, CollectiveCall, CollectiveOptions, Communicator, Element, Group, Provider, Queue,
    Reducible, Result, Slice, Stream, SymmetricBuffer,
};
use zerocopy::IntoBytes;

/// Untouched bytes on each side of data, and the alignment that offsets count from.
const GUARD_BYTES: usize = 256;

/// Who makes the call, and how.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    pub communicator: &'a Communicator,
    /// The members; `None` for all ranks.
    pub group: Option<&'a Group>,
    pub deadline: Duration,
    pub fault: Option<Fault>,
}

impl Site<'_> {
    /// Whether a test planted this fault.
    pub fn planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// This rank's number among the members.
    fn rank(&self) -> usize {
        self.group.map_or(self.communicator.rank(), Group::rank)
    }

    fn world(&self) -> usize {
        self.group
            .map_or(self.communicator.world_size(), Group::world_size)
    }

    /// The communicator's number of a member.
    fn member(&self, rank: usize) -> usize {
        self.group.map_or(rank, |group| group.members()[rank])
    }
}

/// A lane of any type of elements. Every call of one lane gets the same stream.
pub trait Lane {
    /// Writes the data of a round.
    fn fill(&self, stream: &Stream, round: u32) -> Result<()>;
    /// Enqueues the call.
    fn enqueue(&self, queue: &Queue) -> Result<()>;
    /// Waits for the stream, then compares every byte; says what is wrong.
    fn compare(&self, stream: &Stream, round: u32) -> Result<Option<String>>;
}

/// A lane of elements of one type.
pub struct TypedLane<'a, T: Element> {
    site: Site<'a>,
    case: &'a CollectiveCase,
    call: Call,
    buffers: &'a Buffers<T>,
    channel: u32,
    /// Tells lanes of one case apart.
    number: usize,
}

/// Elements that a case needs in its destination and its source, in groups of any size that a world
/// of `world` ranks has.
pub fn sizes(case: &CollectiveCase, world: usize) -> (usize, usize) {
    let guards = 2 * GUARD_BYTES / case.dtype.size() + OFFSETS[OFFSETS.len() - 1];
    let (mut destination, mut source) = (0, 0);
    for world in 1..=world {
        let call = Call::of(case, world);
        for member in 0..world {
            source = source.max(call.source_length(member));
            destination = destination.max(call.destination_length(member));
        }
    }
    (destination.max(source) + guards, source + guards)
}

impl<'a, T: Reducible> TypedLane<'a, T> {
    /// Whether it moves nothing at this rank, as all-gathers of random parts at times do: then there is
    /// nothing to refuse either.
    pub fn is_empty(&self) -> bool {
        self.call.destination_length(self.site.rank()) == 0
    }

    /// Lane `number` of a case, with poison in its destination.
    pub fn new(
        site: Site<'a>,
        case: &'a CollectiveCase,
        number: usize,
        buffers: &'a Buffers<T>,
        stream: &Stream,
    ) -> Result<Self> {
        let lane = Self {
            site,
            case,
            call: Call::of(case, site.world()),
            buffers,
            channel: case.channel + number as u32,
            number,
        };
        lane.write(stream, &buffers.destination, &lane.poison())?;
        Ok(lane)
    }

    /// The algorithm by which its call goes, as it would be found out by the call itself.
    pub fn goes_by(&self) -> Result<Algorithm> {
        let rank = self.site.rank();
        let longest = match self.call.operation {
            Collective::AllGatherV => 0,
            _ => self.call.source_length(rank),
        };
        let longest = longest.max(self.call.destination_length(rank));
        let buffers = self.buffers;
        let source_in_multicast = self.case.in_place || buffers.source.is_in_multicast();
        let call = CollectiveCall {
            reduce: self.case.reduction.into(),
            in_place: self.case.in_place,
            // Neither the vendor's library nor what is pushed is asked about.
            aligned: false,
            in_multicast: buffers.destination.is_in_multicast() && source_in_multicast,
            ..CollectiveCall::new(
                self.call.operation.into(),
                (longest * size_of::<T>()) as u64,
                T::TYPE,
            )
        };
        let choice = self
            .site
            .communicator
            .explain_call(&call, &self.options())?;
        Ok(choice.algorithm())
    }

    fn tag(&self, member: usize, round: Option<u32>) -> Tag {
        Tag {
            seed: self.case.seed.wrapping_add(self.number as u64),
            rank: self.site.member(member),
            round,
        }
    }

    fn poison(&self) -> Vec<u8> {
        elements(self.tag(self.site.rank(), None), self.bytes().0)
    }

    /// Bytes of both buffers that this lane uses.
    fn bytes(&self) -> (usize, usize) {
        let (destination, source) = sizes(self.case, self.site.communicator.world_size());
        (
            destination * self.case.dtype.size(),
            source * self.case.dtype.size(),
        )
    }

    /// What a member gives in a round.
    fn data(&self, member: usize, round: u32) -> Vec<u8> {
        let tag = self.tag(member, Some(round));
        let count = self.call.source_length(member);
        if self.call.operation.reduces() {
            values::bytes(self.case.dtype, self.case.values, tag, count)
        } else {
            elements(tag, count * self.case.dtype.size())
        }
    }

    /// This rank's source buffer in a round, guards included.
    fn source(&self, round: u32) -> Vec<u8> {
        let mut bytes: Vec<u8> = elements(self.tag(self.site.rank(), None), self.bytes().1);
        let data = self.data(self.site.rank(), round);
        let at = self.first(self.case.source_offset) * self.case.dtype.size();
        bytes[at..at + data.len()].copy_from_slice(&data);
        bytes
    }

    /// The element at an offset behind the guard.
    fn first(&self, offset: usize) -> usize {
        GUARD_BYTES / self.case.dtype.size() + offset
    }

    /// Where destination and source are in the destination buffer, if the call is in place.
    fn in_place(&self) -> Option<(usize, usize)> {
        let forms = self.call.in_place(self.site.rank());
        let (to, from) = forms.filter(|_| self.case.in_place)?;
        let first = self.first(self.case.destination_offset);
        Some((first + to, first + from))
    }

    fn destination_range(&self) -> Result<Slice<'a, T>> {
        let length = self.call.destination_length(self.site.rank());
        let at = match self.in_place() {
            Some((to, _)) => to,
            None => self.first(self.case.destination_offset),
        };
        self.buffers.destination.slice(at..at + length)
    }

    /// Where the data is that was filled in.
    fn filled_range(&self) -> Result<Slice<'a, T>> {
        let length = self.call.source_length(self.site.rank());
        let at = self.first(self.case.source_offset);
        self.buffers.source.slice(at..at + length)
    }

    fn source_range(&self) -> Result<Slice<'a, T>> {
        let length = self.call.source_length(self.site.rank());
        match self.in_place() {
            Some((_, from)) => self.buffers.destination.slice(from..from + length),
            None => self.filled_range(),
        }
    }

    fn options(&self) -> CollectiveOptions<'a> {
        let algorithm = self.case.way.algorithm;
        let blocks = Some(self.case.blocks).filter(|&blocks| blocks > 0);
        CollectiveOptions::new()
            .algorithm(algorithm)
            .blocks(blocks.filter(|_| algorithm.has_grid()))
            // One lane or two, also where the size would not be worth it.
            .concurrent(blocks.filter(|_| algorithm == AlgorithmName::CopyEngine))
            .channel(self.channel)
            .provider(match algorithm {
                AlgorithmName::Vendor => Provider::Vendor,
                AlgorithmName::VendorWindows => Provider::VendorWindows,
                // The selector's choice among ours: only that is exact.
                _ => Provider::Own,
            })
            .deadline(self.site.deadline)
            .group(self.site.group)
    }

    fn write(&self, stream: &Stream, buffer: &SymmetricBuffer<T>, bytes: &[u8]) -> Result<()> {
        let mut elements = vec![T::new_zeroed(); bytes.len() / size_of::<T>()];
        elements
            .as_mut_slice()
            .as_mut_bytes()
            .copy_from_slice(bytes);
        buffer.write(stream, 0, &elements)
    }

    fn read(&self, stream: &Stream, buffer: &SymmetricBuffer<T>, bytes: usize) -> Result<Vec<u8>> {
        let mut elements = vec![T::new_zeroed(); bytes / size_of::<T>()];
        buffer.read(stream, 0, &mut elements)?;
        Ok(elements.as_bytes().to_vec())
    }

    /// What the destination must hold after a round.
    fn expected(&self, round: u32) -> Vec<u8> {
        let size = self.case.dtype.size();
        let rank = self.site.rank();
        let mut expected = self.poison();
        let mut first = self.first(self.case.destination_offset);
        if let Some((to, from)) = self.in_place() {
            let data = self.data(rank, round);
            expected[from * size..][..data.len()].copy_from_slice(&data);
            first = to;
        }
        let data = |member| self.data(member, round);
        for Piece { at, bytes } in self.call.result(rank, &data) {
            expected[(first + at) * size..][..bytes.len()].copy_from_slice(&bytes);
        }
        expected
    }

    /// Where the first wrong element is, and how many there are.
    fn difference(&self, seen: &[u8], expected: &[u8]) -> Option<String> {
        if seen == expected {
            return None;
        }
        let size = self.case.dtype.size();
        let closeness = Closeness::of(self.case, self.call.world);
        let mut wrong = seen
            .chunks_exact(size)
            .zip(expected.chunks_exact(size))
            .enumerate()
            .filter(|(_, (seen, expected))| !closeness.accepts(seen, expected));
        let (at, (seen, expected)) = wrong.next()?;
        let more = wrong.count();
        let first = match self.in_place() {
            Some((to, _)) => to,
            None => self.first(self.case.destination_offset),
        };
        let length = self.call.destination_length(self.site.rank());
        let place = if (first..first + length).contains(&at) {
            format!("element {} of {length}", at - first)
        } else {
            format!("guard element {at}")
        };
        Some(format!(
            "{place} is {seen:02x?}, not {expected:02x?}; {more} more differ"
        ))
    }

    /// Does to this rank's memory what a test planted.
    fn plant(&self, stream: &Stream, round: u32) -> Result<()> {
        let size = self.case.dtype.size();
        let rank = self.site.rank();
        let first = self.destination_range()?.offset() * size;
        let end = first + self.call.destination_length(rank) * size;
        let mut destination = self.read(stream, &self.buffers.destination, self.bytes().0)?;
        if self.site.planted(Fault::WrongByte) {
            destination[first] ^= 1;
        } else if self.site.planted(Fault::Guard) {
            destination[end] ^= 1;
        } else if self.site.planted(Fault::MissingPacket) {
            let last = end - 8.min(end - first);
            destination[last..end].copy_from_slice(&self.poison()[last..end]);
        } else if self.site.planted(Fault::WrongOrder) {
            let world = self.call.world;
            let data = |member| self.data(world - 1 - member, round);
            for Piece { at, bytes } in self.call.result(rank, &data) {
                destination[first + at * size..][..bytes.len()].copy_from_slice(&bytes);
            }
        } else if self.site.planted(Fault::Source) {
            let mut source = self.source(round);
            source[self.first(self.case.source_offset) * size] ^= 1;
            self.write(stream, &self.buffers.source, &source)?;
        }
        self.write(stream, &self.buffers.destination, &destination)
    }
}

impl<T: Reducible> Lane for TypedLane<'_, T> {
    fn fill(&self, stream: &Stream, round: u32) -> Result<()> {
        self.write(stream, &self.buffers.source, &self.source(round))
    }

    fn enqueue(&self, queue: &Queue) -> Result<()> {
        if self.site.planted(Fault::Absent) {
            return Ok(());
        }
        let (to, from) = (self.destination_range()?, self.source_range()?);
        if self.in_place().is_some() {
            queue.put(self.site.communicator.rank(), from, self.filled_range()?)?;
        }
        let options = self.options();
        let queue = queue.with(&options);
        let (root, reduction) = (self.call.root, self.case.reduction.into());
        let rank = self.site.rank();
        match self.call.operation {
            Collective::AllReduce => queue.all_reduce(to, from, reduction),
            Collective::Reduce => queue.reduce(root, to, from, reduction),
            Collective::ReduceScatter => queue.reduce_scatter(to, from, reduction),
            Collective::AllGather => queue.all_gather(to, from),
            Collective::AllGatherV => queue.all_gather_v(to, from, &self.call.counts()),
            Collective::Broadcast => queue.broadcast(root, to, from),
            Collective::AllToAll => queue.all_to_all(to, from),
            Collective::AllToAllV => {
                let split = |messages: Vec<(Option<usize>, usize)>| {
                    let counts = messages.iter().map(|(count, _)| count.unwrap_or(0));
                    let offsets = messages.iter().map(|(_, at)| *at);
                    (counts.collect::<Vec<_>>(), offsets.collect::<Vec<_>>())
                };
                let (received, received_at) = split(self.call.received(rank));
                let (sent, sent_at) = split(self.call.sent(rank));
                queue.all_to_all_v(to, &received, &received_at, from, &sent, &sent_at)
            }
            Collective::Gather => queue.gather(root, to, from),
            Collective::Scatter => queue.scatter(root, to, from),
            Collective::Ring | Collective::Exchange => {
                let mut exchange = queue.exchange();
                for (peer, (count, at)) in self.call.sent(rank).into_iter().enumerate() {
                    if let Some(count) = count {
                        exchange.send(peer, from.slice(at..at + count)?)?;
                    }
                }
                for (peer, (count, at)) in self.call.received(rank).into_iter().enumerate() {
                    if let Some(count) = count {
                        exchange.recv(peer, to.slice(at..at + count)?)?;
                    }
                }
                exchange.enqueue()
            }
        }
    }

    fn compare(&self, stream: &Stream, round: u32) -> Result<Option<String>> {
        stream.synchronize_within(self.site.deadline)?;
        if self.site.fault.is_some() {
            self.plant(stream, round)?;
        }
        let (destination, source) = self.bytes();
        let seen = self.read(stream, &self.buffers.destination, destination)?;
        if let Some(found) = self.difference(&seen, &self.expected(round)) {
            return Ok(Some(found));
        }
        let seen = self.read(stream, &self.buffers.source, source)?;
        let expected = self.source(round);
        let wrong = seen.iter().zip(&expected).position(|(a, b)| a != b);
        Ok(wrong.map(|byte| format!("byte {byte} of the source has become {:#04x}", seen[byte])))
    }
}
