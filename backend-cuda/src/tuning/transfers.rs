//! Tuning data of transfers, by architecture, direction and size.
//!
//! A row holds up to its size. The reason for each boundary stands beside it; the figures come from `symmem
//! bench p2p` on the machine named.

use symmem_core::backend::abi::MethodCode;
use symmem_gpu::tuning::*;

/// Number of peers to move data to at a time. One keeps the links busy, since a device reaches all peers over
/// one bundle of links to the switches.
pub const FANOUT: u32 = 1;

/// Returns the tables of an architecture. Without `bulk` kernels their rows use vector loads and stores, with
/// at least 512 threads.
pub fn transfers(architecture: u32, bulk: bool) -> Transfers {
    let mut tables = match architecture {
        90..100 => HOPPER,
        _ => CONSERVATIVE,
    };
    if !bulk {
        for row in tables.put.iter_mut().chain(&mut tables.get) {
            if row.method == MethodCode::BULK {
                *row = vector(row.bytes, row.blocks, row.threads.max(512));
            }
        }
    }
    tables
}

/// sm_90 behind NVSwitch: two H200s, NVLink 4, both ranks moving, 20 November 2026 (`benches/NOTES.md`). Up to
/// 64 KiB one block of bulk copies has the least overhead, by programmatic dependent launch. Above that the
/// copy engine wins for puts (217 GB/s at 1 MiB, where 16 blocks reach 182). For gets it starts slowly (90 GB/s
/// at 1 MiB against 164) and passes the kernels only at 16 MiB.
const HOPPER: Transfers = Transfers {
    put: rows([bulk(64 * KIB, 1, 8, 16), copy_engine()]),
    get: rows([
        bulk(64 * KIB, 1, 8, 16),
        vector(256 * KIB, 8, 512),
        vector(16 * MIB, 16, 512),
        copy_engine(),
    ]),
};

/// For architectures that were not measured: fewer blocks, and the copy engine from smaller sizes on.
const CONSERVATIVE: Transfers = Transfers {
    put: rows([vector(16 * KIB, 1, 512), vector(MIB, 8, 512), copy_engine()]),
    get: rows([vector(16 * KIB, 1, 512), vector(MIB, 8, 512), copy_engine()]),
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_grows_ends_and_can_be_launched() {
        for architecture in [80, 86, 89, 90, 100, 120] {
            for bulk in [false, true] {
                let tables = transfers(architecture, bulk);
                assert_eq!(transfer_flaws(&tables, 32, bulk), [""; 0]);
                for row in tables.put.into_iter().chain(tables.get) {
                    assert!(row.stages * row.stage_bytes <= 227 << 10);
                }
            }
        }
    }
}
