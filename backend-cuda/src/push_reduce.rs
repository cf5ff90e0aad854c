//! The GEMM + reduce kernel with large tiles (`ReducedMode::PUSH`), which loads the matrices by tensor copies (TMA).

use crate::clusters::{CLUSTER, THREADS};
use crate::instance::CudaBackend;
use crate::tensor_maps::{ALIGNMENT, Fetch, TensorReducedArguments, are_aligned};
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::Gpu;
use symmem_gpu::gathered_gemm::{ELEMENT_BYTES, countable};
use symmem_gpu::reduced_gemm::{invalid, unsupported};
use symmem_kernels_ptx::REDUCED_GEMM_SHARED_MEMORY;

/// Tile of `C` that a block computes (`kernels-ptx/src/reduced_gemm`).
const TILE_ROWS: u32 = 128;
const TILE_COLUMNS: u32 = 256;
/// Columns of a TMA box of `B`: half of a tile. In a cluster of two, each block loads one half for both.
const BOX_COLUMNS: u32 = 128;
/// Words of a tile: one for each of the two warpgroups that compute it.
const TILE_WORDS: u64 = 2;

/// Returns the kernel's name for a shape; `None` if there is no such kernel. The device may lack it all the same.
fn kernel_name(shape: &GemmLayout) -> Option<&'static str> {
    Some(match (shape.element, shape.b_order) {
        (ElementTypeCode::F16, MatrixOrderCode::ROWS) => "symmem_reduced_gemm_f16_rows",
        (ElementTypeCode::F16, MatrixOrderCode::COLUMNS) => "symmem_reduced_gemm_f16_columns",
        (ElementTypeCode::BF16, MatrixOrderCode::ROWS) => "symmem_reduced_gemm_bf16_rows",
        (ElementTypeCode::BF16, MatrixOrderCode::COLUMNS) => "symmem_reduced_gemm_bf16_columns",
        _ => return None,
    })
}

/// Returns whether bulk copies can load the matrices of a shape and, with `all`, store rows of the sum. They need
/// aligned strides. `K` has at least one element, since the kernel adds nothing to zeros.
fn fits(shape: &GemmLayout, problem: &ReducedProblem) -> bool {
    let rows_leave = problem.all == 0 || [shape.n, shape.c_stride].into_iter().all(are_aligned);
    let lines = [shape.k, shape.a_stride, shape.b_stride];
    let partial = problem.partial == ElementTypeCode::F32 || problem.partial == shape.element;
    countable(shape)
        && shape.k != 0
        && lines.into_iter().all(are_aligned)
        && rows_leave
        && partial
        && problem.shard != 0
        && problem.world != 0
}

/// Sizes of a member's memory for a shape, as `device/include/symmem/reduced_gemm.h` divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    inbox_bytes: u64,
    word_bytes: u64,
}

impl Layout {
    /// `blocks`: those of the grid. Returns `None` for tiles that do not fit the kernel's 32-bit counters.
    fn new(shape: &GemmLayout, problem: &ReducedProblem, blocks: u32) -> Option<Self> {
        let row_tiles = problem.shard.min(shape.m).div_ceil(TILE_ROWS.into());
        let tiles = row_tiles.checked_mul(shape.n.div_ceil(TILE_COLUMNS.into()))?;
        let (world, peers) = (u64::from(problem.world), u64::from(problem.world - 1));
        // A rank's order of tiles pads each owner's rows to whole clusters.
        let ordered = tiles.checked_mul(2)?.checked_mul(world)?;
        i32::try_from(ordered).ok()?;
        let element_bytes = match problem.partial {
            ElementTypeCode::F32 => size_of::<f32>() as u64,
            _ => ELEMENT_BYTES,
        };
        let tile_bytes = u64::from(TILE_ROWS) * u64::from(TILE_COLUMNS) * element_bytes;
        let sums = if problem.all == 0 { 1 } else { 2 };
        let words = u64::from(blocks) + sums * peers * tiles * TILE_WORDS;
        Some(Self {
            inbox_bytes: peers * tiles * tile_bytes,
            word_bytes: world * SIGNAL_STRIDE + words * size_of::<u32>() as u64,
        })
    }
}

/// See [`symmem_core::backend::Gemm::reduced_gemm_limits`]; limits with 0 blocks if there is no kernel.
pub(crate) fn limits(
    backend: &CudaBackend,
    shape: &GemmLayout,
    problem: &ReducedProblem,
) -> ReducedLimits {
    let (state, table) = (backend.state(), &backend.driver.table);
    let known = |name: &str| state.kernels.by_name(name.as_bytes()).is_ok();
    let blocks = backend.clusters.reduced;
    let runs = kernel_name(shape).is_some_and(known)
        && table.cuLaunchKernelEx.is_some()
        && table.cuTensorMapEncodeTiled.is_some()
        && fits(shape, problem);
    let layout = match runs && blocks != 0 {
        true => Layout::new(shape, problem, blocks),
        false => None,
    };
    layout.map_or(ReducedLimits::default(), |layout| ReducedLimits {
        blocks,
        threads: THREADS,
        tile_m: TILE_ROWS,
        tile_n: TILE_COLUMNS,
        alignment: ALIGNMENT as u32,
        layout: 0,
        inbox_bytes: layout.inbox_bytes,
        word_bytes: layout.word_bytes,
    })
}

/// See [`symmem_core::backend::Gemm::reduced_gemm`]. `blocks` are those of the limits.
///
/// # Errors
/// `UNSUPPORTED` for a shape without a kernel; `INVALID_ARGUMENT` for memory that bulk copies cannot access; the driver's
/// failure.
///
/// # Safety
/// As [`symmem_core::backend::Gemm::reduced_gemm`].
pub(crate) unsafe fn launch(
    backend: &CudaBackend,
    arguments: &ReducedGemmArguments,
    blocks: u32,
    on: RawStream,
) -> CallResult<()> {
    let shape = &arguments.shape;
    check_addresses(arguments)?;
    let kernel = kernel_name(shape).ok_or_else(unsupported)?;
    let kernel = backend.state().kernels.by_name(kernel.as_bytes())?;
    let fetch = Fetch::Bytes256;
    let tensors =
        TensorReducedArguments::new(backend.driver, arguments, TILE_ROWS, BOX_COLUMNS, fetch)?;
    let grid = symmem_gpu::Grid {
        blocks,
        threads: THREADS,
        shared_memory: REDUCED_GEMM_SHARED_MEMORY,
    };
    // In a cluster of two, the blocks' tiles lie below each other and share `B`.
    let cluster = if blocks.is_multiple_of(CLUSTER) {
        CLUSTER
    } else {
        1
    };
    // SAFETY: the kernel's argument is a `TensorReducedArguments`. The caller upholds the rest of the contract.
    unsafe { backend.launch_clusters(kernel, grid, cluster, (&raw const tensors).cast(), on) }
}

/// Checks what bulk copies access.
///
/// # Errors
/// `INVALID_ARGUMENT` for an address that is not aligned.
fn check_addresses(arguments: &ReducedGemmArguments) -> CallResult<()> {
    let members = arguments.group.world as usize;
    let results = if arguments.all == 0 { 0 } else { members };
    let inboxes = arguments.inboxes.iter().take(members);
    let results = arguments.results.iter().take(results);
    let named = [("A", arguments.a), ("B", arguments.b)].into_iter();
    let named = named.chain(inboxes.map(|inbox| ("a member's inbox", *inbox)));
    let mut named = named.chain(results.map(|result| ("a member's sum", *result)));
    let unaligned = named.find(|(_, address)| !address.0.is_multiple_of(ALIGNMENT));
    unaligned.map_or(Ok(()), |(what, address)| {
        Err(invalid(format!(
            "{what} begins at {:#x}; this kernel needs an address that is a multiple of {ALIGNMENT} bytes",
            address.0
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(n: u64, k: u64) -> GemmLayout {
        GemmLayout {
            m: 300,
            n,
            k,
            a_stride: k,
            b_stride: n.next_multiple_of(8),
            c_stride: n,
            element: ElementTypeCode::BF16,
            b_order: MatrixOrderCode::ROWS,
            bias: 0,
            addend: 0,
        }
    }

    fn problem(all: u32, partial: ElementTypeCode) -> ReducedProblem {
        ReducedProblem {
            shard: 150,
            world: 2,
            mode: ReducedMode::PUSH,
            all,
            partial,
        }
    }

    #[test]
    fn strides_that_bulk_copies_refuse_have_no_kernel() {
        let scatter = problem(0, ElementTypeCode::F32);
        assert!(fits(&shape(264, 1096), &scatter));
        assert!(!fits(&shape(264, 1097), &scatter), "a stride of A");
        let mut odd = shape(264, 1096);
        odd.b_stride = 265;
        assert!(!fits(&odd, &scatter), "a stride of B");
        assert!(!fits(&shape(264, 0), &scatter), "nothing to multiply");
        assert!(!fits(&shape(1 << 32, 64), &scatter));
    }

    #[test]
    fn an_owner_sends_only_rows_of_whole_vectors_to_all() {
        assert!(fits(&shape(265, 1096), &problem(0, ElementTypeCode::BF16)));
        assert!(!fits(&shape(265, 1096), &problem(1, ElementTypeCode::BF16)));
        assert!(fits(&shape(264, 1096), &problem(1, ElementTypeCode::BF16)));
        let mut odd = shape(264, 1096);
        odd.c_stride = 265;
        assert!(!fits(&odd, &problem(1, ElementTypeCode::BF16)));
    }

    #[test]
    fn a_partial_sum_travels_as_f32_or_as_an_element() {
        let fits = |partial| fits(&shape(264, 1096), &problem(0, partial));
        assert!(fits(ElementTypeCode::F32) && fits(ElementTypeCode::BF16));
        assert!(!fits(ElementTypeCode::F16));
    }

    #[test]
    fn an_inbox_has_room_for_the_tiles_of_each_peer_and_words_for_each() {
        let layout = |problem: &ReducedProblem| Layout::new(&shape(264, 1096), problem, 132);
        // 150 rows and 264 columns are two tiles by two.
        let scatter = layout(&problem(0, ElementTypeCode::BF16)).unwrap();
        assert_eq!(scatter.inbox_bytes, 4 * 128 * 256 * 2);
        assert_eq!(scatter.word_bytes, 2 * 128 + (132 + 4 * 2) * 4);
        let all = layout(&problem(1, ElementTypeCode::F32)).unwrap();
        assert_eq!(all.inbox_bytes, 4 * 128 * 256 * 4);
        assert_eq!(all.word_bytes, 2 * 128 + (132 + 2 * 4 * 2) * 4);
        let mut eight = problem(0, ElementTypeCode::BF16);
        eight.world = 8;
        let eight = layout(&eight).unwrap();
        assert_eq!(eight.inbox_bytes, 7 * scatter.inbox_bytes);
        let mut alone = problem(0, ElementTypeCode::BF16);
        alone.world = 1;
        assert_eq!(layout(&alone).unwrap().inbox_bytes, 0);
    }

    #[test]
    fn more_tiles_than_the_kernel_counts_have_no_layout() {
        let mut large = shape(1 << 31, 64);
        large.m = 1 << 31;
        let mut all_rows = problem(0, ElementTypeCode::BF16);
        all_rows.shard = 1 << 31;
        assert_eq!(Layout::new(&large, &all_rows, 132), None);
    }

    #[test]
    fn unaligned_memory_is_refused_and_named() {
        // SAFETY: the struct consists of integers and addresses, for which zero is a valid value.
        let mut arguments: ReducedGemmArguments = unsafe { std::mem::zeroed() };
        arguments.group.world = 2;
        let refused = |arguments: &ReducedGemmArguments| {
            check_addresses(arguments)
                .err()
                .map(|failure| failure.message)
        };
        assert_eq!(refused(&arguments), None);
        arguments.results[1] = DeviceAddress(8);
        assert_eq!(refused(&arguments), None, "not used");
        arguments.all = 1;
        assert!(refused(&arguments).unwrap().contains("a member's sum"));
        arguments.b = DeviceAddress(2);
        assert!(refused(&arguments).unwrap().contains("B begins at 0x2"));
    }
}
