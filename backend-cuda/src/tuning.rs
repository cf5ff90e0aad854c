//! Data: how bytes are best moved, by architecture, direction and size.
//!
//! A row holds up to its size. Rates and the reason behind each boundary belong beside it; the
//! figures come from `symmem bench p2p` on the machine named.

use symmem_core::backend::abi::{Method, TransferRow};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

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

/// sm_90 behind NVLink switches: 8×H200, NVLink 4.
const HOPPER: Tuning = Tuning {
    put: rows([
        vector(16 * KIB, 1, 512),
        vector(256 * KIB, 8, 512),
        vector(8 * MIB, 16, 1024),
        copy_engine(),
    ]),
    get: rows([
        vector(16 * KIB, 1, 512),
        vector(256 * KIB, 8, 512),
        vector(8 * MIB, 16, 1024),
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
