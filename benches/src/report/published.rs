//! Figures that others published, for context only. symmem measured none of them.

use super::ag_gemm::GemmProblem;

/// The method behind the figures.
pub const METHOD: &str = "One block of 128 threads on each of two Hopper GPUs over NVLink, both ranks moving at once; \
     f32 buffers; 10 warm-up launches, then 50 launches back to back between two events. GB/s (10⁹ bytes a second).";

/// Why they cannot be compared directly with a measurement on another machine.
pub const CAVEAT: &str = "Published by others, not measured in this run: another machine, and NVSHMEM 3.2.5 on its \
     legacy IPC heap. The TileScale columns are shown as they were printed, very likely computed from elements \
     instead of bytes: a later edition of the same table is 3.8 to 4.5 times higher at every size (11.91 push and \
     2.28 pull at 4 MiB).";

/// One size of the published one-block table, GB/s as printed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Bytes of one transfer.
    pub bytes: u64,
    /// NVSHMEM 3.2.5, put.
    pub nvshmem_push: f64,
    /// NVSHMEM 3.2.5, get.
    pub nvshmem_pull: f64,
    /// TileScale's unrolled copy, put, as printed.
    pub tilescale_push: f64,
    /// TileScale's unrolled copy, get, as printed.
    pub tilescale_pull: f64,
}

const fn row(bytes: u64, nvshmem: [f64; 2], tilescale: [f64; 2]) -> Row {
    Row {
        bytes,
        nvshmem_push: nvshmem[0],
        nvshmem_pull: nvshmem[1],
        tilescale_push: tilescale[0],
        tilescale_pull: tilescale[1],
    }
}

/// One-block peer-to-peer bandwidth as TileScale's distributed benchmark printed it (2025).
pub const ONE_BLOCK: [Row; 12] = [
    row(2 << 10, [0.1680, 0.1755], [0.0150, 0.0151]),
    row(4 << 10, [0.3415, 0.4082], [0.0307, 0.0301]),
    row(8 << 10, [0.6836, 0.8497], [0.0619, 0.0602]),
    row(16 << 10, [1.4119, 1.6178], [0.1226, 0.1199]),
    row(32 << 10, [2.4592, 1.8878], [0.2434, 0.2494]),
    row(64 << 10, [4.9380, 2.0408], [0.4649, 0.5221]),
    row(128 << 10, [8.7134, 2.1465], [0.9800, 0.5468]),
    row(256 << 10, [9.0743, 2.1935], [1.9186, 0.5550]),
    row(512 << 10, [10.0191, 2.2156], [2.7941, 0.5624]),
    row(1 << 20, [10.4359, 2.2352], [2.9053, 0.5683]),
    row(2 << 20, [10.5573, 2.2456], [2.9554, 0.5704]),
    row(4 << 20, [10.6560, 2.2474], [2.9887, 0.5711]),
];

/// Whether all devices are Hopper GPUs, which the figures of this file are for.
pub fn is_hopper(devices: &[String]) -> bool {
    let kinds = ["NVIDIA H100", "NVIDIA H200", "NVIDIA GH200"];
    let known = |name: &String| kinds.iter().any(|kind| name.starts_with(kind));
    !devices.is_empty() && devices.iter().all(known)
}

/// Whether a shape is the one for which overlapped all-gather + GEMM was published.
pub fn is_overlap(problem: &GemmProblem) -> bool {
    (problem.m, problem.n, problem.k) == (32768, 8192, 16384)
}

/// The published figures for it, by DDLB's method, one line each.
pub const OVERLAP: [&str; 2] = [
    "Published by others for 32768x8192x16384 on 8 H100s, not measured in this run: nvFuser's peer-to-peer pipeline 678 TFLOP/s,",
    "Transformer Engine 660, nvFuser or PyTorch over NCCL 560; 50 calls back to back, no barrier, mean of rank 0 (as --ddlb).",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_doubles_from_2_kib_to_4_mib() {
        assert_eq!(ONE_BLOCK[0].bytes, 2 << 10);
        assert_eq!(ONE_BLOCK[11].bytes, 4 << 20);
        for pair in ONE_BLOCK.windows(2) {
            assert_eq!(pair[1].bytes, 2 * pair[0].bytes);
        }
    }
}
