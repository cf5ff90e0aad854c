//! The memory that a group reserves for the calls which the selector's table sends through it: a region of each block
//! for LL packets, and channels for pieces.
//!
//! Both follow from the rows alone, so that `symmem info` knows them without a device.

use crate::backend::abi::*;
use crate::group::choice::Query;
use crate::group::operations::reduces;
use crate::group::selector::Selector;

/// Most bytes of a block's region: 4 KiB of payload from each of 8 ranks to each, in each round. A row that sends more
/// takes more rounds.
const MOST_REGION: u64 = 128 << 10;
/// Fewest bytes, for calls that name the algorithm.
const LEAST_REGION: u64 = 16 << 10;
/// Bytes of data and of storage in an LL packet.
const UNIT_BYTES: u64 = 8;
const PACKET_BYTES: u64 = 16;

/// Fewest channels for pieces, for calls that name the algorithm: 16 blocks of 1024 threads.
const LEAST_CHANNELS: u32 = 16 * 1024 / PUSH_PAIR_THREADS;

/// Returns the bytes of a block's region for LL packets with which the largest call of every row in use takes one round
/// in a group of `world` ranks.
pub fn packet_bytes(selector: &Selector, world: usize) -> u64 {
    let algorithms = [AlgorithmCode::PACKETS, AlgorithmCode::PACKETS_TWO_SHOT];
    let calls = selector.largest_calls(world, &algorithms, false);
    let regions = calls.map(|(query, row)| region_bytes(&query, &row));
    regions.max().unwrap_or(0).clamp(LEAST_REGION, MOST_REGION)
}

/// Returns the bytes of a region in which a row's blocks send their part of a call to each member in one round: two
/// halves of an inbox for each member. A block takes units in tiles of one per thread.
fn region_bytes(query: &Query, row: &CollectiveRow) -> u64 {
    let threads = u64::from(row.threads.max(1));
    let grid = threads * u64::from(row.blocks.max(1));
    let units = message_bytes(query, row.algorithm).div_ceil(UNIT_BYTES);
    let inbox = units.div_ceil(grid).saturating_mul(threads * PACKET_BYTES);
    inbox.saturating_mul(2 * u64::from(query.world))
}

/// Returns the bytes that a member sends to another, if all parts are equal.
fn message_bytes(query: &Query, algorithm: AlgorithmCode) -> u64 {
    use CollectiveOperationCode as O;
    let whole = matches!(query.operation, O::ALL_REDUCE | O::REDUCE | O::BROADCAST)
        && algorithm != AlgorithmCode::PACKETS_TWO_SHOT;
    match whole {
        true => query.bytes,
        false => query.bytes.div_ceil(u64::from(query.world)),
    }
}

/// Returns the channels that the grids of the rows in use need in a group of `world` ranks: to push reductions, and
/// pieces of memory that only its rank knows.
pub fn push_channels(selector: &Selector, world: usize) -> u32 {
    let calls = selector.largest_calls(world, &[AlgorithmCode::PUSH], false);
    let reductions = calls.filter(|(query, _)| reduces(query.operation));
    let pieces = selector.largest_calls(world, &[AlgorithmCode::PIECES], true);
    let channels = reductions.chain(pieces).map(|(_, row)| {
        let pairs = row.threads.next_multiple_of(PUSH_THREAD_STEP) / PUSH_PAIR_THREADS;
        row.blocks.min(SLOT_BLOCKS) * pairs
    });
    channels.max().unwrap_or(0).max(LEAST_CHANNELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(
        operation: CollectiveOperationCode,
        (world, bytes): (u32, u64),
        algorithm: AlgorithmCode,
        (blocks, threads): (u32, u32),
    ) -> CollectiveRow {
        CollectiveRow {
            operation,
            world,
            bytes,
            algorithm,
            blocks,
            threads,
            concurrent: 0,
        }
    }

    #[test]
    fn a_region_holds_one_round_of_the_largest_call_of_each_row() {
        use {AlgorithmCode as A, CollectiveOperationCode as O};
        let of = |rows: &[CollectiveRow], world| {
            packet_bytes(&Selector::unopened(rows.to_vec(), true), world)
        };
        // Each of 16 blocks sends 4 KiB to each member: one tile of 512 packets, in two halves.
        let whole = row(O::REDUCE, (72, 64 << 10), A::PACKETS, (16, 512));
        assert_eq!(of(&[whole], 2), 2 * 2 * 512 * 16);
        assert_eq!(of(&[whole], 8), 2 * 8 * 512 * 16);
        // A third of 512 KiB is more than two tiles of 32 blocks.
        let parts = row(O::REDUCE_SCATTER, (4, 512 << 10), A::PACKETS, (32, 256));
        assert_eq!(of(&[parts], 3), 2 * 3 * 3 * 256 * 16);
        assert_eq!(of(&[parts], 4), 2 * 4 * 2 * 256 * 16);
        let two_shot = row(O::ALL_REDUCE, (8, 1 << 20), A::PACKETS_TWO_SHOT, (32, 512));
        assert_eq!(of(&[two_shot], 8), 2 * 8 * 512 * 16);
        // Rows of smaller worlds do not count, and a row of all sizes takes rounds.
        assert_eq!(of(&[parts], 8), LEAST_REGION);
        let all = row(O::BROADCAST, (72, u64::MAX), A::PACKETS, (1, 32));
        assert_eq!(of(&[all], 2), MOST_REGION);
    }

    #[test]
    fn channels_are_those_of_the_largest_grid_that_the_table_lets_push() {
        use {AlgorithmCode as A, CollectiveOperationCode as O};
        let of = |rows: &[CollectiveRow], world| {
            push_channels(&Selector::unopened(rows.to_vec(), true), world)
        };
        let push = row(O::ALL_REDUCE, (4, 1 << 20), A::PUSH, (128, 1024));
        assert_eq!(of(&[push], 4), 2048);
        assert_eq!(of(&[push], 5), LEAST_CHANNELS, "no row of this world");
        let load = row(O::ALL_REDUCE, (2, u64::MAX), A::TWO_SHOT, (64, 512));
        assert_eq!(of(&[load, push], 2), LEAST_CHANNELS, "hidden");
        assert_eq!(of(&[load, push], 3), 2048);
        // Not hidden: in one shot no call works in place.
        let one_shot = row(O::ALL_REDUCE, (4, u64::MAX), A::ONE_SHOT, (64, 512));
        assert_eq!(of(&[one_shot, push], 4), 2048);
        let moves = row(O::ALL_GATHER, (4, 1 << 20), A::PUSH, (128, 1024));
        assert_eq!(of(&[moves], 4), LEAST_CHANNELS, "no reduction");
    }
}
