//! The kernels that multiply what they gather: Hopper's, by warpgroups, fed by tensor copies.
//!
//! Their matrices reach them as tensor maps, which the driver encodes from the arguments at each launch: pure
//! arithmetic on the host, a few hundred nanoseconds each.

use crate::driver::Driver;
use crate::driver::constants::tensor_map::*;
use crate::instance::CudaBackend;
use crate::split_gemm;
use std::ffi::c_void;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::Gpu;
use symmem_gpu::gathered_gemm::{ELEMENT_BYTES, Rates, countable, grid, invalid, unsupported};
use symmem_kernels_ptx::{GATHERED_GEMM_SHARED_MEMORY, SPLIT_GEMM_SHARED_MEMORY};

/// What the kernel computes at a time, and the threads that do (`kernels-ptx/src/gathered_gemm`).
const TILE_ROWS: u32 = 128;
const TILE_COLUMNS: u32 = 256;
const THREADS: u32 = 384;
/// Columns of a box of `B`: half of a tile's, which each of two blocks loads for both.
const BOX_COLUMNS: u32 = 128;
/// Elements along a row of a box, which are the 128 bytes of the swizzle.
const BOX_LENGTH: u32 = 64;
/// Tensor copies want addresses and strides that are multiples of so many bytes.
const ALIGNMENT: u64 = 16;
/// Bytes a second that a block moves, and operations a second of the product (H200:
/// `2026-11-21-gathered-gemm-2xh200`).
const RATES: Rates = Rates {
    mover: 24e9,
    product: 650e12,
};

/// `CUtensorMap`: opaque.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct TensorMap([u64; 16]);

/// What the kernels take.
#[repr(C, align(64))]
pub(crate) struct TensorGemmArguments {
    own: TensorMap,
    gathered: TensorMap,
    b: TensorMap,
    pub(crate) arguments: GatheredGemmArguments,
}

impl TensorGemmArguments {
    /// For tiles of so many rows, and boxes of so many columns of B where neighbours are along those.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for matrices that tensor copies cannot fetch.
    pub(crate) fn new(
        driver: &Driver,
        arguments: &GatheredGemmArguments,
        tile_rows: u32,
        box_columns: u32,
    ) -> CallResult<Self> {
        let shape = &arguments.shape;
        let map = |what, lines, height| encode(driver, what, shape.element, lines, height);
        let [own, gathered, b] = matrices(arguments);
        let b_box = match shape.b_order {
            MatrixOrder::ROWS => BOX_LENGTH,
            _ => box_columns,
        };
        Ok(Self {
            own: map("this rank's shard of A", own, tile_rows)?,
            gathered: map("the gathered A", gathered, tile_rows)?,
            b: map("B", b, b_box)?,
            arguments: *arguments,
        })
    }
}

/// A matrix in memory: elements along its contiguous side, lines of them, elements from line to line.
#[derive(Clone, Copy)]
struct Lines {
    address: DeviceAddress,
    length: u64,
    count: u64,
    stride: u64,
}

/// The kernel for a shape, if there is one on this device.
fn kernel_name(shape: &GemmShape) -> Option<&'static str> {
    Some(match (shape.element, shape.b_order) {
        (ElementType::F16, MatrixOrder::ROWS) => "symmem_tensor_gemm_f16_rows",
        (ElementType::F16, MatrixOrder::COLUMNS) => "symmem_tensor_gemm_f16_columns",
        (ElementType::BF16, MatrixOrder::ROWS) => "symmem_tensor_gemm_bf16_rows",
        (ElementType::BF16, MatrixOrder::COLUMNS) => "symmem_tensor_gemm_bf16_columns",
        _ => return None,
    })
}

/// Whether tensor copies can fetch the matrices of a shape: strides and, where `A` is divided by columns,
/// shards that are whole boxes.
fn fits(shape: &GemmShape, sharding: Sharding, shard: u64) -> bool {
    let line = |elements: u64| (elements * ELEMENT_BYTES).is_multiple_of(ALIGNMENT);
    let boxes = sharding == Sharding::ROWS || shard.is_multiple_of(BOX_LENGTH.into());
    line(shape.k) && line(shape.a_stride) && line(shape.b_stride) && boxes && countable(shape)
}

/// See [`symmem_core::backend::Gemm::gathered_gemm_limits`].
pub fn limits(
    backend: &CudaBackend,
    shape: &GemmShape,
    sharding: Sharding,
    shard: u64,
) -> GatheredLimits {
    let parts = backend.parts();
    let kernel = kernel_name(shape).and_then(|name| parts.kernels.by_name(name.as_bytes()).ok());
    let launches = backend.driver.table.cuLaunchKernelEx.is_some();
    let units = parts.description.compute_units;
    let room = parts.capabilities.shared_memory_per_block >= GATHERED_GEMM_SHARED_MEMORY;
    let encodes = backend.driver.table.cuTensorMapEncodeTiled.is_some();
    if kernel.is_none() || !launches || !room || !encodes || !fits(shape, sharding, shard) {
        return GatheredLimits::default();
    }
    let known = |name: &str| parts.kernels.by_name(name.as_bytes()).is_ok();
    let at_once = split_gemm::Grid::new(shape, units)
        .and_then(|grid| grid.kernel_name(shape))
        .is_some_and(known)
        && parts.capabilities.shared_memory_per_block >= SPLIT_GEMM_SHARED_MEMORY;
    let at_once = if at_once {
        GatherMode::PUSH_AT_ONCE.bit()
    } else {
        0
    };
    GatheredLimits {
        // Its shared memory leaves room for one block on each multiprocessor.
        blocks: units,
        threads: THREADS,
        tile_m: TILE_ROWS,
        tile_n: TILE_COLUMNS,
        chunk_alignment: TILE_ROWS,
        movers: RATES.movers(shape, sharding, shard, units),
        modes: GatherMode::WAIT.bit() | GatherMode::PULL.bit() | GatherMode::PUSH.bit() | at_once,
        alignment: ALIGNMENT as u32,
    }
}

/// See [`symmem_core::backend::Gemm::gathered_gemm`].
///
/// # Errors
/// `INVALID_ARGUMENT` for matrices that tensor copies cannot fetch, and for a grid that is not resident at
/// once or has only blocks that move; the driver's.
///
/// # Safety
/// As there.
pub unsafe fn launch(
    backend: &CudaBackend,
    arguments: &GatheredGemmArguments,
    geometry: &Geometry,
    on: RawStream,
) -> CallResult<()> {
    let shape = &arguments.shape;
    if arguments.mode == GatherMode::PUSH_AT_ONCE {
        if !fits(shape, arguments.sharding, arguments.shard) {
            return Err(unsupported());
        }
        // SAFETY: the caller's word.
        return unsafe { split_gemm::launch(backend, arguments, on) };
    }
    let limits = limits(backend, shape, arguments.sharding, arguments.shard);
    let blocks = grid(&limits, arguments, geometry)?;
    let kernel = kernel_name(shape).ok_or_else(unsupported)?;
    let kernel = backend.parts().kernels.by_name(kernel.as_bytes())?;
    let tensors = TensorGemmArguments::new(backend.driver, arguments, TILE_ROWS, BOX_COLUMNS)?;
    let argument = (&raw const tensors).cast();
    let grid = symmem_gpu::Grid {
        blocks,
        threads: THREADS,
        shared_memory: GATHERED_GEMM_SHARED_MEMORY,
    };
    // Two blocks have tiles one below the other, where all that multiply, and all that move, are pairs.
    let pairs = blocks.is_multiple_of(2) && arguments.movers.is_multiple_of(2);
    let cluster = if pairs { 2 } else { 1 };
    // SAFETY: the kernel takes this struct; the rest is the caller's word.
    unsafe { backend.launch_clusters(kernel, grid, cluster, argument, on) }
}

/// This rank's shard of `A`, the gathered `A`, and `B`.
fn matrices(arguments: &GatheredGemmArguments) -> [Lines; 3] {
    let (shape, rank) = (&arguments.shape, arguments.group.rank as usize);
    let whole = match arguments.sharding {
        Sharding::COLUMNS => shape.k,
        _ => shape.m,
    };
    let first = (rank as u64).saturating_mul(arguments.shard).min(whole);
    let part = arguments.shard.min(whole - first);
    let (rows, columns) = match arguments.sharding {
        Sharding::COLUMNS => (shape.m, part),
        _ => (part, shape.k),
    };
    let lines = |address, length, count, stride| Lines {
        address,
        length,
        count,
        stride,
    };
    let (b_length, b_count) = match shape.b_order {
        MatrixOrder::ROWS => (shape.n, shape.k),
        _ => (shape.k, shape.n),
    };
    [
        lines(arguments.sources[rank], columns, rows, columns),
        lines(arguments.gathered[rank], shape.k, shape.m, shape.a_stride),
        lines(arguments.b, b_length, b_count, shape.b_stride),
    ]
}

/// The map of a matrix in boxes of [`BOX_LENGTH`] elements along its lines and `height` lines. One without
/// elements is never read.
fn encode(
    driver: &Driver,
    what: &str,
    element: ElementType,
    lines: Lines,
    height: u32,
) -> CallResult<TensorMap> {
    let mut map = TensorMap([0; 16]);
    if lines.length == 0 || lines.count == 0 {
        return Ok(map);
    }
    if !lines.address.0.is_multiple_of(ALIGNMENT) {
        return Err(invalid(format!(
            "{what} begins at {:#x}; for this kernel it has to begin at a multiple of {ALIGNMENT} bytes",
            lines.address.0
        )));
    }
    let data_type = match element {
        ElementType::F16 => DATA_TYPE_FLOAT16,
        _ => DATA_TYPE_BFLOAT16,
    };
    let sizes = [lines.length, lines.count];
    let strides = [lines.stride * ELEMENT_BYTES];
    let (boxes, steps) = ([BOX_LENGTH, height], [1, 1]);
    let name = "cuTensorMapEncodeTiled";
    let encode = driver.table.cuTensorMapEncodeTiled;
    let encode = encode.ok_or_else(unsupported)?;
    // SAFETY: all places are readable, with two entries, of strides one; the map is writable and aligned.
    let code = unsafe {
        encode(
            (&raw mut map).cast(),
            data_type,
            2,
            lines.address.0 as *mut c_void,
            sizes.as_ptr(),
            strides.as_ptr(),
            boxes.as_ptr(),
            steps.as_ptr(),
            INTERLEAVE_NONE,
            SWIZZLE_128B,
            L2_PROMOTION_256B,
            OUT_OF_BOUNDS_ZERO,
        )
    };
    driver
        .check(name, code)
        .map(|()| map)
        .map_err(|mut failure| {
            failure.message = format!("{what}: {}", failure.message);
            failure
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(n: u64, k: u64) -> GemmShape {
        GemmShape {
            m: 100,
            n,
            k,
            a_stride: k,
            b_stride: n,
            c_stride: n,
            element: ElementType::BF16,
            b_order: MatrixOrder::ROWS,
            bias: 0,
            reserved: 0,
        }
    }

    #[test]
    fn the_kernel_takes_the_struct_that_it_is_launched_with() {
        let entries = symmem_kernels_ptx::modules().iter().flat_map(|m| m.entries);
        let takes = |name: &str| name.contains("_tensor_gemm_") || name.contains("_split_gemm_");
        let kernels = entries.filter(|entry| takes(entry.name));
        let bytes: Vec<_> = kernels.map(|entry| entry.argument_bytes as usize).collect();
        assert_eq!(bytes, [size_of::<TensorGemmArguments>(); 24]);
    }

    #[test]
    fn strides_and_shards_that_tensor_copies_refuse_have_no_kernel() {
        assert!(fits(&shape(264, 1096), Sharding::ROWS, 7));
        assert!(!fits(&shape(265, 1096), Sharding::ROWS, 7), "a stride of B");
        assert!(!fits(&shape(264, 1097), Sharding::ROWS, 7), "a stride of A");
        assert!(fits(&shape(264, 1096), Sharding::COLUMNS, 576));
        assert!(
            !fits(&shape(264, 1096), Sharding::COLUMNS, 548),
            "half a box"
        );
        assert!(!fits(&shape(1 << 32, 64), Sharding::ROWS, 7));
    }

    #[test]
    fn a_rank_without_a_shard_has_an_empty_matrix() {
        let mut arguments = GatheredGemmArguments {
            shape: shape(264, 128),
            shard: 40,
            sharding: Sharding::ROWS,
            // SAFETY: integers and addresses, for which zero is a value.
            ..unsafe { std::mem::zeroed() }
        };
        let counts = [(0, 40), (1, 40), (2, 20), (3, 0)];
        for (rank, rows) in counts {
            arguments.group.rank = rank;
            let [own, gathered, b] = matrices(&arguments);
            assert_eq!((own.count, own.length, own.stride), (rows, 128, 128));
            assert_eq!((gathered.count, gathered.stride), (100, 128));
            assert_eq!((b.count, b.length), (128, 264));
        }
        arguments.sharding = Sharding::COLUMNS;
        arguments.shard = 64;
        arguments.group.rank = 1;
        let [own, ..] = matrices(&arguments);
        assert_eq!((own.count, own.length, own.stride), (100, 64, 64));
    }
}
