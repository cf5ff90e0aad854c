//! Tensor maps of the matrices of the all-gather + GEMM kernels and of the GEMM + reduce kernels.
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

/// Bytes that a miss in L2 fetches from memory. For a GEMM that takes as long as reading `B` takes, 64 bytes are better than
/// 256: 16 × 8192 × 14336 takes 55 to 56 µs and not 58 (H200).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fetch {
    /// For kernels with large tiles.
    Bytes256,
    /// For kernels for few rows.
    Bytes64,
}

/// The boxes that a kernel loads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boxes {
    /// Lines of a box of `A`.
    pub(crate) a: u32,
    /// Lines of a box of `B` if it is stored by rows.
    pub(crate) b_rows: u32,
    /// Lines of a box of `B` if it is stored by columns.
    pub(crate) b_columns: u32,
    /// What a miss fetches of `A` and `B`.
    pub(crate) fetch: Fetch,
}

/// Returns whether lines of so many elements, one after the other, begin where tensor copies can load them.
pub(crate) fn are_aligned(lines: u64) -> bool {
    (lines * ELEMENT_BYTES).is_multiple_of(ALIGNMENT)
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
    /// Tiles of a cluster that share the loads of `B` and of `A`; only the kernels for a few hundred rows read them.
    pub(crate) below: u32,
    pub(crate) beside: u32,
}

impl TensorGemmArguments {
    /// Encodes the maps.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for matrices that tensor copies cannot load; `UNSUPPORTED` if the driver cannot encode maps.
    pub(crate) fn new(
        driver: &Driver,
        arguments: &GatheredGemmArguments,
        boxes: Boxes,
    ) -> CallResult<Self> {
        let shape = &arguments.shape;
        let map =
            |what, lines, height| encode(driver, what, shape.element, lines, height, boxes.fetch);
        let [own, gathered, b] = matrices(arguments);
        let b_box = match shape.b_order {
            MatrixOrderCode::ROWS => boxes.b_rows,
            _ => boxes.b_columns,
        };
        Ok(Self {
            own: map("this rank's shard of A", own, boxes.a)?,
            gathered: map("the gathered A", gathered, boxes.a)?,
            b: map("B", b, b_box)?,
            arguments: *arguments,
            below: 1,
            beside: 1,
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
        let b_box = b_box(shape, box_columns);
        let [a, b] = [whole_a(shape, arguments.a), whole_b(shape, arguments.b)];
        Ok(Self {
            a: encode(driver, "A", shape.element, a, tile_rows, fetch)?,
            b: encode(driver, "B", shape.element, b, b_box, fetch)?,
            arguments: *arguments,
        })
    }
}

/// Returns the lines of a box of `B`.
fn b_box(shape: &GemmLayout, box_columns: u32) -> u32 {
    match shape.b_order {
        MatrixOrderCode::ROWS => BOX_LENGTH,
        _ => box_columns,
    }
}

/// A matrix in memory: `count` lines of `length` contiguous elements, `stride` elements apart.
#[derive(Clone, Copy)]
struct Lines {
    address: DeviceAddress,
    length: u64,
    count: u64,
    stride: u64,
}

/// Returns all rows of `A`.
fn whole_a(shape: &GemmLayout, address: DeviceAddress) -> Lines {
    Lines {
        address,
        length: shape.k,
        count: shape.m,
        stride: shape.a_stride,
    }
}

/// Returns `B`.
fn whole_b(shape: &GemmLayout, address: DeviceAddress) -> Lines {
    let (length, count) = match shape.b_order {
        MatrixOrderCode::ROWS => (shape.n, shape.k),
        _ => (shape.k, shape.n),
    };
    Lines {
        address,
        length,
        count,
        stride: shape.b_stride,
    }
}

/// Returns this rank's shard of `A`, the gathered `A`, and `B`.
fn matrices(arguments: &GatheredGemmArguments) -> [Lines; 3] {
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
    let own = Lines {
        address: arguments.sources[rank],
        length: columns,
        count: rows,
        stride: columns,
    };
    [
        own,
        whole_a(shape, arguments.gathered[rank]),
        whole_b(shape, arguments.b),
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
                Fetch::Bytes64 => L2_PROMOTION_64B,
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
        let kinds = ["_tensor_gemm_", "_split_gemm_", "_cluster_gemm_"];
        let takes = |name: &str| kinds.iter().any(|kind| name.contains(kind));
        let kernels = entries.filter(|entry| takes(entry.name));
        let bytes: Vec<_> = kernels.map(|entry| entry.argument_bytes as usize).collect();
        assert_eq!(bytes, [size_of::<TensorGemmArguments>(); 28]);
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
            let [own, gathered, b] = matrices(&arguments);
            assert_eq!((own.count, own.length, own.stride), (rows, 128, 128));
            assert_eq!((gathered.count, gathered.stride), (100, 128));
            assert_eq!((b.count, b.length), (128, 264));
        }
        arguments.sharding = ShardingCode::COLUMNS;
        arguments.shard = 64;
        arguments.group.rank = 1;
        let [own, ..] = matrices(&arguments);
        assert_eq!((own.count, own.length, own.stride), (100, 64, 64));
    }
}
