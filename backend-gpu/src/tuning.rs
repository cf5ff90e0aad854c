//! Rows of a backend's tuning tables: which method and geometry is best for which size.
//!
//! The figures are each backend's own data. This module has the row constructors and the checks that every
//! table must pass.

use symmem_core::backend::abi::*;

/// 2¹⁰ bytes.
pub const KIB: u64 = 1 << 10;
/// 2²⁰ bytes.
pub const MIB: u64 = 1 << 20;
/// Size of a table's last row, which covers all larger sizes.
pub const ALWAYS: u64 = u64::MAX;
/// World size of rows that hold for every world.
pub const ANY: u32 = MAX_RANKS as u32;

/// Transfer tables of one architecture.
#[derive(Clone, Copy)]
pub struct Transfers {
    /// Rows for puts, ended by a row of `bytes == u64::MAX`.
    pub put: [TransferRow; 8],
    /// Rows for gets.
    pub get: [TransferRow; 8],
}

const NO_ROW: TransferRow = TransferRow {
    bytes: 0,
    method: MethodCode::AUTOMATIC,
    blocks: 0,
    threads: 0,
    stages: 0,
    stage_bytes: 0,
    reserved: 0,
};

/// Returns a row of 16-byte vector loads and stores.
pub const fn vector(bytes: u64, blocks: u32, threads: u32) -> TransferRow {
    TransferRow {
        bytes,
        method: MethodCode::VECTOR,
        blocks,
        threads,
        ..NO_ROW
    }
}

/// Returns a row with `stages` bulk copies of `kib` KiB in flight in each of `blocks` blocks of 128 threads.
pub const fn bulk(bytes: u64, blocks: u32, stages: u32, kib: u32) -> TransferRow {
    TransferRow {
        bytes,
        method: MethodCode::BULK,
        blocks,
        threads: 128,
        stages,
        stage_bytes: kib << 10,
        ..NO_ROW
    }
}

/// Returns a row that uses the copy engine for all larger sizes.
pub const fn copy_engine() -> TransferRow {
    TransferRow {
        bytes: ALWAYS,
        method: MethodCode::COPY_ENGINE,
        ..NO_ROW
    }
}

/// Pads a table with its last row, which must cover all sizes ([`ALWAYS`]).
pub const fn rows<const N: usize>(given: [TransferRow; N]) -> [TransferRow; 8] {
    assert!(N > 0 && N <= 8 && given[N - 1].bytes == ALWAYS);
    let mut rows = [given[N - 1]; 8];
    let mut index = 0;
    while index < N {
        rows[index] = given[index];
        index += 1;
    }
    rows
}

/// Largest world size, and the rows for it, from the smallest size to a row that covers all sizes.
pub type WorldRows = (u32, &'static [CollectiveRow]);

/// The selector's table: for each operation, worlds from the smallest.
pub type SelectorTable = &'static [(CollectiveOperationCode, &'static [WorldRows])];

/// Returns a row whose operation and world are filled in from its place in the table.
pub const fn row(bytes: u64, algorithm: AlgorithmCode, blocks: u32, threads: u32) -> CollectiveRow {
    CollectiveRow {
        operation: CollectiveOperationCode(0),
        world: 0,
        bytes,
        algorithm,
        blocks,
        threads,
        concurrent: 0,
    }
}

/// Returns rows for memory that only its rank knows: LL packets, with all the blocks that they have, up to `bytes`, then
/// pieces.
pub const fn own_memory(packets: AlgorithmCode, bytes: u64, blocks: u32) -> [CollectiveRow; 2] {
    [
        row(bytes, packets, PACKET_BLOCKS, 512),
        row(ALWAYS, AlgorithmCode::PIECES, blocks, 512),
    ]
}

/// Returns a row whose copies go to two peers at a time instead of all.
pub const fn two_at_once(
    bytes: u64,
    algorithm: AlgorithmCode,
    blocks: u32,
    threads: u32,
) -> CollectiveRow {
    CollectiveRow {
        concurrent: 2,
        ..row(bytes, algorithm, blocks, threads)
    }
}

/// Returns a row that uses the copy engine alone.
pub const fn copies(bytes: u64) -> CollectiveRow {
    row(bytes, AlgorithmCode::COPY_ENGINE, 0, 0)
}

/// Returns a row that uses the copy engine for peers, and a small kernel for this rank's own part. By the copy engine, too,
/// that copy would slow the others: between two H100s an all-to-all of 256 MiB takes 367 µs with the kernel, 392 without
/// (`benches/results/2026-11-25-grids-2xh100.txt`). That it helps between more is an assumption.
pub const fn copies_to_peers(bytes: u64) -> CollectiveRow {
    row(bytes, AlgorithmCode::COPY_ENGINE, 16, 512)
}

/// Returns row `index` of a table; `None` past the last row.
pub fn collective_row(tables: SelectorTable, index: u32) -> Option<CollectiveRow> {
    let mut rows = tables.iter().flat_map(|(operation, worlds)| {
        worlds.iter().flat_map(move |(world, rows)| {
            rows.iter().map(move |row| CollectiveRow {
                operation: *operation,
                world: *world,
                ..*row
            })
        })
    });
    rows.nth(index as usize)
}

/// Returns a description of each flaw in transfer tables, for tests of backends; empty if there is none.
pub fn transfer_flaws(tables: &Transfers, warp: u32, bulk: bool) -> Vec<String> {
    let mut flaws = Vec::new();
    for rows in [tables.put, tables.get] {
        let Some(end) = rows.iter().position(|row| row.bytes == ALWAYS) else {
            flaws.push("no row for every size".into());
            continue;
        };
        let rows = &rows[..=end];
        if !rows.is_sorted_by(|a, b| a.bytes < b.bytes) {
            flaws.push(format!("sizes do not rise: {rows:?}"));
        }
        let launches = |row: &TransferRow| {
            row.blocks >= 1 && row.threads.is_multiple_of(warp) && (1..=1024).contains(&row.threads)
        };
        for row in rows {
            let good = match row.method {
                MethodCode::COPY_ENGINE => (row.blocks, row.threads) == (0, 0),
                MethodCode::VECTOR => launches(row),
                MethodCode::BULK => {
                    bulk && launches(row) && row.stages >= 1 && row.stage_bytes.is_multiple_of(16)
                }
                _ => false,
            };
            if !good {
                flaws.push(format!("cannot be launched: {row:?}"));
            }
        }
    }
    flaws
}

/// Returns a description of each flaw in a selector's table, for tests of backends; empty if there is none.
pub fn collective_flaws(tables: SelectorTable, warp: u32) -> Vec<String> {
    let rows: Vec<CollectiveRow> = (0..)
        .map_while(|index| collective_row(tables, index))
        .collect();
    let multicast = |row: &CollectiveRow| row.algorithm.is_multicast();
    let mut flaws = Vec::new();
    for operation in CollectiveOperationCode::BROADCAST.0..=CollectiveOperationCode::EXCHANGE.0 {
        for world in 2..=ANY {
            for bytes in [0, 1, 64 * KIB, MIB, ALWAYS] {
                let fits = |row: &&CollectiveRow| {
                    // A multicast row is no fallback, since many devices lack multicast.
                    !multicast(row)
                        && row.operation.0 == operation
                        && world <= row.world
                        && bytes <= row.bytes
                };
                if !rows.iter().any(|row| fits(&row)) {
                    flaws.push(format!("no row: {operation} of {world}, {bytes} bytes"));
                }
            }
        }
    }
    for (index, row) in rows.iter().enumerate() {
        let hides = |earlier: &CollectiveRow| {
            let swaps = |row: &CollectiveRow| row.algorithm == AlgorithmCode::SWAP;
            let lamport = |row: &CollectiveRow| row.algorithm.is_lamport();
            let own_memory = |row: &CollectiveRow| {
                let in_packets = matches!(
                    row.algorithm,
                    AlgorithmCode::PACKETS | AlgorithmCode::PACKETS_TWO_SHOT
                );
                in_packets || lamport(row) || row.algorithm == AlgorithmCode::PIECES
            };
            // LL packets serve in-place and out-of-place calls. Of the other algorithms only swap works in place.
            // Lamport packets serve some types only. What serves memory that only its rank knows is hidden by such rows only.
            (!lamport(earlier) || lamport(row))
                && (!own_memory(row) || own_memory(earlier))
                && (earlier.algorithm == AlgorithmCode::PACKETS || swaps(earlier) == swaps(row))
                && multicast(earlier) == multicast(row)
                && earlier.operation == row.operation
                && row.world <= earlier.world
                && row.bytes <= earlier.bytes
        };
        if rows[..index].iter().any(hides) {
            flaws.push(format!("never used: {row:?}"));
        }
        let most = match row.algorithm {
            AlgorithmCode::PACKETS | AlgorithmCode::PACKETS_TWO_SHOT => PACKET_BLOCKS,
            _ => SLOT_BLOCKS,
        };
        let launches = (1..=most).contains(&row.blocks)
            && row.threads.is_multiple_of(warp)
            && (1..=1024).contains(&row.threads);
        // In an all-reduce a kernel reduces what the copy engine then gathers.
        // In a move a kernel copies the own part, or none is launched.
        let moves = row.algorithm == AlgorithmCode::COPY_ENGINE
            && row.operation != CollectiveOperationCode::ALL_REDUCE;
        if !(launches || moves && (row.blocks, row.threads) == (0, 0)) {
            flaws.push(format!("cannot be launched: {row:?}"));
        }
    }
    flaws
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_table_is_padded_with_its_last_row_and_flaws_are_told() {
        let good = rows([vector(KIB, 1, 64), copy_engine()]);
        assert!(good[1..].iter().all(|row| *row == copy_engine()));
        let tables = Transfers {
            put: good,
            get: good,
        };
        assert!(transfer_flaws(&tables, 64, false).is_empty());
        let odd = rows([vector(KIB, 1, 32), vector(KIB, 0, 64), copy_engine()]);
        let with_bulk = rows([bulk(KIB, 1, 4, 4), copy_engine()]);
        let tables = Transfers {
            put: odd,
            get: with_bulk,
        };
        assert_eq!(transfer_flaws(&tables, 64, false).len(), 4);
        assert_eq!(transfer_flaws(&tables, 32, true).len(), 2);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a minute there, of code without an unsafe block")]
    fn flaws_of_a_selectors_table_are_told() {
        const HIDDEN: &[WorldRows] = &[(ANY, &[copies(ALWAYS), copies(KIB)])];
        const BAD_GRID: &[WorldRows] = &[(ANY, &[row(ALWAYS, AlgorithmCode::PACKETS, 65, 96)])];
        let flaws = collective_flaws(
            &[
                (CollectiveOperationCode::ALL_GATHER, HIDDEN),
                (CollectiveOperationCode::BROADCAST, BAD_GRID),
            ],
            64,
        );
        let of = |what: &str| flaws.iter().filter(|flaw| flaw.starts_with(what)).count();
        assert_eq!(of("never used"), 1);
        assert_eq!(of("cannot be launched"), 1);
        assert_eq!(of("no row"), 9 * 71 * 5, "nine operations have no rows");
    }
}
