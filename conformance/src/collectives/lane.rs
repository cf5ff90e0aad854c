//! One collective with its memory: fills the source, enqueues the call, and compares the result.
//!
//! The destination is filled with random poison, and the source with other random bytes. Every member
//! can compute both from their tags, so a member knows every byte that its destination must hold
//! afterwards: the results in their places, poison everywhere else.
//!
//! ```text
//! destination   guard | offset | the longer of both ranges | guard
//! source        guard | offset | the source range          | guard
//! ```
//!
//! For an in-place call, the enqueued work first copies the data from the source buffer to where the
//! call reads it, so that every replay starts with fresh data.

use super::call::{Call, Piece};
use super::case::{AlgorithmName, Collective, CollectiveCase, Mode, OwnMemory};
use super::closeness::Closeness;
use super::multicast::element;
use super::values;
use crate::buffers::{Memory, Part, Side};
use crate::findings::Fault;
use crate::length::OFFSETS;
use crate::pattern::{Tag, elements};
use std::time::Duration;
use symmem::{
    Algorithm, CollectiveCall, CollectiveOptions, Communicator, Group, Provider, Queue, Result,
    Stream, TransferOptions,
};

/// Guard bytes on each side of the data, and the alignment that offsets are relative to.
const GUARD_BYTES: usize = 256;

/// Most blocks of each of several calls at once, whatever the case names: eight ranks that share an H100 have room for them.
/// A rank knows only whether it shares its own device, and all ranks of a call must name the same.
const MOST_BLOCKS_AT_ONCE: u32 = 7;

/// The communicator and group of a call, with its deadline.
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

    /// This rank's number within the group.
    fn rank(&self) -> usize {
        self.group.map_or(self.communicator.rank(), Group::rank)
    }

    fn world(&self) -> usize {
        self.group
            .map_or(self.communicator.world_size(), Group::world_size)
    }

    /// The node of each member.
    fn nodes(&self) -> Vec<usize> {
        let peers = self.communicator.peers();
        (0..self.world())
            .map(|member| peers[self.member(member)].node)
            .collect()
    }

    /// The rank of a member in the communicator.
    fn member(&self, rank: usize) -> usize {
        self.group.map_or(rank, |group| group.members()[rank])
    }
}

/// A call with its memory. All calls of one lane must use the same stream.
pub struct Lane<'a> {
    site: Site<'a>,
    case: &'a CollectiveCase,
    call: Call,
    memory: &'a dyn Memory,
    channel: u32,
    /// Index of this lane in its case.
    number: usize,
}

/// Returns the number of elements that a case needs in its destination and in its source: enough for
/// any group of up to `world` members.
pub fn sizes(case: &CollectiveCase, world: usize) -> (usize, usize) {
    let shifts = OFFSETS[OFFSETS.len() - 1] + OwnMemory::MOST_SHIFT;
    let guards = 2 * GUARD_BYTES / case.dtype.size() + shifts;
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

impl<'a> Lane<'a> {
    /// Whether this rank receives nothing, which happens with random counts. Such a call is not refused.
    pub fn is_empty(&self) -> bool {
        self.call.destination_length(self.site.rank()) == 0
    }

    /// Creates lane `number` of a case, and fills its destination with poison.
    pub fn new(
        site: Site<'a>,
        case: &'a CollectiveCase,
        number: usize,
        memory: &'a dyn Memory,
        stream: &Stream,
    ) -> Result<Self> {
        let lane = Self {
            site,
            case,
            call: Call::of(case, site.world()).on(site.nodes()),
            memory,
            channel: case.channel + number as u32,
            number,
        };
        memory.write(stream, Side::Destination, 0, &lane.poison())?;
        Ok(lane)
    }

    /// Returns the algorithm that the call would use; `None` if it has no stage inside its node.
    pub fn selected_algorithm(&self) -> Result<Option<Algorithm>> {
        let rank = self.site.rank();
        let longest = match self.call.operation {
            Collective::AllGatherV => 0,
            _ => self.call.source_length(rank),
        };
        let longest = longest.max(self.call.destination_length(rank));
        let in_multicast = |side| self.memory.is_in_multicast(side);
        let source_in_multicast = self.case.in_place || in_multicast(Side::Source);
        let call = CollectiveCall {
            reduce: self.case.reduction.into(),
            in_place: self.case.in_place,
            own_memory: self.case.own != OwnMemory::Neither,
            // Alignment matters only for NCCL, RCCL and `Push`, and this asks about neither.
            aligned: false,
            in_multicast: in_multicast(Side::Destination) && source_in_multicast,
            ..CollectiveCall::new(
                self.call.operation.into(),
                (longest * self.case.dtype.size()) as u64,
                element(self.case.dtype),
            )
        };
        let explanation = self
            .site
            .communicator
            .explain_call(&call, &self.options())?;
        Ok(explanation.choice().map(|choice| choice.algorithm()))
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

    /// Sizes of the destination and the source that this lane uses, in bytes.
    fn bytes(&self) -> (usize, usize) {
        let (destination, source) = sizes(self.case, self.site.communicator.world_size());
        (
            destination * self.case.dtype.size(),
            source * self.case.dtype.size(),
        )
    }

    /// The source data of a member in a round.
    fn data(&self, member: usize, round: u32) -> Vec<u8> {
        let tag = self.tag(member, Some(round));
        let count = self.call.source_length(member);
        if self.call.operation.reduces() {
            values::bytes(self.case.dtype, self.case.values, tag, count)
        } else {
            elements(tag, count * self.case.dtype.size())
        }
    }

    /// The content of this rank's source buffer in a round, guards included.
    fn source(&self, round: u32) -> Vec<u8> {
        let mut bytes: Vec<u8> = elements(self.tag(self.site.rank(), None), self.bytes().1);
        let data = self.data(self.site.rank(), round);
        let at = self.first(Side::Source) * self.case.dtype.size();
        bytes[at..at + data.len()].copy_from_slice(&data);
        bytes
    }

    /// The index of the first element of a side's range in its buffer.
    fn first(&self, side: Side) -> usize {
        let rank = self.site.rank();
        let (offset, is_own) = match side {
            Side::Destination => (self.case.destination_offset, self.case.own.of(rank).0),
            Side::Source => (self.case.source_offset, self.case.own.of(rank).1),
        };
        // A call that took a peer's address for its own would be off.
        let shift = (3 * rank + 1) % (OwnMemory::MOST_SHIFT + 1);
        GUARD_BYTES / self.case.dtype.size() + offset + if is_own { shift } else { 0 }
    }

    /// The first elements of destination and source within the destination buffer, if the call is in place.
    fn in_place(&self) -> Option<(usize, usize)> {
        let forms = self.call.in_place(self.site.rank());
        let (to, from) = forms.filter(|_| self.case.in_place)?;
        let first = self.first(Side::Destination);
        Some((first + to, first + from))
    }

    fn destination_part(&self) -> Part {
        Part {
            side: Side::Destination,
            first: match self.in_place() {
                Some((to, _)) => to,
                None => self.first(Side::Destination),
            },
            length: self.call.destination_length(self.site.rank()),
        }
    }

    /// The part of the source buffer that [`Lane::fill`] writes the data to.
    fn filled_part(&self) -> Part {
        Part {
            side: Side::Source,
            first: self.first(Side::Source),
            length: self.call.source_length(self.site.rank()),
        }
    }

    fn source_part(&self) -> Part {
        let filled = self.filled_part();
        match self.in_place() {
            Some((_, first)) => Part {
                side: Side::Destination,
                first,
                ..filled
            },
            None => filled,
        }
    }

    fn options(&self) -> CollectiveOptions<'a> {
        let algorithm = self.case.variant.algorithm;
        let most = match self.case.mode {
            Mode::Concurrent => MOST_BLOCKS_AT_ONCE,
            _ => u32::MAX,
        };
        let blocks = Some(self.case.blocks.min(most)).filter(|&blocks| blocks > 0);
        CollectiveOptions::new()
            .algorithm(algorithm)
            .blocks(blocks.filter(|_| algorithm.has_grid()))
            // Sets the number of concurrent copies, also for sizes for which the selector would use one.
            .concurrent(blocks.filter(|_| algorithm == AlgorithmName::CopyEngine))
            .channel(self.channel)
            .provider(match algorithm {
                AlgorithmName::Vendor => Provider::Nccl,
                AlgorithmName::VendorWindows => Provider::NcclWindows,
                // The selector must not choose NCCL or RCCL, whose results are not exact.
                _ => Provider::Symmem,
            })
            .deadline(self.site.deadline)
            .group(self.site.group)
    }

    /// Reads the part of a buffer that this lane uses.
    fn read(&self, stream: &Stream, side: Side) -> Result<Vec<u8>> {
        let (destination, source) = sizes(self.case, self.site.communicator.world_size());
        let length = match side {
            Side::Destination => destination,
            Side::Source => source,
        };
        let part = Part {
            side,
            first: 0,
            length,
        };
        self.memory.read(stream, part)
    }

    /// The expected content of the destination buffer after a round.
    fn expected(&self, round: u32) -> Vec<u8> {
        let size = self.case.dtype.size();
        let rank = self.site.rank();
        let mut expected = self.poison();
        let mut first = self.first(Side::Destination);
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

    /// Describes the first wrong element and counts the others.
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
            None => self.first(Side::Destination),
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

    /// Applies the planted fault to this rank's memory.
    fn plant(&self, stream: &Stream, round: u32) -> Result<()> {
        let size = self.case.dtype.size();
        let rank = self.site.rank();
        let first = self.destination_part().first * size;
        let end = first + self.call.destination_length(rank) * size;
        let mut destination = self.read(stream, Side::Destination)?;
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
            source[self.first(Side::Source) * size] ^= 1;
            self.memory.write(stream, Side::Source, 0, &source)?;
        }
        self.memory
            .write(stream, Side::Destination, 0, &destination)
    }

    /// Writes the source data of a round. Blocks.
    pub fn fill(&self, stream: &Stream, round: u32) -> Result<()> {
        self.memory
            .write(stream, Side::Source, 0, &self.source(round))
    }

    /// Enqueues the call.
    pub fn enqueue(&self, queue: &Queue) -> Result<()> {
        if self.site.planted(Fault::Absent) {
            return Ok(());
        }
        let (to, from) = (self.destination_part(), self.source_part());
        if self.in_place().is_some() {
            let (rank, filled) = (self.site.communicator.rank(), self.filled_part());
            let options = TransferOptions::default();
            self.memory.put(queue, rank, from, filled, None, &options)?;
        }
        let options = self.options();
        let (calls, rank) = (queue.with(&options), self.site.rank());
        let own = self.case.own.of(rank);
        self.memory
            .collective(calls, &self.call, rank, (to, own.0), (from, own.1))
    }

    /// Waits for the stream, then compares every byte; describes the first difference.
    pub fn compare(&self, stream: &Stream, round: u32) -> Result<Option<String>> {
        stream.synchronize_within(self.site.deadline)?;
        if self.site.fault.is_some() {
            self.plant(stream, round)?;
        }
        let seen = self.read(stream, Side::Destination)?;
        if let Some(found) = self.difference(&seen, &self.expected(round)) {
            return Ok(Some(found));
        }
        let seen = self.read(stream, Side::Source)?;
        let expected = self.source(round);
        let wrong = seen.iter().zip(&expected).position(|(a, b)| a != b);
        Ok(wrong.map(|byte| format!("byte {byte} of the source has become {:#04x}", seen[byte])))
    }
}
