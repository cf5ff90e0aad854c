//! Link ratings, and figures that others published for AMD GPUs. symmem measured none of them.

use crate::report::collectives::Collective;
use crate::report::schema::{Column, Direction, Traffic};

/// Rated link bandwidth of a device, one way, in GB/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Device names, as the driver reports them.
    pub devices: &'static [&'static str],
    /// Bandwidth between one pair of devices.
    pub pair: f64,
    /// Bandwidth of one device to all its peers.
    pub device: f64,
    /// Source of the ratings.
    pub source: &'static str,
}

impl Link {
    /// Returns the bandwidth of a device to `world - 1` peers: all of it behind a switch, one link per peer in a mesh.
    pub fn to_peers(&self, world: u32) -> f64 {
        (self.pair * f64::from(world.saturating_sub(1))).min(self.device)
    }

    /// Returns the rating of the device with this name, if known.
    pub fn of(device: &str) -> Option<&'static Self> {
        LINKS.iter().find(|link| link.devices.contains(&device))
    }
}

/// Link ratings by device. NVIDIA's are for boards with NVSwitch; on four-GPU boards without it, a pair has a third.
/// MI250 is missing because its pairs have different numbers of links.
pub const LINKS: [Link; 4] = [
    Link {
        devices: &["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"],
        pair: 300.0,
        device: 300.0,
        source: "NVIDIA: NVLink 3 behind NVSwitch, 600 GB/s both ways (https://www.nvidia.com/en-us/data-center/a100/)",
    },
    Link {
        devices: &["NVIDIA H100 80GB HBM3", "NVIDIA H200"],
        pair: 450.0,
        device: 450.0,
        source: "NVIDIA: NVLink 4 behind NVSwitch, 900 GB/s both ways (https://www.nvidia.com/en-us/data-center/h200/)",
    },
    Link {
        devices: &[
            "AMD Instinct MI300X",
            "AMD Instinct MI300X OAM",
            "AMD Instinct MI325X",
        ],
        pair: 64.0,
        device: 448.0,
        source: "AMD: 7 links of 64 GB/s each way \
                 (https://rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi/README.html)",
    },
    Link {
        devices: &["AMD Instinct MI350X", "AMD Instinct MI355X"],
        pair: 76.8,
        device: 537.6,
        source: "AMD: 7 links of 153.6 GB/s both ways \
                 (https://www.amd.com/en/products/accelerators/instinct/mi350.html)",
    },
];

/// The measurement that a reference belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Transfers between pairs.
    Pairs(Direction, Traffic, Column),
    /// A collective, out of place; its rates are busbw.
    Collective(Collective),
}

/// One published curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// The measurement.
    pub subject: Subject,
    /// The program or library.
    pub by: &'static str,
    /// The device, as in [`LINKS`].
    pub device: &'static str,
    /// Number of devices.
    pub world: u32,
    /// Publisher, method and address.
    pub source: &'static str,
    /// Bytes and GB/s.
    pub rates: &'static [(u64, f64)],
}

impl Reference {
    /// Returns the rating of the links it could use, one way, in GB/s: of a pair, or of a device to its peers.
    pub fn link(&self) -> Option<f64> {
        let link = Link::of(self.device)?;
        Some(match self.subject {
            Subject::Pairs(..) => link.pair,
            Subject::Collective(_) => link.to_peers(self.world),
        })
    }
}

/// The blog's command, versions and address.
const BLOG: &str = "AMD's blog of 2 March 2025, rccl-tests all_reduce_perf -G 1 (graph replay), float, out of place, \
                    RCCL 2.22.3, ROCm 6.3 \
                    (https://rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi/README.html)";
const TRANSFER_BENCH: &str = "AMD's blog of 2 March 2025, TransferBench a2a 64M 8: all pairs at once, 8 compute units for \
                              each, mean of the links \
                              (https://rocm.blogs.amd.com/software-tools-optimization/mi300x-rccl-xgmi/README.html)";
const SWEEP: &str = "Iris, CU sweep of 22 March 2026, float16, 128 MiB of each rank, looped \
                     (https://github.com/ROCm/iris/blob/52b727eb0f424cf5087969a1f11512e4d15a7f61/analysis/cu_sweep_results.md)";

/// Published figures, as printed.
pub const REFERENCES: [Reference; 4] = [
    Reference {
        subject: Subject::Pairs(Direction::Push, Traffic::BothWays, Column::GridBest),
        by: "TransferBench",
        device: "AMD Instinct MI300X",
        world: 8,
        source: TRANSFER_BENCH,
        rates: &[(64 << 20, 46.552)],
    },
    Reference {
        subject: Subject::Collective(Collective::AllReduce),
        by: "RCCL 2.22.3",
        device: "AMD Instinct MI300X",
        world: 8,
        source: BLOG,
        rates: &[
            (1 << 10, 0.24),
            (2 << 10, 0.48),
            (4 << 10, 0.94),
            (8 << 10, 1.88),
            (16 << 10, 3.29),
            (32 << 10, 6.33),
            (64 << 10, 12.54),
            (128 << 10, 24.12),
            (256 << 10, 44.69),
            (512 << 10, 64.32),
            (1 << 20, 94.61),
            (2 << 20, 104.76),
            (4 << 20, 141.62),
            (8 << 20, 175.30),
            (16 << 20, 196.96),
            (32 << 20, 241.23),
            (64 << 20, 274.45),
            (128 << 20, 295.35),
            (256 << 20, 306.15),
            (512 << 20, 310.69),
            (1 << 30, 315.18),
        ],
    },
    // Printed as algorithm bandwidth and as seven times the rate of a link, which is busbw.
    Reference {
        subject: Subject::Collective(Collective::AllGather),
        by: "RCCL of unknown version",
        device: "AMD Instinct MI355X",
        world: 8,
        source: SWEEP,
        rates: &[(1 << 30, 371.34)],
    },
    Reference {
        subject: Subject::Collective(Collective::AllGather),
        by: "Iris, 80 compute units",
        device: "AMD Instinct MI355X",
        world: 8,
        source: SWEEP,
        rates: &[(1 << 30, 362.47)],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mesh_has_a_link_for_each_peer_and_a_switch_all_of_them() {
        let mesh = Link::of("AMD Instinct MI300X").unwrap();
        assert_eq!(
            [2, 4, 8].map(|world| mesh.to_peers(world)),
            [64.0, 192.0, 448.0]
        );
        let switch = Link::of("NVIDIA H200").unwrap();
        assert_eq!([2, 8].map(|world| switch.to_peers(world)), [450.0, 450.0]);
        assert_eq!(
            Link::of("NVIDIA H200 NVL"),
            None,
            "bridges in pairs, no switch"
        );
    }

    #[test]
    fn no_published_rate_is_above_what_its_links_can_carry() {
        for reference in REFERENCES {
            let link = reference.link().expect("each names a device that is known");
            for (bytes, gbps) in reference.rates {
                assert!(*gbps < link, "{}: {bytes}", reference.by);
            }
            assert!(reference.rates.is_sorted_by_key(|(bytes, _)| *bytes));
            assert!(reference.source.contains("https://"));
        }
    }
}
