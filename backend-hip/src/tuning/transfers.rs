//! Data: how bytes are best moved, by direction and size, and how many peers at once keep the links busy.
//!
//! Not measured. Published for MI300X: a pair of devices has one link of 64 GB/s, of which 45 to 48 can be
//! used in each direction (ROCm's blog on RCCL and xGMI); 8 compute units move a transfer at that rate
//! (TransferBench there). A stream's work costs some 5 to 10 µs, in which a link moves 256 to 512 KiB: the
//! copy engine, which costs two such steps where a kernel costs one, is left to sizes well above that.

use symmem_gpu::tuning::*;

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

/// How many peers at once keep the links of a device busy: all. A board has eight of these devices, each
/// with a link to each other. Not asked for, since a rank may see its own device alone, and all ranks have
/// to say the same.
pub const FANOUT: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_grows_ends_and_can_be_launched() {
        assert_eq!(transfer_flaws(&transfers(), 64, false), [""; 0]);
    }
}
