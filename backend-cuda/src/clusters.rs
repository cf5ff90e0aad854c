//! How many blocks of the kernels that are launched in clusters are co-resident.
//!
//! The blocks of a cluster lie in one GPC, so fewer of them may fit than of single blocks, and how many depends on
//! the GPCs of this very device. The driver knows (`cuOccupancyMaxActiveClusters`).

use crate::driver::Driver;
use crate::driver::constants::LAUNCH_CLUSTERS;
use crate::driver::structs::{LaunchAttribute, LaunchConfiguration};
use crate::kernels::Kernel;
use std::ffi::c_int;
use std::ptr::null_mut;
use symmem_core::backend::CallResult;
use symmem_gpu::{Grid, Kernels};
use symmem_kernels_ptx::{
    GATHERED_GEMM_SHARED_MEMORY, REDUCED_GEMM_SHARED_MEMORY, SPLIT_GEMM_SHARED_MEMORY,
};

/// A kernel of each kind. The others of its kind have the same threads and shared memory, which leave room for one
/// block per SM.
const GATHERED: &[u8] = b"symmem_tensor_gemm_bf16_rows";
const REDUCED: &[u8] = b"symmem_reduced_gemm_bf16_rows";
const SPLIT: &[u8] = b"symmem_split_gemm_bf16_rows_16";
const SPLIT_REDUCE: &[u8] = b"symmem_split_reduce_bf16_rows_16";

/// Threads of a block of the kernels with large tiles (`kernels-ptx/src/gathered_gemm` and `reduced_gemm`).
pub(crate) const THREADS: u32 = 384;
/// Blocks of one of its clusters, unless the blocks or movers of a grid are odd.
pub(crate) const CLUSTER: u32 = 2;
/// Threads of a block of the kernels for few rows.
pub(crate) const SPLIT_THREADS: u32 = 384;
/// Cluster sizes in blocks of the all-gather + GEMM kernel for few rows, largest first. Eight is the largest that every device supports (CUDA Programming
/// Guide, "Thread Block Clusters").
pub(crate) const PARTS: [u32; 4] = [8, 4, 2, 1];

/// Cluster sizes in blocks of the GEMM + reduce kernel for few rows, largest first. With clusters of four, 2048 columns
/// take a third longer than with clusters of three or six (H200): six SMs share a part of a GPC.
pub(crate) const REDUCE_PARTS: [u32; 4] = [6, 3, 2, 1];

/// Co-resident blocks by the size of their clusters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// Cluster sizes in blocks, largest first.
    pub parts: [u32; 4],
    /// Blocks that are co-resident in clusters of each size.
    pub blocks: [u32; 4],
}

impl Room {
    /// Makes the room of a device of `units` SMs, on which `clusters` of each of `sizes` are co-resident by the
    /// driver.
    pub(crate) fn new(units: u32, sizes: [u32; 4], clusters: [u32; 4]) -> Self {
        let mut blocks = [0; 4];
        for ((room, parts), clusters) in blocks.iter_mut().zip(sizes).zip(clusters) {
            // A cluster does not span GPCs: of 132 SMs, clusters of four or eight can use 120, clusters of two all
            // (H200: `2026-11-22-split-gemm-2xh200`).
            let measured = if parts > 2 { units - units / 11 } else { units };
            *room = measured.min(clusters * parts);
        }
        Self {
            parts: sizes,
            blocks,
        }
    }
}

/// Co-resident blocks of the kernels that are launched in clusters; 0 if the device or the driver lacks them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clusters {
    /// Blocks of the all-gather + GEMM kernel, in clusters of [`CLUSTER`] or alone.
    pub gathered: u32,
    /// Blocks of the GEMM + reduce kernel, in clusters of [`CLUSTER`] or alone.
    pub reduced: u32,
    /// Blocks of the all-gather + GEMM kernel for few rows, in clusters of [`PARTS`].
    pub split: Room,
    /// Blocks of the GEMM + reduce kernel for few rows, in clusters of [`REDUCE_PARTS`].
    pub reduce: Room,
}

impl Clusters {
    /// Asks the driver. The device is current.
    ///
    /// # Errors
    /// The driver's failure.
    pub fn ask(
        driver: &'static Driver,
        kernels: &Kernels<Kernel>,
        units: u32,
        shared_bytes: u32,
    ) -> CallResult<Self> {
        let mut clusters = Self::default();
        let large_tiles = |name, shared_memory| match kernels.by_name(name) {
            Ok(kernel) if shared_bytes >= shared_memory => {
                let grid = Grid {
                    blocks: CLUSTER,
                    threads: THREADS,
                    shared_memory,
                };
                let resident = resident(driver, kernel, grid)?;
                CallResult::Ok(units.min(resident * CLUSTER))
            }
            _ => Ok(0),
        };
        clusters.gathered = large_tiles(GATHERED, GATHERED_GEMM_SHARED_MEMORY)?;
        clusters.reduced = large_tiles(REDUCED, REDUCED_GEMM_SHARED_MEMORY)?;
        let split = |name, sizes: [u32; 4]| -> CallResult<Room> {
            let mut all = [0; 4];
            if let Ok(kernel) = kernels.by_name(name)
                && shared_bytes >= SPLIT_GEMM_SHARED_MEMORY
            {
                for (clusters, blocks) in all.iter_mut().zip(sizes) {
                    let grid = Grid {
                        blocks,
                        threads: SPLIT_THREADS,
                        shared_memory: SPLIT_GEMM_SHARED_MEMORY,
                    };
                    *clusters = resident(driver, kernel, grid)?;
                }
            }
            Ok(Room::new(units, sizes, all))
        };
        clusters.split = split(SPLIT, PARTS)?;
        clusters.reduce = split(SPLIT_REDUCE, REDUCE_PARTS)?;
        Ok(clusters)
    }
}

/// Returns how many clusters are co-resident of which each is as large as `grid`; 0 if the driver has none (before
/// CUDA 11.8).
fn resident(driver: &'static Driver, kernel: Kernel, grid: Grid) -> CallResult<u32> {
    let Some(ask) = driver.table.cuOccupancyMaxActiveClusters else {
        return Ok(0);
    };
    let mut rest = [0; 15];
    // Cluster dimensions along y and z.
    [rest[0], rest[1]] = [1, 1];
    let cluster = LaunchAttribute {
        kind: LAUNCH_CLUSTERS,
        padding: 0,
        value: grid.blocks,
        rest,
    };
    let configuration = LaunchConfiguration {
        blocks: [grid.blocks, 1, 1],
        threads: [grid.threads, 1, 1],
        shared_memory: grid.shared_memory,
        stream: null_mut(),
        attributes: &raw const cluster,
        count: 1,
    };
    let mut clusters: c_int = 0;
    // SAFETY: the out-pointer is writable, and the driver reads the configuration and its attribute before it
    // returns; the function is live.
    let code = unsafe { ask(&raw mut clusters, kernel.function, &raw const configuration) };
    driver.check("cuOccupancyMaxActiveClusters", code)?;
    Ok(u32::try_from(clusters).unwrap_or(0))
}
