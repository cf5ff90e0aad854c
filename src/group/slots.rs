//! The memory by which the members of a group keep in step.
//!
//! One symmetric allocation a group, zeroed, laid out alike on all members:
//!
//! ```text
//! channel 0..COLLECTIVE_CHANNELS
//!     slots      SLOT_BLOCKS of SLOT_BYTES      see `CollectiveGroup`
//!     packets    PACKET_BLOCKS of packet_bytes
//!     steps      words and counters for what no kernel of a grid does: see `Steps`
//! table          [allocation][rank]: addresses, 0 once given up; in the group of all ranks only
//! inbox          what peers push to be reduced here: for channel 0 of the group of all ranks only
//! ```
//!
//! Channels share nothing, so that collectives on different channels can be under way at once. All
//! counters are on the device, so that graphs can be replayed.

use crate::backend::abi::*;
use crate::base::limits::{COLLECTIVE_CHANNELS, LANES};
use crate::group::inbox::{Division, Inboxes};
use crate::health::control::MAX_ALLOCATIONS;
use crate::rank::allocation::Allocation;
use std::sync::Arc;

/// Bytes for packets of a channel where the blocks of a grid share them: 4 KiB of payload from each
/// to each of 8 ranks, in each block, in each round.
const DEVICE_PACKET_BYTES: u64 = 8 << 20;
/// And where one thread has them all (host backend).
const HOST_PACKET_BYTES: u64 = 1 << 20;

/// Channels start on a page.
const ALIGNMENT: u64 = 4096;

/// The slots of one group.
pub struct Slots {
    allocation: Arc<Allocation>,
    layout: Layout,
    inboxes: Option<Inboxes>,
    /// A group's part of every call's arguments, by channel.
    headers: Vec<CollectiveGroup>,
}

/// Where things are; alike on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    world: u64,
    packet_bytes: u64,
    table: bool,
    inbox: Division,
}

impl Layout {
    /// For groups of up to `world` ranks; with a table where it is to name their allocations.
    pub fn new(world: usize, grids: bool, table: bool) -> Self {
        let bytes = if grids {
            DEVICE_PACKET_BYTES
        } else {
            HOST_PACKET_BYTES
        };
        Self {
            world: world as u64,
            packet_bytes: bytes / u64::from(PACKET_BLOCKS),
            table,
            inbox: Division::default(),
        }
    }

    /// And with an inbox for each member.
    pub fn with_inbox(self, inbox: Division) -> Self {
        Self { inbox, ..self }
    }

    fn steps_at(&self) -> u64 {
        u64::from(SLOT_BLOCKS) * SLOT_BYTES + u64::from(PACKET_BLOCKS) * self.packet_bytes
    }

    fn channel_bytes(&self) -> u64 {
        (self.steps_at() + Steps::bytes(self.world)).next_multiple_of(ALIGNMENT)
    }

    fn table_at(&self) -> u64 {
        u64::from(COLLECTIVE_CHANNELS) * self.channel_bytes()
    }

    fn inbox_at(&self) -> u64 {
        let table = if self.table {
            MAX_ALLOCATIONS as u64 * self.world * 8
        } else {
            0
        };
        self.table_at() + table.next_multiple_of(PUSH_PIECES_ALIGNMENT)
    }

    /// Bytes of the allocation.
    pub fn bytes(&self) -> u64 {
        self.inbox_at() + self.inbox.bytes()
    }
}

impl Slots {
    /// Slots in `allocation`, which is zeroed and has the layout's bytes. `rank` is this rank's number
    /// among `members`.
    pub fn new(
        allocation: Arc<Allocation>,
        layout: Layout,
        members: &[usize],
        rank: usize,
    ) -> Self {
        let headers = (0..COLLECTIVE_CHANNELS)
            .map(|channel| {
                let at = u64::from(channel) * layout.channel_bytes();
                let mut header = CollectiveGroup {
                    watch: Watch::default(),
                    slots: [DeviceAddress::NULL; MAX_RANKS],
                    packet_bytes: layout.packet_bytes,
                    rank: rank as u32,
                    world: members.len() as u32,
                    slot: channel,
                    operation: CollectiveOperation::BARRIER,
                    members: [0; MAX_RANKS],
                };
                for (index, &member) in members.iter().enumerate() {
                    header.slots[index] = allocation.at(member, at);
                    header.members[index] = member as u8;
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
        Self {
            allocation,
            layout,
            inboxes,
            headers,
        }
    }

    /// The memory.
    pub fn allocation(&self) -> &Arc<Allocation> {
        &self.allocation
    }

    /// The group's part of a call's arguments.
    pub fn header(&self, channel: u32, operation: CollectiveOperation, watch: Watch) -> Header<'_> {
        Header {
            channel: &self.headers[channel as usize],
            operation,
            watch,
        }
    }

    /// A channel's slots at all members at once; see [`Allocation::at_all`].
    pub fn at_all(&self, channel: u32) -> Option<DeviceAddress> {
        let at = u64::from(channel) * self.layout.channel_bytes();
        self.allocation.at_all(at)
    }

    /// The inboxes for pushed reductions on a channel, if it has any.
    pub fn inboxes(&self, channel: u32) -> Option<&Inboxes> {
        self.inboxes.as_ref().filter(|_| channel == 0)
    }

    /// The table of addresses at this rank, which is number `rank` of the communicator.
    pub fn table(&self, rank: usize) -> DeviceAddress {
        self.allocation.at(rank, self.layout.table_at())
    }

    /// What a channel has for steps that kernels of one block take.
    pub fn steps(&self, channel: u32) -> Steps<'_> {
        Steps {
            header: &self.headers[channel as usize],
            at: self.layout.steps_at(),
            world: self.layout.world,
        }
    }
}

/// A group's part of a call's arguments, not yet copied: it is written once, where the backend reads it.
#[derive(Clone, Copy)]
pub struct Header<'a> {
    /// What does not change from call to call.
    pub channel: &'a CollectiveGroup,
    /// The operation (for the record).
    pub operation: CollectiveOperation,
    /// What the call's waits watch.
    pub watch: Watch,
}

impl Header<'_> {
    /// Writes what is this call's own into a copy of the channel's.
    #[inline]
    pub fn complete(&self, group: &mut CollectiveGroup) {
        group.watch = self.watch;
        group.operation = self.operation;
    }
}

/// Words and counters of one channel apart from those of grids: barriers of all members and signals
/// between neighbours.
///
/// ```text
/// words      [member]   SIGNAL_STRIDE bytes apart: raised by that member at barriers
/// words      [lane]     raised by the next member when its lane has finished a step
/// counters              barriers, then for each lane signals given, signals waited for: 32 bits each
/// ```
#[derive(Clone, Copy)]
pub struct Steps<'a> {
    header: &'a CollectiveGroup,
    at: u64,
    world: u64,
}

impl Steps<'_> {
    /// Bytes of them for groups of up to `world` ranks.
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

    /// A barrier of all members, which have to be all ranks, in order: a barrier names its ranks so.
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

    /// A lane's signal to the member before this one, and its wait for that of the one after it.
    pub fn neighbours(&self, lane: usize, watch: Watch) -> (SignalTarget, SignalWait) {
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
            peer: header.members[after as usize].into(),
            slot: header.slot,
            ..SignalWait::default()
        };
        (target, wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_lie_behind_one_another_and_the_table_behind_them() {
        for (world, grids) in [(1, false), (8, true), (72, true)] {
            let layout = Layout::new(world, grids, true);
            assert!(layout.channel_bytes().is_multiple_of(ALIGNMENT));
            let steps = Steps::bytes(world as u64);
            assert!(layout.steps_at() + steps <= layout.channel_bytes());
            assert_eq!(
                layout.bytes() - layout.table_at(),
                (MAX_ALLOCATIONS * world * 8) as u64
            );
            let inbox = Division::new(world, 1 << 20, 8);
            let wider = layout.with_inbox(inbox);
            assert_eq!(wider.bytes(), layout.bytes() + inbox.bytes());
            assert!(wider.inbox_at().is_multiple_of(PUSH_PIECES_ALIGNMENT));
        }
    }

    #[test]
    fn every_member_has_a_packet_in_each_half_of_a_region() {
        let layout = Layout::new(MAX_RANKS, true, false);
        assert!(layout.packet_bytes / 2 / MAX_RANKS as u64 >= 16);
    }
}
