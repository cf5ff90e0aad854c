//! Inboxes, into which peers push the data that this rank reduces: see [`ReducePushArguments`].

use crate::backend::abi::*;

/// Bytes of a piece: enough stores of a warp for one fence behind them, and few enough that a large reduction
/// has pieces for every pair of warps (`benches/NOTES.md`).
const PIECE_BYTES: u32 = 4096;
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

/// The division of an inbox; the same on all members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Division {
    /// Channels.
    pub channels: u32,
    /// Bytes from one channel to the next.
    pub channel_bytes: u64,
}

impl Division {
    /// Divides at most `bytes` for groups of `world` ranks whose grids have at most `channels` channels.
    pub fn new(world: usize, bytes: u64, channels: u32) -> Self {
        let world = world as u64;
        let words = (2 * world + 1) * PUSH_WORD_STRIDE;
        let pieces = world.saturating_sub(1) * u64::from(SLOTS * PIECE_BYTES);
        let channel_bytes = words.next_multiple_of(PUSH_PIECES_ALIGNMENT) + pieces;
        let room = u32::try_from(bytes / channel_bytes).unwrap_or(u32::MAX);
        Self {
            channels: room.min(channels),
            channel_bytes,
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
    arguments.piece_bytes = PIECE_BYTES;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbox_has_room_for_a_grid_on_every_unit_of_a_few_ranks_and_for_some_of_many() {
        const BYTES: u64 = 64 << 20;
        for world in 1..=MAX_RANKS {
            let division = Division::new(world, BYTES, 2112);
            assert!(division.bytes() <= BYTES, "{world}");
            assert!(division.channel_bytes.is_multiple_of(PUSH_PIECES_ALIGNMENT));
            let wanted = match world {
                1..=4 => 2112,
                5..=8 => 1024,
                _ => 64,
            };
            assert!(division.channels >= wanted, "{world}: {division:?}");
        }
        assert_eq!(Division::new(4, 0, 2112).bytes(), 0);
    }
}
