//! The selector of all-gather + GEMM: chooses the algorithm that the caller leaves open.
//!
//! Rules, not rows: they come from measurements on two and four GPUs behind a switch
//! (`2026-11-22-ag-gemm-2xh200`, `-4xh200`, `2026-11-30-ag-gemm-own-gather-2xh200`), and, for small shards and for a
//! mesh, from publications. Other devices were not measured.
//!
//! Small M: one fused kernel gathers and multiplies, if the device has it. Otherwise, gathering first, by symmem's own
//! collective, is fastest while copies are short compared with the cost of a step. Above that, one GEMM per shard is fastest
//! if three conditions hold: each GEMM fills the device often enough that its last blocks do not matter, all
//! GEMMs together take long enough that launches do not matter, and copies keep ahead of them. It is also chosen
//! if copies keep ahead and a shard has tiles for at most half of the kernel's blocks, since the library divides
//! it further. With two ranks and many rows in columns, the pull kernel is fastest. Otherwise a
//! kernel that multiplies chunks as copy engines move them is fastest: it loses neither launches nor the tails
//! of GEMMs.

use crate::backend::abi::{GatherMode, GatheredLimits};
use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::gemm_shape::GemmShape;
use crate::base::names::Sharding;
use crate::gemm::options::GemmOptions;

/// `A` sharded by rows: bytes of a shard below which all is gathered first.
const SMALL_SHARD: u64 = 4 << 20;
/// `A` sharded by rows: rows of `A` below which all is gathered first.
const FEW_ROWS: usize = 1024;
/// `A` sharded by columns: rows of `A` up to which all is gathered first. NCCL gathers columns as blocks that
/// must be spread afterwards, so copies that spread them on the way pay sooner, even for small shards.
const FEW_ROWS_OF_COLUMNS: usize = 256;
/// The same where no kernel multiplies columns as they arrive, as of 8-bit floats on Hopper. A pipeline cannot multiply before
/// all columns are there (1024 × 8192 × 8192 of 8 bits: 140 µs, not 155; 2048: 264 and 266).
const FEW_ROWS_OF_COLUMNS_WITHOUT_KERNEL: usize = 2048;
/// `A` sharded by columns: rows of `A` for which copy engines are slightly faster than blocks.
const COPIED_ROWS_OF_COLUMNS: std::ops::Range<usize> = 2048..8192;
/// `A` sharded by columns, two ranks: from this many rows on, pulling `A` is faster than pushing it, if the
/// device has the pull kernel.
const MANY_ROWS_OF_COLUMNS: usize = 8192;
/// `A` sharded by rows, two ranks: bytes of a shard up to which blocks store it faster than copy engines do, whose
/// copies and signals cost some microseconds (2048 × 3584 × 8192: 184 µs, not 190).
const STORED_SHARD: u64 = 16 << 20;
/// Threshold for one GEMM per shard: how often the tiles of a shard fill the device.
const WAVES: u64 = 3;
/// Threshold for one GEMM per shard: tiles times elements of depth for each block (0.9 ms).
const LONG: u64 = 80_000;
/// Threshold for one GEMM per shard: columns of `B`, from which on copies are shorter than GEMMs.
const MANY_COLUMNS: usize = 2048;

/// The capabilities of a device for all-gather + GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceSupport {
    /// Limits of the gathering kernel.
    pub(super) limits: GatheredLimits,
    /// Whether there is a GEMM library: cuBLASLt, hipBLASLt or the host backend's own.
    pub(super) library: bool,
    /// Whether that library also multiplies each shard alone.
    pub(super) shards: bool,
    /// Whether NCCL or RCCL is open.
    pub(super) collectives: bool,
    /// Number of peers to copy to at once so that the links are busy.
    pub(super) fanout: u32,
}

/// The reason why options cannot be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The options are invalid.
    Invalid(String),
    /// This device, or the installed libraries, do not support them.
    Unsupported(String),
}

impl DeviceSupport {
    /// Returns whether the pushing kernel is its own barrier (the fused kernel for small M): if the device has
    /// it for the shape, and the caller sets no option that it ignores.
    pub(super) fn at_once(&self, options: &GemmOptions) -> bool {
        self.limits.modes & GatherMode::PUSH_AT_ONCE.bit() != 0
            && options.blocks.is_none()
            && options.chunk_rows.is_none()
            && options.tile.is_none()
    }

    fn has(&self, mode: GatherMode) -> bool {
        self.limits.blocks > 0 && self.limits.modes & mode.bit() != 0
    }
}

/// Returns algorithm and transport. Neither is automatic, except for the transport of `Baseline` if it
/// gathers by symmem's own collective.
pub(super) fn choose(
    shape: &GemmShape,
    options: &GemmOptions,
    world: usize,
    shard_bytes: u64,
    support: &DeviceSupport,
) -> Result<(GemmAlgorithm, GemmTransport), Refusal> {
    use {GemmAlgorithm as A, GemmTransport as T};
    let at_once = support.at_once(options);
    let by_columns = shape.sharding == Sharding::Columns;
    let algorithm = match options.algorithm {
        A::Automatic if world > 1 && options.transport == T::Automatic && at_once => A::Push,
        A::Automatic => automatic(shape, options.transport, world, shard_bytes, support),
        algorithm => algorithm,
    };
    let unsupported = |what: &str| Err(Refusal::Unsupported(what.into()));
    if !support.library && (world == 1 || matches!(algorithm, A::Baseline | A::Pipeline)) {
        return unsupported(
            "no GEMM library (cuBLASLt or hipBLASLt) was found that multiplies these matrices, and this way needs one; \
             see `symmem info`",
        );
    }
    if !support.shards && algorithm == A::Pipeline {
        return unsupported(
            "the GEMM library has no algorithm for the rows of a shard alone; use `Baseline`",
        );
    }
    let kernel = |mode: GatherMode, transport| {
        if world == 1 || support.has(mode) {
            return Ok((algorithm, transport));
        }
        Err(Refusal::Unsupported(format!(
            "no {} kernel for this shape on this device; use `Pipeline` or `Baseline`",
            mode.name()
        )))
    };
    match (algorithm, options.transport) {
        // Who asks for the baseline has the gather that everybody has; the selector takes symmem's, which is faster.
        (A::Baseline, T::Automatic) if support.collectives && options.algorithm == A::Baseline => {
            Ok((algorithm, T::Nccl))
        }
        (A::Baseline, T::Automatic) => Ok((algorithm, T::Automatic)),
        (A::Pipeline, T::Automatic) => Ok((algorithm, T::Put)),
        (A::Pipeline, T::Get | T::Put) => Ok((algorithm, options.transport)),
        (A::Baseline | A::Pipeline, T::Nccl) if support.collectives => Ok((algorithm, T::Nccl)),
        (A::Baseline | A::Pipeline, T::Nccl) => {
            unsupported("NCCL or RCCL is not open; call `Communicator::open_nccl` first")
        }
        (A::Pull, T::Automatic | T::Kernel) => kernel(GatherMode::PULL, T::Kernel),
        (A::Push, T::Automatic | T::Kernel) if at_once => Ok((algorithm, T::Kernel)),
        // Copy engines move columns row by row. Blocks are faster then, except for a few thousand rows.
        (A::Push, T::Automatic)
            if by_columns
                && support.has(GatherMode::PUSH)
                && !(COPIED_ROWS_OF_COLUMNS.contains(&shape.m)
                    && support.has(GatherMode::WAIT)) =>
        {
            Ok((algorithm, T::Kernel))
        }
        (A::Push, T::Automatic)
            if !by_columns
                && world == 2
                && shard_bytes <= STORED_SHARD
                && support.has(GatherMode::PUSH) =>
        {
            Ok((algorithm, T::Kernel))
        }
        (A::Push, T::Automatic) if support.has(GatherMode::WAIT) => Ok((algorithm, T::Put)),
        (A::Push, T::Put) => kernel(GatherMode::WAIT, T::Put),
        (A::Push, T::Automatic | T::Kernel) => kernel(GatherMode::PUSH, T::Kernel),
        (algorithm, transport) => Err(Refusal::Invalid(format!(
            "{algorithm:?} has no transport {transport:?}; use {}",
            algorithm.transports()
        ))),
    }
}

fn automatic(
    shape: &GemmShape,
    transport: GemmTransport,
    world: usize,
    shard_bytes: u64,
    support: &DeviceSupport,
) -> GemmAlgorithm {
    use {GemmAlgorithm as A, GemmTransport as T};
    // The transport determines the algorithm, or nearly so.
    match transport {
        T::Get | T::Nccl => return A::Pipeline,
        T::Kernel if support.has(GatherMode::PUSH) => return A::Push,
        T::Kernel => return A::Pull,
        T::Put if support.has(GatherMode::WAIT) => return A::Push,
        T::Put => return A::Pipeline,
        T::Automatic => {}
    }
    if world == 1 {
        return A::Baseline;
    }
    let by_columns = shape.sharding == Sharding::Columns;
    let modes = [GatherMode::PULL, GatherMode::PUSH, GatherMode::WAIT];
    let few = match by_columns {
        true if modes.into_iter().any(|mode| support.has(mode)) => shape.m <= FEW_ROWS_OF_COLUMNS,
        true => shape.m <= FEW_ROWS_OF_COLUMNS_WITHOUT_KERNEL,
        false => shape.m < FEW_ROWS || shard_bytes < SMALL_SHARD,
    };
    if few {
        // In a mesh, one kernel that loads from all peers at once uses all links from its first block on.
        let mesh = support.has(GatherMode::PULL) && (support.fanout > 1 || !support.library);
        return if mesh { A::Pull } else { A::Baseline };
    }
    let GatheredLimits {
        blocks,
        tile_m,
        tile_n,
        ..
    } = support.limits;
    let tiles = |rows: usize| {
        let tiles = |length: usize, tile: u32| (length as u64).div_ceil(tile.max(1).into());
        tiles(rows, tile_m) * tiles(shape.n, tile_n)
    };
    let blocks = u64::from(blocks);
    let fills = tiles(shape.m.div_ceil(world)) >= WAVES * blocks;
    let long = tiles(shape.m) * shape.k as u64 >= LONG * blocks;
    let hides = shape.n >= MANY_COLUMNS;
    // If this rank's shard leaves most blocks of the kernel without work at the start, the library divides it
    // further.
    let sparse = 2 * tiles(shape.m.div_ceil(world)) <= blocks;
    let whole =
        support.library && support.shards && !by_columns && hides && (fills && long || sparse);
    let one_peer = world == 2;
    if by_columns && one_peer && shape.m >= MANY_ROWS_OF_COLUMNS && support.has(GatherMode::PULL) {
        return A::Pull;
    }
    // Without a library only the kernels are left.
    match support.library {
        false if support.has(GatherMode::PUSH) => return A::Push,
        false if support.has(GatherMode::PULL) => return A::Pull,
        _ => {}
    }
    if support.has(GatherMode::WAIT) && !whole {
        A::Push
    } else if support.shards {
        A::Pipeline
    } else {
        A::Baseline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: DeviceSupport = DeviceSupport {
        limits: GatheredLimits {
            blocks: 132,
            threads: 384,
            tile_m: 128,
            tile_n: 256,
            chunk_alignment: 128,
            movers: 0,
            modes: 0b1110,
            alignment: 1,
            at_once_blocks: 0,
            reserved: 0,
            partial_bytes: 0,
        },
        library: true,
        shards: true,
        collectives: true,
        fanout: 1,
    };

    fn no_kernel(support: DeviceSupport) -> DeviceSupport {
        let limits = GatheredLimits::default();
        DeviceSupport { limits, ..support }
    }

    fn chosen(
        algorithm: GemmAlgorithm,
        transport: GemmTransport,
        (m, shard_bytes): (usize, u64),
        support: &DeviceSupport,
    ) -> Result<(GemmAlgorithm, GemmTransport), Refusal> {
        let options = GemmOptions {
            algorithm,
            transport,
            ..GemmOptions::default()
        };
        choose(
            &GemmShape::new(m, 8192, 16384),
            &options,
            8,
            shard_bytes,
            support,
        )
    }

    #[test]
    fn few_rows_are_one_kernels_unless_the_caller_says_something_that_it_does_not_heed() {
        use {GemmAlgorithm as A, GemmTransport as T};
        let mut support = ALL;
        support.limits.modes |= GatherMode::PUSH_AT_ONCE.bit();
        let shape = GemmShape::new(16, 8192, 16384);
        let chosen =
            |options: &GemmOptions, world| choose(&shape, options, world, 1 << 15, &support);
        let automatic = GemmOptions::default();
        assert_eq!(chosen(&automatic, 8), Ok((A::Push, T::Kernel)));
        assert_eq!(chosen(&automatic, 1), Ok((A::Baseline, T::Automatic)));
        for transport in [T::Automatic, T::Kernel] {
            let algorithm = A::Push;
            let options = GemmOptions {
                algorithm,
                transport,
                ..automatic
            };
            assert_eq!(chosen(&options, 8), Ok((A::Push, T::Kernel)));
        }
        let blocks = GemmOptions {
            blocks: Some(100),
            ..automatic
        };
        let chunks = GemmOptions {
            chunk_rows: Some(1),
            ..automatic
        };
        for options in [blocks, chunks] {
            assert!(!support.at_once(&options));
            assert_eq!(chosen(&options, 8), Ok((A::Baseline, T::Automatic)));
        }
    }

    #[test]
    fn small_shards_are_gathered_first_and_large_ones_multiplied_as_they_come() {
        use {GemmAlgorithm as A, GemmTransport as T};
        let (small, large) = ((32768, 1 << 20), (32768, 128 << 20));
        let auto =
            |size, support: &DeviceSupport| chosen(A::Automatic, T::Automatic, size, support);
        assert_eq!(auto(small, &ALL), Ok((A::Baseline, T::Automatic)));
        assert_eq!(
            auto((1000, 128 << 20), &ALL),
            Ok((A::Baseline, T::Automatic))
        );
        let asked = chosen(A::Baseline, T::Automatic, small, &ALL);
        assert_eq!(asked, Ok((A::Baseline, T::Nccl)), "as asked");
        // 4096 rows of 8192 columns a rank: 1024 tiles for 132 blocks.
        assert_eq!(auto(large, &ALL), Ok((A::Pipeline, T::Put)));
        assert_eq!(auto((8192, 32 << 20), &ALL), Ok((A::Push, T::Put)));
        assert_eq!(auto(large, &no_kernel(ALL)), Ok((A::Pipeline, T::Put)));
        let no_shards = DeviceSupport {
            shards: false,
            ..no_kernel(ALL)
        };
        assert_eq!(auto(large, &no_shards), Ok((A::Baseline, T::Automatic)));
        let mesh = DeviceSupport { fanout: 7, ..ALL };
        assert_eq!(auto(small, &mesh), Ok((A::Pull, T::Kernel)));
        let closed = DeviceSupport {
            collectives: false,
            ..ALL
        };
        assert_eq!(auto(small, &closed), Ok((A::Baseline, T::Automatic)));
        let bare = DeviceSupport {
            library: false,
            ..ALL
        };
        assert_eq!(auto(small, &bare), Ok((A::Pull, T::Kernel)));
        // AMD's kernels, and a library that refuses the matrices.
        let modes = GatherMode::PULL.bit() | GatherMode::PUSH.bit();
        let moved_by_kernels = DeviceSupport {
            limits: GatheredLimits {
                modes,
                ..ALL.limits
            },
            ..bare
        };
        assert_eq!(auto(small, &moved_by_kernels), Ok((A::Pull, T::Kernel)));
        assert_eq!(auto(large, &moved_by_kernels), Ok((A::Push, T::Kernel)));
    }

    #[test]
    fn columns_are_gathered_first_for_few_rows_only() {
        use {GemmAlgorithm as A, GemmTransport as T};
        let by = |support: &DeviceSupport, m| {
            let shape = GemmShape {
                sharding: Sharding::Columns,
                ..GemmShape::new(m, 3584, 8192)
            };
            let shard_bytes = shape.shard_elements(2) as u64 * 2;
            choose(&shape, &GemmOptions::default(), 2, shard_bytes, support)
        };
        let chosen = |m| by(&ALL, m);
        assert_eq!(chosen(128), Ok((A::Baseline, T::Automatic)));
        assert_eq!(chosen(256), Ok((A::Baseline, T::Automatic)));
        assert_eq!(by(&no_kernel(ALL), 2048), Ok((A::Baseline, T::Automatic)));
        assert_eq!(by(&no_kernel(ALL), 4096), Ok((A::Pipeline, T::Put)));
        assert_eq!(chosen(512), Ok((A::Push, T::Kernel)));
        assert_eq!(chosen(1024), Ok((A::Push, T::Kernel)));
        assert_eq!(chosen(4096), Ok((A::Push, T::Put)));
        assert_eq!(chosen(16384), Ok((A::Pull, T::Kernel)));
        let shape = GemmShape {
            sharding: Sharding::Columns,
            ..GemmShape::new(16384, 3584, 8192)
        };
        let four = choose(&shape, &GemmOptions::default(), 4, 64 << 20, &ALL);
        assert_eq!(four, Ok((A::Push, T::Kernel)), "of several peers");
    }

    #[test]
    fn each_measured_product_goes_to_who_was_the_fastest() {
        use {GemmAlgorithm as A, GemmTransport as T};
        let chosen = |(m, n, k), world| {
            let shape = GemmShape::new(m, n, k);
            let shard_bytes = shape.shard_elements(world) as u64 * 2;
            choose(&shape, &GemmOptions::default(), world, shard_bytes, &ALL)
        };
        let (library, kernel) = (Ok((A::Pipeline, T::Put)), Ok((A::Push, T::Put)));
        let stores = Ok((A::Push, T::Kernel));
        for (shape, two, four) in [
            ((32768, 8192, 16384), &library, &library),
            // The gather takes as long as the GEMM.
            ((32768, 1024, 32768), &kernel, &kernel),
            ((32768, 3584, 8192), &library, &library),
            ((8192, 6656, 16384), &library, &library),
            // Launches matter.
            ((8192, 4096, 4096), &kernel, &kernel),
            ((4096, 6656, 8192), &kernel, &kernel),
            // With two ranks, blocks store small shards; with four, a shard has few tiles.
            ((2048, 3584, 8192), &stores, &library),
            ((8192, 8192, 8192), &library, &library),
        ] {
            assert_eq!(
                (&chosen(shape, 2), &chosen(shape, 4)),
                (two, four),
                "{shape:?}"
            );
        }
        // A shard of eight fills the device twice.
        assert_eq!(chosen((8192, 8192, 8192), 8), kernel);
    }

    #[test]
    fn a_wish_that_cannot_be_met_is_refused_with_the_reason() {
        use {GemmAlgorithm as A, GemmTransport as T};
        let size = (32768, 128 << 20);
        let bare = DeviceSupport {
            library: false,
            collectives: false,
            ..no_kernel(ALL)
        };
        for algorithm in [A::Automatic, A::Baseline, A::Pipeline, A::Pull, A::Push] {
            let refused = chosen(algorithm, T::Automatic, size, &bare);
            assert!(
                matches!(refused, Err(Refusal::Unsupported(_))),
                "{refused:?}"
            );
        }
        let no_shards = DeviceSupport {
            shards: false,
            ..ALL
        };
        let refused = chosen(A::Pipeline, T::Automatic, size, &no_shards);
        assert!(
            matches!(refused, Err(Refusal::Unsupported(_))),
            "{refused:?}"
        );
        let closed = DeviceSupport {
            collectives: false,
            ..ALL
        };
        let refused = chosen(A::Pipeline, T::Nccl, size, &closed);
        assert!(
            matches!(refused, Err(Refusal::Unsupported(_))),
            "{refused:?}"
        );
        for (algorithm, transport) in [
            (A::Baseline, T::Get),
            (A::Pipeline, T::Kernel),
            (A::Pull, T::Put),
            (A::Push, T::Get),
        ] {
            let refused = chosen(algorithm, transport, size, &ALL);
            assert!(matches!(refused, Err(Refusal::Invalid(_))), "{refused:?}");
        }
    }
}
