//! The GEMM + reduce kernel for few rows ([`ReducedMode::PACKETS`]): the blocks of a cluster split `K` among them, and send
//! their sums as packets.

use crate::clusters::{Room, SPLIT_THREADS};
use crate::instance::CudaBackend;
use crate::split_gemm::{Grid, TILE_COLUMNS};
use crate::tensor_maps::{ALIGNMENT, Fetch, TensorReducedArguments, are_aligned};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::Gpu;
use symmem_gpu::gathered_gemm::countable;
use symmem_gpu::reduced_gemm::unsupported;
use symmem_kernels_ptx::{SPLIT_GEMM_SHARED_MEMORY, SPLIT_REDUCE, SPLIT_REDUCE_ROWS};

/// Bytes of a packet.
const PACKET_BYTES: u64 = 16;
/// Largest inbox in bytes, a bound that keeps the places of packets in 32 bits. Such large results are not for packets,
/// which all ranks send to all.
const MOST_INBOX_BYTES: u64 = 1 << 30;

/// Rows up to which a grid without clusters that leaves compute units idle pays, and rows up to which any `K` pays. Beyond
/// them a library GEMM followed by a collective is as fast.
const MOST_ROWS_ALONE: u64 = 32;
const MOST_ROWS_OF_LONG_K: u64 = 64;
/// Longest `K` of a rank with more rows.
const MOST_K_OF_MORE_ROWS: u64 = 4096;

/// Returns the grid for a shape, whose rows are all in one tile, such that `B` is read once; `None` if there is none, or
/// if a library GEMM followed by a collective is faster.
///
/// A pair of SMs loads about 70 GB/s, however many of the two do, and a block computes as much as any other. So a grid
/// must have at most a block per pair, or nearly two. Measured on H200, with 16 rows of 5120 columns and `K` 14336: 40
/// blocks 43 µs, 80 in clusters of two 52 µs, 120 in clusters of three 46 µs.
fn grid(shape: &GemmLayout, room: &Room) -> Option<Grid> {
    let units = room.blocks.into_iter().max().map_or(0, u64::from);
    let full = |parts: u32, blocks: u64| parts <= 2 && blocks >= units - units / 6;
    let good = |parts, blocks| blocks <= units / 2 || full(parts, blocks);
    let grid = Grid::dividing(shape, room, &SPLIT_REDUCE_ROWS, good)?;
    let alone = grid.parts == 1 && !full(grid.parts, grid.blocks.into());
    let pays = (shape.m <= MOST_ROWS_ALONE || !alone)
        && (shape.m <= MOST_ROWS_OF_LONG_K || shape.k <= MOST_K_OF_MORE_ROWS);
    let fits = shape.m != 0 && shape.n != 0 && shape.m <= grid.rows.into();
    (fits && pays).then_some(grid)
}

fn kernel_name(grid: &Grid, shape: &GemmLayout) -> Option<&'static str> {
    Some(SPLIT_REDUCE[grid.kernel(shape, &SPLIT_REDUCE_ROWS)?].name)
}

/// Returns the bytes of an inbox: two buffers used in turn, each with a part for every peer. A part has a packet for each
/// place of the rows that its receiver wants, and one for each block. `None` for a problem that the kernel cannot take.
fn inbox_bytes(shape: &GemmLayout, problem: &ReducedProblem, grid: &Grid) -> Option<u64> {
    let columns = match problem.partial {
        ElementTypeCode::F32 => 4,
        partial if partial == shape.element => 8,
        _ => return None,
    };
    let rows = match problem.all {
        0 => problem.shard.min(shape.m),
        _ => shape.m,
    };
    let everything = u64::from(problem.world).saturating_mul(problem.shard) >= shape.m;
    if !everything || !(2..=MAX_RANKS as u32).contains(&problem.world) {
        return None;
    }
    let packets = rows.checked_mul(shape.n.div_ceil(columns))? + u64::from(grid.blocks);
    let peers = u64::from(problem.world) - 1;
    let bytes = packets.checked_mul(PACKET_BYTES)?.checked_mul(2 * peers)?;
    (bytes <= MOST_INBOX_BYTES).then_some(bytes)
}

/// Returns whether tensor copies can load matrices with a shape's strides.
fn fits(shape: &GemmLayout) -> bool {
    let lines = [shape.a_stride, shape.b_stride];
    countable(shape) && lines.into_iter().all(are_aligned)
}

/// Returns the limits of the kernel, with 0 blocks if there is none for the problem on this device.
pub(crate) fn limits(
    backend: &CudaBackend,
    shape: &GemmLayout,
    problem: &ReducedProblem,
) -> ReducedLimits {
    let state = backend.state();
    let table = &backend.driver.table;
    let launches = table.cuLaunchKernelEx.is_some() && table.cuTensorMapEncodeTiled.is_some();
    let room = state.capabilities.shared_memory_per_block >= SPLIT_GEMM_SHARED_MEMORY;
    let known = |name: &str| state.kernels.by_name(name.as_bytes()).is_ok();
    let grid = grid(shape, &backend.clusters.reduce)
        .filter(|grid| kernel_name(grid, shape).is_some_and(known))
        .filter(|_| launches && room && fits(shape));
    let found = grid.and_then(|grid| {
        let inbox_bytes = inbox_bytes(shape, problem, &grid)?;
        Some(ReducedLimits {
            blocks: grid.blocks,
            threads: SPLIT_THREADS,
            tile_m: grid.rows,
            tile_n: TILE_COLUMNS,
            alignment: ALIGNMENT as u32,
            layout: 0,
            inbox_bytes,
            // Three counters of this rank alone.
            word_bytes: SIGNAL_STRIDE,
        })
    });
    found.unwrap_or_default()
}

/// Launches the kernel, by programmatic dependent launch if the driver can.
///
/// # Errors
/// `UNSUPPORTED` for a shape without a grid; `INVALID_ARGUMENT` for matrices that tensor copies cannot load; the
/// driver's failure.
///
/// # Safety
/// As [`symmem_core::backend::Gemm::reduced_gemm`].
pub(crate) unsafe fn launch(
    backend: &CudaBackend,
    arguments: &ReducedGemmArguments,
    on: RawStream,
) -> CallResult<()> {
    let shape = &arguments.shape;
    let grid = grid(shape, &backend.clusters.reduce).ok_or_else(unsupported)?;
    let kernel = kernel_name(&grid, shape).ok_or_else(unsupported)?;
    let kernel = backend.state().kernels.by_name(kernel.as_bytes())?;
    let tensors = TensorReducedArguments::new(
        backend.driver,
        arguments,
        grid.rows,
        TILE_COLUMNS,
        Fetch::Bytes64,
    )?;
    let blocks = symmem_gpu::Grid {
        blocks: grid.blocks,
        threads: SPLIT_THREADS,
        shared_memory: SPLIT_GEMM_SHARED_MEMORY,
    };
    // SAFETY: the kernel's argument is a `TensorReducedArguments`. It waits for its predecessor before it accesses memory;
    // what it prefetches into L2 before that has no effect. The caller upholds the rest of the contract.
    unsafe { backend.launch_clusters(kernel, blocks, grid.parts, (&raw const tensors).cast(), on) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clusters::REDUCE_PARTS;

    fn shape(m: u64, n: u64, k: u64) -> GemmLayout {
        GemmLayout {
            m,
            n,
            k,
            a_stride: k,
            b_stride: k,
            c_stride: n,
            element: ElementTypeCode::BF16,
            b_order: MatrixOrderCode::COLUMNS,
            ..GemmLayout::default()
        }
    }

    /// An H200.
    fn of(shape: &GemmLayout) -> Option<Grid> {
        grid(shape, &Room::new(132, REDUCE_PARTS, [20, 42, 66, 132]))
    }

    fn problem(shard: u64, world: u32, all: bool, partial: ElementTypeCode) -> ReducedProblem {
        ReducedProblem {
            shard,
            world,
            mode: ReducedMode::PACKETS,
            all: all.into(),
            partial,
        }
    }

    fn blocks(m: u64, n: u64, k: u64) -> Option<(u32, u32, u32)> {
        of(&shape(m, n, k)).map(|grid| (grid.rows, grid.parts, grid.blocks))
    }

    #[test]
    fn k_is_divided_until_each_pair_of_compute_units_has_a_block_or_nearly_two() {
        assert_eq!(blocks(1, 1024, 4096), Some((16, 6, 48)));
        assert_eq!(blocks(16, 2048, 4096), Some((16, 3, 48)), "not 96");
        assert_eq!(blocks(17, 4096, 4096), Some((32, 2, 64)), "not 96");
        assert_eq!(blocks(16, 5120, 4096), Some((16, 1, 40)), "not 80 or 120");
        assert_eq!(blocks(64, 7168, 4096), Some((64, 2, 112)));
        assert_eq!(blocks(64, 8192, 14336), Some((64, 2, 128)));
        assert_eq!(blocks(16, 12288, 4096), None, "96 blocks");
        assert_eq!(blocks(16, 16384, 4096), Some((16, 1, 128)));
        assert_eq!(blocks(16, 133 * 128, 4096), None, "not co-resident");
    }

    #[test]
    fn a_short_k_is_not_divided_further_than_its_steps() {
        assert_eq!(blocks(16, 1024, 128), Some((16, 2, 16)));
        assert_eq!(blocks(16, 1024, 64), Some((16, 1, 8)));
        assert_eq!(
            blocks(16, 1024, 0),
            Some((16, 1, 8)),
            "this rank's K is empty"
        );
    }

    #[test]
    fn all_rows_are_in_one_tile() {
        assert_eq!(blocks(128, 8192, 4096), Some((128, 2, 128)));
        assert_eq!(blocks(129, 8192, 4096), None, "B would be read twice");
        assert_eq!(blocks(0, 1024, 4096), None);
        assert_eq!(blocks(16, 0, 4096), None);
    }

    #[test]
    fn where_a_library_gemm_and_a_collective_are_as_fast_there_is_no_grid() {
        assert_eq!(blocks(32, 5120, 4096), Some((32, 1, 40)));
        assert_eq!(blocks(33, 5120, 4096), None, "no clusters");
        assert_eq!(blocks(65, 8192, 4096), Some((128, 2, 128)));
        assert_eq!(blocks(65, 8192, 4104), None, "more rows, long K");
    }

    #[test]
    fn a_kernel_is_named_by_its_matrices_and_rows() {
        let name = |element, b_order, m| {
            let shape = GemmLayout {
                element,
                b_order,
                ..shape(m, 128, 128)
            };
            of(&shape).and_then(|grid| kernel_name(&grid, &shape))
        };
        let (f16, bf16) = (ElementTypeCode::F16, ElementTypeCode::BF16);
        let (rows, columns) = (MatrixOrderCode::ROWS, MatrixOrderCode::COLUMNS);
        assert_eq!(name(f16, rows, 1), Some("symmem_split_reduce_f16_rows_16"));
        assert_eq!(
            name(f16, columns, 33),
            Some("symmem_split_reduce_f16_columns_64")
        );
        assert_eq!(
            name(bf16, rows, 100),
            Some("symmem_split_reduce_bf16_rows_128")
        );
        assert_eq!(
            name(bf16, columns, 17),
            Some("symmem_split_reduce_bf16_columns_32")
        );
        assert_eq!(name(ElementTypeCode::F32, rows, 1), None);
    }

    #[test]
    fn an_inbox_holds_two_calls_packets_of_every_peer() {
        let bytes = |m, n, problem| {
            let shape = shape(m, n, 4096);
            of(&shape).and_then(|grid| inbox_bytes(&shape, &problem, &grid))
        };
        let (bf16, f32) = (ElementTypeCode::BF16, ElementTypeCode::F32);
        let whole = |rows: u64, per_row: u64, blocks: u64, peers: u64| {
            Some(2 * peers * (rows * per_row + blocks) * 16)
        };
        assert_eq!(
            bytes(64, 8192, problem(32, 2, false, bf16)),
            whole(32, 1024, 128, 1)
        );
        assert_eq!(
            bytes(64, 8192, problem(32, 2, true, bf16)),
            whole(64, 1024, 128, 1)
        );
        assert_eq!(
            bytes(64, 8192, problem(8, 8, false, f32)),
            whole(8, 2048, 128, 7)
        );
        assert_eq!(
            bytes(5, 1003, problem(8, 2, false, bf16)),
            whole(5, 126, 48, 1),
            "one rank owns all rows"
        );
    }

    #[test]
    fn what_the_kernel_cannot_add_has_no_inbox() {
        let shape = shape(16, 1024, 4096);
        let grid = of(&shape).unwrap();
        let bytes = |problem| inbox_bytes(&shape, &problem, &grid);
        let bf16 = ElementTypeCode::BF16;
        assert!(bytes(problem(8, 2, false, bf16)).is_some());
        assert_eq!(bytes(problem(8, 2, false, ElementTypeCode::F16)), None);
        assert_eq!(
            bytes(problem(7, 2, false, bf16)),
            None,
            "rows without an owner"
        );
        assert_eq!(bytes(problem(16, 1, false, bf16)), None, "no peer");
        assert_eq!(bytes(problem(0, 2, true, bf16)), None);
    }

    #[test]
    fn strides_that_tensor_copies_refuse_have_no_kernel() {
        assert!(fits(&shape(16, 1003, 1096)));
        assert!(!fits(&shape(16, 1000, 1097)));
        let gaps = GemmLayout {
            a_stride: 1097,
            ..shape(16, 1000, 1096)
        };
        assert!(!fits(&gaps));
    }
}
