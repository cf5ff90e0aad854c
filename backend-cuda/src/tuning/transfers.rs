//! Data: how bytes are best moved, by architecture, direction and size.
//!
//! A row holds up to its size. Rates and the reason behind each boundary belong beside it; the
//! figures come from `symmem bench p2p` on the machine named.

use super::{KIB, MIB};
use symmem_core::backend::abi::{Method, TransferRow};

/// The tables of one architecture.
#[derive(Clone, Copy)]
pub struct Tuning {
    /// Rows for puts, ended by a row of `bytes == u64::MAX`.
    pub put: [TransferRow; 8],
    /// Rows for gets.
    pub get: [TransferRow; 8],
    /// How many peers at once keep the links busy.
    pub fanout: u32,
}

/// The tables for a device. `bulk` says whether the bulk kernel is there; rows that would use it
/// are otherwise moved by vector loads and stores of the same geometry.
pub fn tuning(architecture: u32, bulk: bool) -> Tuning {
    let mut tuning = match architecture {
        90..100 => HOPPER,
        _ => CONSERVATIVE,
    };
    if !bulk {
        for row in tuning.put.iter_mut().chain(&mut tuning.get) {
            if row.method == Method::BULK {
                *row = vector(row.bytes, row.blocks, row.threads.max(512));
            }
        }
    }
    tuning
}

/// sm_90 behind NVLink switches: two H200s, NVLink 4, both ranks moving, 20 November 2026
/// (`benches/NOTES.md`). One block of bulk copies, launched beside its predecessor, has the least
/// overhead and is ahead up to 64 KiB. Above that the copy engine wins for puts (217 GB/s at 1 MiB
/// where 16 blocks reach 182), while for gets it starts slowly (90 GB/s at 1 MiB against 164) and
/// passes the kernels only at 16 MiB.
const HOPPER: Tuning = Tuning {
    put: rows([bulk(64 * KIB, 1, 8, 16), copy_engine()]),
    get: rows([
        bulk(64 * KIB, 1, 8, 16),
        vector(256 * KIB, 8, 512),
        vector(16 * MIB, 16, 512),
        copy_engine(),
    ]),
    fanout: 1,
};

/// Anything that has not been measured: fewer blocks, the copy engine sooner.
const CONSERVATIVE: Tuning = Tuning {
    put: rows([vector(16 * KIB, 1, 512), vector(MIB, 8, 512), copy_engine()]),
    get: rows([vector(16 * KIB, 1, 512), vector(MIB, 8, 512), copy_engine()]),
    fanout: 1,
};

const fn vector(bytes: u64, blocks: u32, threads: u32) -> TransferRow {
    TransferRow {
        bytes,
        method: Method::VECTOR,
        blocks,
        threads,
        stages: 0,
        stage_bytes: 0,
        reserved: 0,
    }
}

/// `stages` bulk copies of `kib` KiB in flight in each of `blocks` blocks of 128 threads.
const fn bulk(bytes: u64, blocks: u32, stages: u32, kib: u32) -> TransferRow {
    TransferRow {
        bytes,
        method: Method::BULK,
        blocks,
        threads: 128,
        stages,
        stage_bytes: kib << 10,
        reserved: 0,
    }
}

const fn copy_engine() -> TransferRow {
    TransferRow {
        bytes: u64::MAX,
        method: Method::COPY_ENGINE,
        blocks: 0,
        threads: 0,
        stages: 0,
        stage_bytes: 0,
        reserved: 0,
    }
}

/// Pads a table with its last row, which must hold for every size.
const fn rows<const N: usize>(given: [TransferRow; N]) -> [TransferRow; 8] {
    assert!(N > 0 && N <= 8 && given[N - 1].bytes == u64::MAX);
    let mut rows = [given[N - 1]; 8];
    let mut index = 0;
    while index < N {
        rows[index] = given[index];
        index += 1;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_grows_ends_and_can_be_launched() {
        for architecture in [80, 86, 89, 90, 100, 120] {
            for bulk in [false, true] {
                let tuning = tuning(architecture, bulk);
                for rows in [tuning.put, tuning.get] {
                    let end = rows.iter().position(|row| row.bytes == u64::MAX);
                    let rows = &rows[..=end.expect("a row for every size")];
                    assert!(rows.is_sorted_by(|a, b| a.bytes < b.bytes));
                    for row in rows {
                        check(row, bulk);
                    }
                }
            }
        }
    }

    fn check(row: &TransferRow, bulk: bool) {
        match row.method {
            Method::COPY_ENGINE => assert_eq!((row.blocks, row.threads), (0, 0)),
            Method::VECTOR => {
                assert!(row.blocks >= 1 && row.threads.is_multiple_of(32) && row.threads <= 1024);
            }
            Method::BULK => {
                assert!(bulk && row.stages >= 1 && row.stage_bytes.is_multiple_of(16));
                assert!(row.stages * row.stage_bytes <= 227 << 10);
            }
            other => panic!("{} is not for tables", other.name()),
        }
    }
}
