//! The memory with which the members of a group synchronize.
//!
//! Each group has one symmetric allocation, zeroed and with the same layout on all its members of a node:
//!
//! ```text
//! channel 0..COLLECTIVE_CHANNELS
//!     slots      SLOT_BLOCKS of SLOT_BYTES      see `CollectiveGroup`
//!     packets    PACKET_BLOCKS of packet_bytes
//!     steps      words and counters for what no kernel of a grid does: see `Steps`
//! table          [allocation][rank of the node]: addresses, 0 once given up; in the group of all ranks only
//! inbox          what peers push to be reduced here: for channel 0 of the group of all ranks only; see `reserve`
//! lamport        counters and inbox for Lamport packets: for channel 0 only
//! ```
//!
//! Channels share nothing, so collectives on different channels can be under way at once. All counters are on
//! the device, so graphs can be replayed.

use crate::backend::abi::*;
use crate::base::limits::{COLLECTIVE_CHANNELS, LANES};
use crate::base::placement::Placement;
use crate::group::dependents::Dependents;
use crate::group::inbox::{Division, Inboxes, LamportInboxes};
use crate::group::reserve;
use crate::group::selector::Selector;
use crate::health::control::MAX_ALLOCATIONS;
use crate::rank::allocation::Allocation;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

/// Bytes for the LL packets of a channel on the host backend, where one thread uses them all.
const HOST_PACKET_BYTES: u64 = 1 << 20;

/// Most bytes of an inbox for Lamport packets: a part for 8 MiB of data between two ranks.
const DEVICE_LAMPORT_BYTES: u64 = LAMPORT_BUFFERS * LamportInboxes::MOST_PART_BYTES;
/// The same with more ranks, within 64 MB of memory for a start: parts for 4 MiB of data in groups of two, 1.3 MiB in groups of
/// four, and 0.6 MiB in groups of eight.
const DEVICE_LAMPORT_BYTES_OF_MANY: u64 = DEVICE_LAMPORT_BYTES / 2;
/// The same on the host backend, which uses them only when they are named.
const HOST_LAMPORT_BYTES: u64 = 1 << 20;
/// Bytes of the staging of all channels, through which a rank sends memory that only it can address. A block takes some 10
/// us for a chunk (`benches/NOTES.md`), so chunks of all blocks should have what a link carries meanwhile, 3 MB. More ranks
/// have half, within 64 MB of memory for a start.
const DEVICE_STAGING_BYTES: u64 = 4 << 20;
/// The same on the host backend.
const HOST_STAGING_BYTES: u64 = 1 << 20;
/// Parts of the staging, of which each channel but the first has one.
const STAGING_PARTS: u64 = 16;
/// Bytes from the counters for Lamport packets to the inbox.
const LAMPORT_HEADER_BYTES: u64 = 128;
const _: () = assert!(LAMPORT_COUNTER_BYTES <= LAMPORT_HEADER_BYTES);

/// Alignment of a channel: a page.
const ALIGNMENT: u64 = 4096;

/// The slots of one group.
pub struct Slots {
    allocation: Arc<Allocation>,
    layout: Layout,
    inboxes: Option<Inboxes>,
    lamport: Option<LamportInboxes>,
    /// The group's part of every call's arguments, by channel.
    headers: Vec<CollectiveGroup>,
    /// The communicator's rank of each member.
    ranks: Vec<usize>,
}

/// The layout of the allocation; the same on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    world: u64,
    packet_bytes: u64,
    staging_bytes: u64,
    table: bool,
    inbox: Division,
    lamport_bytes: u64,
}

impl Layout {
    /// Makes the layout for the group of all `world` ranks, with the address table and an inbox for pieces.
    pub fn of_all(selector: &Selector, world: usize) -> Self {
        let channels = reserve::push_channels(selector, world);
        Self {
            table: true,
            inbox: selector.inbox(world, channels),
            ..Self::of_groups(selector, world, world..=world)
        }
    }

    /// Makes the layout for groups of `sizes` of the `world` ranks.
    pub fn of_groups(selector: &Selector, world: usize, sizes: RangeInclusive<usize>) -> Self {
        let (packet_bytes, lamport_bytes) = match selector.has_grids() {
            true => {
                // A group of one sends nothing.
                let sizes = sizes.filter(|&size| size > 1);
                let regions = sizes.map(|size| reserve::packet_bytes(selector, size));
                let lamport = match world {
                    ..=2 => DEVICE_LAMPORT_BYTES,
                    _ => DEVICE_LAMPORT_BYTES_OF_MANY,
                };
                (regions.max().unwrap_or(0), lamport)
            }
            false => (
                HOST_PACKET_BYTES / u64::from(PACKET_BLOCKS),
                HOST_LAMPORT_BYTES,
            ),
        };
        let staging_bytes = match (world, selector.has_grids()) {
            (..2, _) => 0,
            (2, true) => DEVICE_STAGING_BYTES,
            (_, true) => DEVICE_STAGING_BYTES / 2,
            (_, false) => HOST_STAGING_BYTES,
        };
        let peers = (world as u64).saturating_sub(1);
        let needed = LAMPORT_BUFFERS * peers * LamportInboxes::MOST_PART_BYTES;
        Self {
            world: world as u64,
            packet_bytes,
            staging_bytes,
            table: false,
            inbox: Division::default(),
            lamport_bytes: lamport_bytes.min(needed),
        }
    }

    fn steps_at(&self) -> u64 {
        u64::from(SLOT_BLOCKS) * SLOT_BYTES + u64::from(PACKET_BLOCKS) * self.packet_bytes
    }

    fn channel_bytes(&self) -> u64 {
        (self.steps_at() + Steps::bytes(self.world)).next_multiple_of(ALIGNMENT)
    }

    /// Returns begin and end of a channel's staging. Channel 0, which most calls are on, has most of it.
    fn staging(&self, channel: u32) -> Range<u64> {
        let others = self.staging_bytes / STAGING_PARTS;
        let first = self.staging_bytes - u64::from(COLLECTIVE_CHANNELS - 1) * others;
        let begin = match channel {
            0 => 0,
            _ => first + u64::from(channel - 1) * others,
        };
        let bytes = if channel == 0 { first } else { others };
        self.staging_at() + begin..self.staging_at() + begin + bytes
    }

    fn staging_at(&self) -> u64 {
        u64::from(COLLECTIVE_CHANNELS) * self.channel_bytes()
    }

    fn table_at(&self) -> u64 {
        self.staging_at() + self.staging_bytes
    }

    fn inbox_at(&self) -> u64 {
        let table = if self.table {
            MAX_ALLOCATIONS as u64 * self.world * 8
        } else {
            0
        };
        self.table_at() + table.next_multiple_of(PUSH_PIECES_ALIGNMENT)
    }

    fn lamport_at(&self) -> u64 {
        (self.inbox_at() + self.inbox.bytes()).next_multiple_of(LAMPORT_HEADER_BYTES)
    }

    /// Returns name and bytes of each part of the allocation, in order, with the padding behind it.
    pub fn parts(&self) -> [(&'static str, u64); 7] {
        let channels = u64::from(COLLECTIVE_CHANNELS);
        let slots = channels * u64::from(SLOT_BLOCKS) * SLOT_BYTES;
        let packets = channels * u64::from(PACKET_BLOCKS) * self.packet_bytes;
        let lamport = match self.lamport_bytes {
            0 => 0,
            bytes => LAMPORT_HEADER_BYTES + bytes,
        };
        [
            ("slots of collectives", slots),
            ("inboxes for LL packets", packets),
            (
                "words of copy-engine steps",
                self.staging_at() - slots - packets,
            ),
            ("staging of sends", self.staging_bytes),
            ("address table", self.inbox_at() - self.table_at()),
            ("inbox for pieces", self.lamport_at() - self.inbox_at()),
            ("inbox for Lamport packets", lamport),
        ]
    }

    /// Returns the bytes of the allocation.
    pub fn bytes(&self) -> u64 {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }
}

impl Slots {
    /// Makes the slots in `allocation`, which is zeroed and has the layout's size. `rank` is this rank's number
    /// among `members`, which are of one node. Kernels number members as `placement` does within the node.
    pub fn new(
        allocation: Arc<Allocation>,
        layout: Layout,
        (members, rank): (&[usize], usize),
        placement: &Placement,
    ) -> Self {
        let headers = (0..COLLECTIVE_CHANNELS)
            .map(|channel| {
                let at = u64::from(channel) * layout.channel_bytes();
                let mut header = CollectiveGroup {
                    watch: Watch::default(),
                    slots: [DeviceAddress::NULL; MAX_RANKS],
                    // At most 128 KiB: see `reserve::packet_bytes`.
                    packet_bytes: layout.packet_bytes as u32,
                    dependents: DependentsCode::ANSWERED,
                    rank: rank as u32,
                    world: members.len() as u32,
                    slot: channel,
                    operation: CollectiveOperationCode::BARRIER,
                    members: [0; MAX_RANKS],
                };
                for (index, &member) in members.iter().enumerate() {
                    header.slots[index] = allocation.at(member, at);
                    header.members[index] = placement.local_rank(member) as u8;
                }
                header
            })
            .collect();
        let inboxes = (layout.inbox.channels != 0).then(|| {
            let mut addresses = [DeviceAddress::NULL; MAX_RANKS];
            for (address, &member) in addresses.iter_mut().zip(members) {
                *address = allocation.at(member, layout.inbox_at());
            }
            let division = layout.inbox;
            Inboxes {
                addresses,
                division,
            }
        });
        let lamport = Self::lamport_in(&allocation, &layout, members, rank);
        Self {
            allocation,
            layout,
            inboxes,
            lamport,
            headers,
            ranks: members.to_vec(),
        }
    }

    /// Returns the inboxes for Lamport packets; `None` for a group of one.
    fn lamport_in(
        allocation: &Allocation,
        layout: &Layout,
        members: &[usize],
        rank: usize,
    ) -> Option<LamportInboxes> {
        let part_bytes = LamportInboxes::part_bytes(members.len(), layout.lamport_bytes);
        let mut addresses = [DeviceAddress::NULL; MAX_RANKS];
        for (address, &member) in addresses.iter_mut().zip(members) {
            *address = allocation.at(member, layout.lamport_at() + LAMPORT_HEADER_BYTES);
        }
        (part_bytes != 0).then_some(LamportInboxes {
            addresses,
            counters: allocation.at(members[rank], layout.lamport_at()),
            part_bytes: part_bytes as u32,
        })
    }

    /// Returns the slots' allocation.
    pub fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// Returns the group's part of a call's arguments.
    pub fn header(
        &self,
        channel: u32,
        operation: CollectiveOperationCode,
        watch: Watch,
        dependents: Dependents,
    ) -> Header<'_> {
        Header {
            channel: &self.headers[channel as usize],
            operation,
            watch,
            dependents,
        }
    }

    /// Returns the multicast address of a channel's slots; see [`Allocation::at_all`].
    pub fn at_all(&self, channel: u32) -> Option<DeviceAddress> {
        let at = u64::from(channel) * self.layout.channel_bytes();
        self.allocation.at_all(at)
    }

    /// Returns whether groups of this kind have inboxes for pieces: the group of all ranks has.
    pub fn has_pieces(&self) -> bool {
        self.layout.table
    }

    /// Returns the inboxes for pieces on a channel, if it has any.
    pub fn inboxes(&self, channel: u32) -> Option<&Inboxes> {
        self.inboxes.as_ref().filter(|_| channel == 0)
    }

    /// Returns the inboxes for Lamport packets on a channel, if it has any.
    pub fn lamport(&self, channel: u32) -> Option<&LamportInboxes> {
        self.lamport.as_ref().filter(|_| channel == 0)
    }

    /// Returns where a channel's staging of sends begins, in bytes from a member's slots on the channel, and the bytes of a
    /// chunk if each of `blocks` blocks has one for each peer.
    pub fn staging(&self, channel: u32, blocks: u32) -> (u64, u32) {
        let staging = self.layout.staging(channel);
        let peers = (self.headers[channel as usize].world - 1).max(1);
        let chunk = (staging.end - staging.start) / u64::from(peers * blocks.max(1));
        // The staging has at most 4 MiB.
        let chunk = chunk as u32 / CHUNK_ALIGNMENT * CHUNK_ALIGNMENT;
        (
            staging.start - u64::from(channel) * self.layout.channel_bytes(),
            chunk,
        )
    }

    /// Returns this rank's address table; `rank` is its number in the communicator.
    pub fn table(&self, rank: usize) -> DeviceAddress {
        self.allocation.at(rank, self.layout.table_at())
    }

    /// Returns a channel's words and counters for steps of one-block kernels.
    pub fn steps(&self, channel: u32) -> Steps<'_> {
        Steps {
            header: &self.headers[channel as usize],
            ranks: &self.ranks,
            at: self.layout.steps_at(),
            world: self.layout.world,
        }
    }
}

/// The group's part of a call's arguments, not yet copied: it is written once, to where the backend reads it.
#[derive(Clone, Copy)]
pub struct Header<'a> {
    /// The part that does not change from call to call.
    pub channel: &'a CollectiveGroup,
    /// The operation, for the wait record.
    pub operation: CollectiveOperationCode,
    /// The abort word and deadline that the call's waits watch.
    pub watch: Watch,
    /// When the stream's next kernel may start.
    pub dependents: Dependents,
}

impl Header<'_> {
    /// Writes this call's own values into a copy of the channel's arguments.
    #[inline]
    pub fn complete(&self, group: &mut CollectiveGroup) {
        group.watch = self.watch;
        group.operation = self.operation;
        group.dependents = self.dependents.into();
    }
}

/// Words and counters of one channel for steps that no grid's kernel takes: barriers of all members and signals
/// between neighbors.
///
/// ```text
/// words      [member]   SIGNAL_STRIDE bytes apart: raised by that member at barriers
/// words      [lane]     raised by the next member when its lane has finished a step
/// counters              barriers, then for each lane signals given, signals waited for: 32 bits each
/// ```
#[derive(Clone, Copy)]
pub struct Steps<'a> {
    header: &'a CollectiveGroup,
    /// The communicator's rank of each member.
    ranks: &'a [usize],
    at: u64,
    world: u64,
}

impl Steps<'_> {
    /// Returns the bytes of the steps for groups of up to `world` ranks.
    fn bytes(world: u64) -> u64 {
        const { assert!((1 + 2 * LANES as u64) * 4 <= SIGNAL_STRIDE) };
        (world + LANES as u64 + 1) * SIGNAL_STRIDE
    }

    fn word(&self, member: u32, index: u64) -> DeviceAddress {
        DeviceAddress(self.header.slots[member as usize].0 + self.at + index * SIGNAL_STRIDE)
    }

    fn counter(&self, index: u64) -> DeviceAddress {
        let counters = self.word(self.header.rank, self.world + LANES as u64);
        DeviceAddress(counters.0 + index * 4)
    }

    /// Returns a barrier of all members, which must be all ranks in order, as a barrier numbers its ranks.
    pub fn barrier(&self, watch: Watch) -> Barrier {
        let header = self.header;
        let mut peers = [DeviceAddress::NULL; MAX_RANKS];
        for member in 0..header.world {
            peers[member as usize] = self.word(member, u64::from(header.rank));
        }
        Barrier {
            watch,
            epoch: self.counter(0),
            own: self.word(header.rank, 0),
            peers,
            world: header.world,
            slot: header.slot,
        }
    }

    /// Returns a lane's signal to the member before this one, and its wait for the signal of the member after
    /// it.
    pub fn neighbors(&self, lane: usize, watch: Watch) -> (SignalTarget, SignalWait) {
        let (header, lane) = (self.header, lane as u64);
        let (rank, world) = (header.rank, header.world);
        let (before, after) = ((rank + world - 1) % world, (rank + 1) % world);
        let target = SignalTarget {
            word: self.word(before, self.world + lane),
            epoch: self.counter(1 + 2 * lane),
            ..SignalTarget::default()
        };
        let wait = SignalWait {
            word: self.word(rank, self.world + lane),
            epoch: self.counter(2 + 2 * lane),
            watch,
            peer: self.ranks[after as usize] as u32,
            slot: header.slot,
            ..SignalWait::default()
        };
        (target, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(world: usize, grids: bool) -> Layout {
        Layout::of_all(&Selector::unopened(Vec::new(), grids), world)
    }

    #[test]
    fn channels_lie_behind_one_another_and_the_table_behind_them() {
        for (world, grids) in [(1, true), (1, false), (2, true), (8, true), (72, true)] {
            let layout = layout(world, grids);
            assert!(layout.channel_bytes().is_multiple_of(ALIGNMENT));
            let steps = Steps::bytes(world as u64);
            assert!(layout.steps_at() + steps <= layout.channel_bytes());
            let table = (MAX_ALLOCATIONS * world * 8) as u64;
            assert_eq!(layout.inbox_at() - layout.table_at(), table);
            assert!(layout.inbox_at().is_multiple_of(PUSH_PIECES_ALIGNMENT));
            // A group of one sends no packets, and a host pushes without inboxes.
            assert_eq!(layout.inbox.channels > 0, grids && world > 1);
            assert!(layout.lamport_at() >= layout.inbox_at() + layout.inbox.bytes());
            assert!(layout.lamport_at().is_multiple_of(LAMPORT_HEADER_BYTES));
            assert_eq!(layout.bytes() > layout.lamport_at(), world > 1);
        }
    }

    #[test]
    fn the_parts_fill_the_allocation() {
        for (world, grids) in [(1, true), (2, false), (4, true)] {
            let layout = layout(world, grids);
            let [.., pushed, lamport] = layout.parts();
            assert_eq!(layout.bytes() - lamport.1, layout.lamport_at());
            assert_eq!(layout.lamport_at() - pushed.1, layout.inbox_at());
            let groups = Layout {
                table: false,
                inbox: Division::default(),
                ..layout
            };
            let more = layout.inbox_at() - layout.table_at() + layout.inbox.bytes();
            assert_eq!(groups.bytes() + more, layout.bytes());
        }
    }

    #[test]
    fn every_member_has_a_packet_in_each_half_of_a_region() {
        let selector = Selector::unopened(Vec::new(), true);
        let layout = Layout::of_groups(&selector, MAX_RANKS, MAX_RANKS..=MAX_RANKS);
        assert!(layout.packet_bytes / 2 / MAX_RANKS as u64 >= 16);
    }

    #[test]
    fn groups_have_room_for_the_rows_of_every_size() {
        let row = CollectiveRow {
            operation: CollectiveOperationCode::ALL_GATHER,
            world: 2,
            bytes: 128 << 10,
            algorithm: AlgorithmCode::PACKETS,
            blocks: 8,
            threads: 512,
            concurrent: 0,
        };
        let selector = Selector::unopened(vec![row], true);
        let groups = Layout::of_groups(&selector, 8, 1..=8);
        // 8 KiB from each block: two tiles, in two halves for two members.
        assert_eq!(groups.packet_bytes, 2 * 2 * 2 * 512 * 16);
        assert!(Layout::of_all(&selector, 8).packet_bytes < groups.packet_bytes);
    }
}
