//! Inboxes, into which peers store their data: see [`ReducePushArguments`], [`PieceArguments`],
//! [`ReduceLamportArguments`] and [`MoveLamportArguments`].

use crate::backend::abi::*;

/// Bytes of a piece: what a warp of 32 threads stores in one step, with one fence behind the steps to all peers. On 4
/// GPUs, 2048 pairs of warps have 12 MB under way before their fences, far more than the links hold. Pieces of 4 KiB
/// were timed (`benches/NOTES.md`); they take twice the memory.
const PIECE_BYTES: u32 = 2048;
/// The same in a group of two, where a fence stands behind one piece only. On two H100s a piece of 2 KiB took 6 µs, most
/// of it the fence and the flags, and two pairs of warps twice as many pieces (`benches/NOTES.md`).
const PIECE_BYTES_OF_TWO: u32 = 4096;
/// Pieces of one sender in a channel: one is reduced while the next arrives.
const SLOTS: u32 = 2;

/// The inboxes of a group.
#[derive(Clone, Copy, Debug)]
pub struct Inboxes {
    /// The address of each member's inbox.
    pub addresses: [DeviceAddress; MAX_RANKS],
    /// The division of an inbox.
    pub division: Division,
}

/// The inboxes of a group for Lamport packets.
#[derive(Clone, Copy, Debug)]
pub struct LamportInboxes {
    /// The address of each member's inbox.
    pub addresses: [DeviceAddress; MAX_RANKS],
    /// This rank's counters.
    pub counters: DeviceAddress,
    /// Bytes that a member can send to another in one launch, marks included.
    pub part_bytes: u32,
}

impl LamportInboxes {
    /// Most bytes of a part, which bounds the memory: 8 MiB of data with its marks. Two-shot norms use all of it: on two GPUs,
    /// 1024 rows of 16 KiB took 63.6 us with half as much, 54.2 with this, and 51.7 with twice as much (`benches/NOTES.md`).
    pub const MOST_PART_BYTES: u64 = 2 * Self::MOST_MESSAGE_BYTES;
    /// Most bytes of a part that one launch of another collective fills: 4 MiB of data with its marks.
    const MOST_MESSAGE_BYTES: u64 = MoveLamportArguments::taken_bytes(4 << 20);

    /// Returns the most bytes of a part that one launch fills in a group of `world` ranks, but for two-shot norms: launches of more
    /// were not timed with other collectives, and a one-shot norm was slower by them.
    pub fn message_bytes(&self, world: usize) -> u64 {
        let peers = (world as u64).saturating_sub(1).max(1);
        let most = Self::MOST_MESSAGE_BYTES / peers / PUSH_PIECES_ALIGNMENT * PUSH_PIECES_ALIGNMENT;
        most.min(self.part_bytes.into())
    }

    /// Returns the bytes of a part if an inbox of `bytes` is divided for a group of `world` ranks.
    pub fn part_bytes(world: usize, bytes: u64) -> u64 {
        let parts = LAMPORT_BUFFERS * (world as u64).saturating_sub(1);
        let part = bytes.checked_div(parts).unwrap_or(0);
        (part / PUSH_PIECES_ALIGNMENT * PUSH_PIECES_ALIGNMENT).min(Self::MOST_PART_BYTES)
    }
}

/// The division of an inbox; the same on all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Channels.
    pub channels: u32,
    /// Bytes from one channel to the next.
    pub channel_bytes: u64,
    /// Bytes of a piece.
    pub piece_bytes: u32,
}

impl Division {
    /// Divides at most `bytes` for groups of `world` ranks whose grids have at most `channels` channels. A group of one
    /// needs no inbox.
    pub fn new(world: usize, bytes: u64, channels: u32) -> Self {
        if world < 2 {
            return Self::default();
        }
        let piece_bytes = match world {
            2 => PIECE_BYTES_OF_TWO,
            _ => PIECE_BYTES,
        };
        let world = world as u64;
        let words = (2 * world + 1) * PUSH_WORD_STRIDE;
        let pieces = (world - 1) * u64::from(SLOTS * piece_bytes);
        let channel_bytes = words.next_multiple_of(PUSH_PIECES_ALIGNMENT) + pieces;
        let room = u32::try_from(bytes / channel_bytes).unwrap_or(u32::MAX);
        Self {
            channels: room.min(channels),
            channel_bytes,
            piece_bytes,
        }
    }

    /// Returns the bytes of an inbox.
    pub fn bytes(&self) -> u64 {
        u64::from(self.channels) * self.channel_bytes
    }
}

/// Fills in addresses and division of a call's inboxes.
pub fn fill(arguments: &mut ReducePushArguments, inboxes: &Inboxes) {
    arguments.inboxes = inboxes.addresses;
    arguments.channels = inboxes.division.channels;
    arguments.channel_bytes = inboxes.division.channel_bytes;
    arguments.slots = SLOTS;
    arguments.piece_bytes = inboxes.division.piece_bytes;
}

/// Fills in addresses and division of a move's inboxes.
pub fn fill_pieces(arguments: &mut PieceArguments, inboxes: &Inboxes) {
    arguments.inboxes = inboxes.addresses;
    arguments.channels = inboxes.division.channels;
    arguments.channel_bytes = inboxes.division.channel_bytes;
    arguments.slots = SLOTS;
    arguments.piece_bytes = inboxes.division.piece_bytes;
}

/// Fills in addresses and division of a move's inboxes for Lamport packets.
pub fn fill_move_lamport(arguments: &mut MoveLamportArguments, inboxes: &LamportInboxes) {
    arguments.inboxes = inboxes.addresses;
    arguments.counters = inboxes.counters;
    arguments.part_bytes = inboxes.part_bytes;
}

/// Fills in addresses and division of a call's inboxes for Lamport packets.
pub fn fill_lamport(arguments: &mut ReduceLamportArguments, inboxes: &LamportInboxes) {
    arguments.inboxes = inboxes.addresses;
    arguments.counters = inboxes.counters;
    arguments.part_bytes = inboxes.part_bytes;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_inbox_for_lamport_packets_fit_into_it() {
        assert_eq!(LamportInboxes::part_bytes(1, 1 << 24), 0);
        assert_eq!(LamportInboxes::part_bytes(2, 8 << 20), 4 << 20);
        let most = LamportInboxes::part_bytes(2, 1 << 25);
        assert_eq!(most, LamportInboxes::MOST_PART_BYTES);
        let inboxes = LamportInboxes {
            addresses: [DeviceAddress::NULL; MAX_RANKS],
            counters: DeviceAddress::NULL,
            part_bytes: most as u32,
        };
        assert!(MoveLamportArguments::capacity(inboxes.message_bytes(2)) >= 4 << 20);
        assert_eq!(most, 2 * inboxes.message_bytes(2));
        for world in 2..=MAX_RANKS {
            let part = LamportInboxes::part_bytes(world, 1 << 24);
            assert!(
                part.is_multiple_of(16) && part >= 64 << 10,
                "{world}: {part}"
            );
            assert!(
                part * LAMPORT_BUFFERS * (world as u64 - 1) <= 1 << 24,
                "{world}"
            );
        }
    }

    #[test]
    fn an_inbox_has_room_for_a_grid_on_every_unit_of_a_few_ranks_and_for_some_of_many() {
        const BYTES: u64 = 64 << 20;
        for world in 2..=MAX_RANKS {
            let division = Division::new(world, BYTES, 2112);
            assert!(division.bytes() <= BYTES, "{world}");
            assert!(division.channel_bytes.is_multiple_of(PUSH_PIECES_ALIGNMENT));
            let wanted = match world {
                2..=8 => 2112,
                _ => 128,
            };
            assert!(division.channels >= wanted, "{world}: {division:?}");
        }
        assert_eq!(Division::new(4, 0, 2112).bytes(), 0);
    }
}
