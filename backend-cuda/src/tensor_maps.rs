//! Tensor maps of the matrices of the all-gather + GEMM and GEMM + reduce kernels.
//!
//! The driver encodes the maps at each launch: arithmetic on the host, a few hundred nanoseconds per map.

use crate::driver::Driver;
use crate::driver::constants::tensor_map::*;
use std::ffi::c_void;
use symmem_core::backend::CallResult;
use symmem_core::backend::abi::*;
use symmem_gpu::gathered_gemm::{ELEMENT_BYTES, invalid, unsupported};

/// Elements along a row of a box: the 128 bytes of the swizzle.
pub(crate) const BOX_LENGTH: u32 = 64;
/// Alignment in bytes that tensor copies need of addresses and strides.
pub(crate) const ALIGNMENT: u64 = 16;

/// Bytes that a miss in L2 fetches from memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fetch {
    /// For kernels with large tiles.
    Bytes256,
    /// For kernels that take as long as reading `B` takes: 16 × 8192 × 14336 takes 55 to 56 µs, and 58 with 256 bytes
    /// (H200). Fewer are no better.
    Bytes128,
}

/// `CUtensorMap`, which is opaque.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct TensorMap([u64; 16]);

/// The argument of the all-gather + GEMM kernels.
#[repr(C, align(64))]
pub(crate) struct TensorGemmArguments {
    own: TensorMap,
    gathered: TensorMap,
    b: TensorMap,
    pub(crate) arguments: GatheredGemmArguments,
}

impl TensorGemmArguments {
    /// Encodes the maps for tiles of `tile_rows` rows. `box_columns` is the number of columns of a box of B if
    /// B is stored by columns.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for matrices that tensor copies cannot load; `UNSUPPORTED` if the driver cannot encode maps.
    pub(crate) fn new(
        driver: &Driver,
        arguments: &GatheredGemmArguments,
        tile_rows: u32,
        box_columns: u32,
    ) -> CallResult<Self> {
        let shape = &arguments.shape;
        let map = |what, lines, height| {
            encode(driver, what, shape.element, lines, height, Fetch::Bytes256)
        };
        let [own, gathered] = matrices(arguments);
        let (b, b_box) = b_lines(shape, arguments.b, box_columns);
        Ok(Self {
            own: map("this rank's shard of A", own, tile_rows)?,
            gathered: map("the gathered A", gathered, tile_rows)?,
            b: map("B", b, b_box)?,
            arguments: *arguments,
        })
    }
}

/// The argument of the GEMM + reduce kernels.
#[repr(C, align(64))]
pub(crate) struct TensorReducedArguments {
    a: TensorMap,
    b: TensorMap,
    pub(crate) arguments: ReducedGemmArguments,
}

impl TensorReducedArguments {
    /// Encodes the maps, as [`TensorGemmArguments::new`] does.
    ///
    /// # Errors
    /// As [`TensorGemmArguments::new`].
    pub(crate) fn new(
        driver: &Driver,
        arguments: &ReducedGemmArguments,
        tile_rows: u32,
        box_columns: u32,
        fetch: Fetch,
    ) -> CallResult<Self> {
        let shape = &arguments.shape;
        let map = |what, lines, height| encode(driver, what, shape.element, lines, height, fetch);
        let a = Lines {
            address: arguments.a,
            length: shape.k,
            count: shape.m,
            stride: shape.a_stride,
        };
        let (b, b_box) = b_lines(shape, arguments.b, box_columns);
        Ok(Self {
            a: map("A", a, tile_rows)?,
            b: map("B", b, b_box)?,
            arguments: *arguments,
        })
    }
}

/// Returns the lines of `B`, and how many a box of it has. `box_columns` is that number if `B` is stored by columns.
fn b_lines(shape: &GemmLayout, address: DeviceAddress, box_columns: u32) -> (Lines, u32) {
    let (length, count, lines) = match shape.b_order {
        MatrixOrderCode::ROWS => (shape.n, shape.k, BOX_LENGTH),
        _ => (shape.k, shape.n, box_columns),
    };
    let b = Lines {
        address,
        length,
        count,
        stride: shape.b_stride,
    };
    (b, lines)
}

/// A matrix in memory: `count` lines of `length` contiguous elements, `stride` elements apart.
#[derive(Clone, Copy)]
struct Lines {
    address: DeviceAddress,
    length: u64,
    count: u64,
    stride: u64,
}

/// Returns this rank's shard of `A`, and the gathered `A`.
fn matrices(arguments: &GatheredGemmArguments) -> [Lines; 2] {
    let (shape, rank) = (&arguments.shape, arguments.group.rank as usize);
    let whole = match arguments.sharding {
        ShardingCode::COLUMNS => shape.k,
        _ => shape.m,
    };
    let first = (rank as u64).saturating_mul(arguments.shard).min(whole);
    let part = arguments.shard.min(whole - first);
    let (rows, columns) = match arguments.sharding {
        ShardingCode::COLUMNS => (shape.m, part),
        _ => (part, shape.k),
    };
    let lines = |address, length, count, stride| Lines {
        address,
        length,
        count,
        stride,
    };
    [
        lines(arguments.sources[rank], columns, rows, columns),
        lines(arguments.gathered[rank], shape.k, shape.m, shape.a_stride),
    ]
}

/// Encodes the map of a matrix in boxes of [`BOX_LENGTH`] elements and `height` lines. Returns zeros for a
/// matrix without elements, whose map no kernel reads.
fn encode(
    driver: &Driver,
    what: &str,
    element: ElementTypeCode,
    lines: Lines,
    height: u32,
    fetch: Fetch,
) -> CallResult<TensorMap> {
    let mut map = TensorMap([0; 16]);
    if lines.length == 0 || lines.count == 0 {
        return Ok(map);
    }
    if !lines.address.0.is_multiple_of(ALIGNMENT) {
        return Err(invalid(format!(
            "{what} begins at {:#x}; this kernel needs an address that is a multiple of {ALIGNMENT} bytes",
            lines.address.0
        )));
    }
    let data_type = match element {
        ElementTypeCode::F16 => DATA_TYPE_FLOAT16,
        _ => DATA_TYPE_BFLOAT16,
    };
    let sizes = [lines.length, lines.count];
    let strides = [lines.stride * ELEMENT_BYTES];
    let (boxes, steps) = ([BOX_LENGTH, height], [1, 1]);
    let name = "cuTensorMapEncodeTiled";
    let encode = driver.table.cuTensorMapEncodeTiled;
    let encode = encode.ok_or_else(unsupported)?;
    // SAFETY: the arrays have the entries that a map of two dimensions needs, and the map is writable and aligned.
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
            match fetch {
                Fetch::Bytes256 => L2_PROMOTION_256B,
                Fetch::Bytes128 => L2_PROMOTION_128B,
            },
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

    fn shape(n: u64, k: u64) -> GemmLayout {
        GemmLayout {
            m: 100,
            n,
            k,
            a_stride: k,
            b_stride: n,
            c_stride: n,
            element: ElementTypeCode::BF16,
            b_order: MatrixOrderCode::ROWS,
            bias: 0,
            addend: 0,
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
    fn the_reducing_kernels_take_the_struct_that_they_are_launched_with() {
        let entries = symmem_kernels_ptx::modules().iter().flat_map(|m| m.entries);
        let takes = |name: &str| name.contains("_split_reduce_") || name.contains("_reduced_gemm_");
        let kernels = entries.filter(|entry| takes(entry.name));
        let bytes: Vec<_> = kernels.map(|entry| entry.argument_bytes as usize).collect();
        assert_eq!(bytes, [size_of::<TensorReducedArguments>(); 20]);
    }

    #[test]
    fn boxes_of_b_have_rows_or_columns_as_it_is_stored() {
        let by_rows = shape(264, 128);
        let (b, lines) = b_lines(&by_rows, DeviceAddress(64), 32);
        assert_eq!((b.count, b.length, b.stride, lines), (128, 264, 264, 64));
        let by_columns = GemmLayout {
            b_order: MatrixOrderCode::COLUMNS,
            b_stride: 136,
            ..by_rows
        };
        let (b, lines) = b_lines(&by_columns, DeviceAddress(64), 32);
        assert_eq!((b.count, b.length, b.stride, lines), (264, 128, 136, 32));
    }

    #[test]
    fn a_rank_without_a_shard_has_an_empty_matrix() {
        let mut arguments = GatheredGemmArguments {
            shape: shape(264, 128),
            shard: 40,
            sharding: ShardingCode::ROWS,
            // SAFETY: the struct consists of integers and addresses, for which zero is a valid value.
            ..unsafe { std::mem::zeroed() }
        };
        let counts = [(0, 40), (1, 40), (2, 20), (3, 0)];
        for (rank, rows) in counts {
            arguments.group.rank = rank;
            let [own, gathered] = matrices(&arguments);
            assert_eq!((own.count, own.length, own.stride), (rows, 128, 128));
            assert_eq!((gathered.count, gathered.stride), (100, 128));
        }
        arguments.sharding = ShardingCode::COLUMNS;
        arguments.shard = 64;
        arguments.group.rank = 1;
        let [own, ..] = matrices(&arguments);
        assert_eq!((own.count, own.length, own.stride), (100, 64, 64));
    }
}
