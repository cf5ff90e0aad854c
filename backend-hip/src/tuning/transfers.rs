//! Tuning data of transfers, by direction and size, and the number of peers that keep the links busy.
//!
//! Not measured. Published for MI300X: a pair of devices has one link of 64 GB/s, of which 45 to 48 are usable
//! in each direction (ROCm's blog on RCCL and xGMI), and 8 compute units move a transfer at that rate
//! (TransferBench there). Work on a stream costs some 5 to 10 µs, in which a link moves 256 to 512 KiB. The
//! copy engine costs two such steps and a kernel one, so the copy engine starts well above these sizes.

use symmem_gpu::tuning::*;

/// Returns the tables, which are the same for every device.
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
    // A load waits for its answer and a store does not, so more loads are in flight.
    get: rows([
        vector(16 * KIB, 1, 512),
        vector(64 * KIB, 4, 512),
        vector(4 * MIB, 16, 512),
        copy_engine(),
    ]),
};

/// Number of peers that keep a device's links busy: all, since a board has eight devices with a link between
/// each pair. A constant, because a rank may see only its own device, and all ranks need the same value.
pub const FANOUT: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_grows_ends_and_can_be_launched() {
        assert_eq!(transfer_flaws(&transfers(), 64, false), [""; 0]);
    }
}
