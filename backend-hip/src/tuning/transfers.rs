//! Data: how bytes are best moved, by direction and size, and how many peers at once keep the links busy.
//!
//! Not measured. Published for MI300X: a pair of devices has one link of 64 GB/s, of which 45 to 48 can be
//! used in each direction (ROCm's blog on RCCL and xGMI); 8 compute units move a transfer at that rate
//! (TransferBench there). A stream's work costs some 5 to 10 µs, in which a link moves 256 to 512 KiB: the
//! copy engine, which costs two such steps where a kernel costs one, is left to sizes well above that.

use crate::describe::{Link, link};
use crate::runtime::Runtime;
use symmem_core::backend::CallResult;
use symmem_core::backend::gpu::tuning::*;

/// The tables for every device.
pub fn transfers() -> Transfers {
    UNMEASURED
}

const UNMEASURED: Transfers = Transfers {
    put: rows([
        vector(16 * KIB, 1, 512),
        vector(64 * KIB, 4, 512),
        vector(2 * MIB, 8, 512),
        copy_engine(),
    ]),
    // A load waits for its answer where a store does not, so more of them are in flight.
    get: rows([
        vector(16 * KIB, 1, 512),
        vector(64 * KIB, 4, 512),
        vector(4 * MIB, 16, 512),
        copy_engine(),
    ]),
};

/// How many peers at once keep the links of a device busy: as many as it has links of its own to, which in
/// a mesh are all; 1 where all share what lies between.
pub fn fanout(runtime: &Runtime, ordinal: u32) -> CallResult<u32> {
    let peers = (0..runtime.device_count()?).filter(|&peer| peer != ordinal);
    let direct = peers.filter(|&peer| link(runtime, ordinal, peer) == Link::Direct);
    Ok(direct.count().max(1) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_grows_ends_and_can_be_launched() {
        assert_eq!(transfer_flaws(&transfers(), 64, false), [""; 0]);
    }
}
