//! Fused all-gather + GEMM kernels.
//!
//! NVIDIA's kernels get three tensor maps in front of the arguments. In the fake, a map holds the values that it was
//! encoded from, so a map that contradicts the arguments is caught.

use symmem_core::backend::abi::{
    AT_ONCE_BLOCKS, DeviceAddress, ElementTypeCode, GatherMode, GatheredGemmArguments, GemmLayout,
    MAX_RANKS, MatrixOrderCode, SIGNAL_STRIDE, ShardingCode,
};
use symmem_core::host::emulation::Work;

use super::collectives::{Translation, members};
use super::signals::watch_ranges;
use super::{Launch, Plain};
use crate::error::{Code, Result};
use crate::report::violation;
use crate::work::Runner;

/// Bytes of an element: of a pair where kernels of 8-bit floats are passed pairs.
pub(super) const ELEMENT_BYTES: u64 = 2;

/// The values that a tensor map was encoded from: a matrix of 2-byte elements in lines, and the boxes of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TensorMap {
    /// Address of its first element.
    pub address: u64,
    /// Elements per line.
    pub length: u64,
    /// Number of lines.
    pub count: u64,
    /// Bytes from one line to the next.
    pub stride: u64,
    /// Elements and lines of a box.
    pub boxes: [u32; 2],
    /// `CUtensorMapDataType`.
    pub data_type: u32,
    /// `CUtensorMapSwizzle`.
    pub swizzle: u32,
    /// Zero.
    pub rest: [u64; 10],
}
const _: () = assert!(size_of::<TensorMap>() == 128);

impl TensorMap {
    /// Returns the map of a matrix of lines (length, number and distance in elements), in boxes of `height` lines.
    pub(super) fn of(
        element: ElementTypeCode,
        address: DeviceAddress,
        (length, count, stride): (u64, u64, u64),
        height: u32,
    ) -> Self {
        Self {
            address: address.0,
            length,
            count,
            stride: stride * ELEMENT_BYTES,
            boxes: [64, height],
            data_type: match element {
                ElementTypeCode::F16 => 6,
                _ => 9,
            },
            swizzle: 3,
            rest: [0; 10],
        }
    }

    /// Returns the map of the B of a GEMM. Its boxes have `box_columns` columns if it is stored by columns.
    pub(super) fn of_b(shape: &GemmLayout, b: DeviceAddress, box_columns: u32) -> Self {
        let (lines, height) = match shape.b_order {
            MatrixOrderCode::COLUMNS => ((shape.k, shape.n, shape.b_stride), box_columns),
            _ => ((shape.n, shape.k, shape.b_stride), 64),
        };
        Self::of(shape.element, b, lines, height)
    }
}

/// The arguments of NVIDIA's kernels.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct TensorGemmArguments {
    own: TensorMap,
    gathered: TensorMap,
    b: TensorMap,
    arguments: GatheredGemmArguments,
    /// Tiles of a cluster that share B, and A.
    below: u32,
    beside: u32,
}
// SAFETY: a repr(C) struct of integers, for which any bytes are a value.
unsafe impl Plain for TensorGemmArguments {}
// SAFETY: as above.
unsafe impl Plain for GatheredGemmArguments {}

/// First row and column of a shard, and its number of rows and columns.
struct Shard {
    rows: u64,
    columns: u64,
}

fn shard(arguments: &GatheredGemmArguments, member: usize) -> Shard {
    let part = |whole: u64| {
        let first = (member as u64).saturating_mul(arguments.shard).min(whole);
        (whole - first).min(arguments.shard)
    };
    match arguments.sharding {
        ShardingCode::COLUMNS => Shard {
            rows: arguments.shape.m,
            columns: part(arguments.shape.k),
        },
        _ => Shard {
            rows: part(arguments.shape.m),
            columns: arguments.shape.k,
        },
    }
}

/// Returns the bytes from the first element of a matrix to the end of the last.
pub(super) fn span(lines: u64, length: u64, stride: u64) -> u64 {
    match (lines, length) {
        (0, _) | (_, 0) => 0,
        _ => ((lines - 1) * stride + length) * ELEMENT_BYTES,
    }
}

/// Returns everything that a call touches: addresses, with lengths in bytes.
fn touched(arguments: &mut GatheredGemmArguments) -> Vec<(&mut DeviceAddress, u64)> {
    let known = *arguments;
    let (shape, rank) = (&known.shape, known.group.rank as usize);
    let world = (known.group.world as usize).min(MAX_RANKS);
    let all = |mode| move |member: usize| member == rank || known.mode == mode;
    let at_once = known.mode == GatherMode::PUSH_AT_ONCE;
    let (pulls, pushes) = (all(GatherMode::PULL), all(GatherMode::PUSH));
    let pushes = |member| at_once || pushes(member);
    let (b_length, b_lines) = match shape.b_order {
        MatrixOrderCode::COLUMNS => (shape.k, shape.n),
        _ => (shape.n, shape.k),
    };
    let words = world as u64 * u64::from(known.chunks) * SIGNAL_STRIDE;
    let bias = shape.n * ELEMENT_BYTES * u64::from(known.bias.0 != 0);
    let scale = size_of::<f32>() as u64 * u64::from(known.scale.0 != 0);
    let mut touched = vec![
        (
            &mut arguments.epoch,
            if at_once {
                u64::from(AT_ONCE_BLOCKS) * 4
            } else {
                4
            },
        ),
        (&mut arguments.b, span(b_lines, b_length, shape.b_stride)),
        (&mut arguments.c, span(shape.m, shape.n, shape.c_stride)),
        (&mut arguments.bias, bias),
        (&mut arguments.scale, scale),
        (&mut arguments.partials, known.partial_bytes),
    ];
    for (member, source) in arguments.sources[..world].iter_mut().enumerate() {
        if pulls(member) {
            let Shard { rows, columns } = shard(&known, member);
            touched.push((source, rows * columns * ELEMENT_BYTES));
        }
    }
    if at_once {
        let entered = world as u64 * SIGNAL_STRIDE;
        let slots = arguments.group.slots[..world].iter_mut();
        touched.extend(slots.map(|slot| (slot, entered)));
    }
    let gathered = span(shape.m, shape.k, shape.a_stride);
    for (addresses, bytes) in [
        (&mut arguments.gathered, gathered),
        (&mut arguments.arrivals, words),
    ] {
        let members = addresses[..world].iter_mut().enumerate();
        let reached = members.filter(|(member, _)| pushes(*member));
        touched.extend(reached.map(|(_, address)| (address, bytes)));
    }
    touched
}

fn ranges(mut arguments: GatheredGemmArguments) -> Vec<(u64, u64)> {
    let watch = arguments.group.watch;
    let named = touched(&mut arguments).into_iter();
    let named = named.map(|(address, bytes)| (address.0, bytes));
    let some = named.filter(|(address, bytes)| *address != 0 && *bytes != 0);
    some.chain(watch_ranges(&watch)).collect()
}

/// Reports a kernel that is launched with other matrices than those that its name says.
pub(super) fn check_matrices(name: &str, shape: &GemmLayout) {
    let named = format!(
        "{}_{}",
        shape.element.name().to_ascii_lowercase(),
        match shape.b_order {
            MatrixOrderCode::COLUMNS => "columns",
            _ => "rows",
        }
    );
    if !name.contains(&format!("_{named}")) {
        violation(format!("{name} is launched with matrices of {named}"));
    }
}

/// Returns the arguments of a kernel of 8-bit floats, which is passed pairs of them as elements, in single ones.
fn out_of_pairs(mut arguments: GatheredGemmArguments) -> GatheredGemmArguments {
    let GatheredGemmArguments {
        shape,
        shard,
        sharding,
        ..
    } = &mut arguments;
    if shape.element == ElementTypeCode::F8_E4M3 {
        for elements in [&mut shape.k, &mut shape.a_stride, &mut shape.b_stride] {
            *elements *= 2;
        }
        if *sharding == ShardingCode::COLUMNS {
            *shard *= 2;
        }
    }
    arguments
}

fn multiply(launch: &Launch, runner: &Runner, mut arguments: GatheredGemmArguments) -> Result {
    let name = launch.kernel.name;
    check_matrices(name, &arguments.shape);
    let [blocks, ..] = launch.blocks;
    let at_once = arguments.mode == GatherMode::PUSH_AT_ONCE;
    if ["split", "cluster"].iter().any(|kind| name.contains(kind)) != at_once {
        violation(format!(
            "{name} is launched in mode {}",
            arguments.mode.name()
        ));
    }
    if blocks < arguments.movers + u32::from(!at_once) {
        violation(format!(
            "{name}: {} of {blocks} blocks move A, and none multiplies",
            arguments.movers
        ));
    }
    let moves = arguments.mode != GatherMode::WAIT;
    if moves != (arguments.movers != 0) {
        violation(format!(
            "{name}: {} blocks move where the mode is {}",
            arguments.movers,
            arguments.mode.name()
        ));
    }
    members(&arguments.group)?;
    let translation = Translation::new(runner);
    translation.watch(&mut arguments.group.watch)?;
    runner.check_polled(arguments.arrivals[arguments.group.rank as usize].0);
    for (address, bytes) in touched(&mut arguments) {
        translation.change(address, bytes)?;
    }
    translation.run(launch, Work::GatheredGemm(&out_of_pairs(arguments)))
}

/// Reports a tensor map that differs from the expected one, if the matrix has elements.
pub(super) fn check_map(name: &str, what: &str, map: &TensorMap, expected: TensorMap) -> Result {
    if expected.length == 0 || expected.count == 0 || *map == expected {
        return Ok(());
    }
    violation(format!(
        "{name}: the map of {what} is {map:?}, not {expected:?}"
    ));
    Err(Code::ILLEGAL_ADDRESS)
}

pub(super) fn tensor_gemm(launch: &Launch, runner: &Runner) -> Result {
    tiles(launch, runner, 128, [64, 128])
}

/// Runs the split-K GEMM kernel for small M, whose name ends in the rows of a tile.
pub(super) fn split_gemm<const ROWS: u32>(launch: &Launch, runner: &Runner) -> Result {
    tiles(launch, runner, ROWS, [64, 128])
}

/// Runs the GEMM kernel whose tiles of 256 rows and 64 columns share their loads in a cluster.
pub(super) fn cluster_gemm(launch: &Launch, runner: &Runner) -> Result {
    let arguments: TensorGemmArguments = launch.arguments();
    let TensorGemmArguments { below, beside, .. } = arguments;
    let [clusters, ..] = launch.blocks;
    let shape = &arguments.arguments.shape;
    let tiles_in = |length: u64, tile: u64, together: u32| {
        length.div_ceil(tile).div_ceil(together.max(1).into()) * u64::from(together)
    };
    let tiles_of_all = tiles_in(shape.m, 256, below) * tiles_in(shape.n, 64, beside);
    if below * beside == 0 || 64 % below != 0 || 256 % beside != 0 {
        violation(format!(
            "cluster_gemm: {below} times {beside} tiles cannot share a stage"
        ));
        return Err(Code::INVALID_VALUE);
    }
    if !u64::from(clusters).is_multiple_of(tiles_of_all) {
        violation(format!(
            "cluster_gemm: {clusters} blocks for {tiles_of_all} tiles"
        ));
    }
    tiles(launch, runner, 256 / beside, [64 / below; 2])
}

/// Checks the tensor maps of a kernel whose boxes have `a_lines` lines of A, and `b_lines` of B if it is stored by rows
/// and by columns, and multiplies.
fn tiles(launch: &Launch, runner: &Runner, a_lines: u32, b_lines: [u32; 2]) -> Result {
    let TensorGemmArguments {
        own,
        gathered,
        b,
        arguments,
        ..
    } = launch.arguments();
    let (name, shape) = (launch.kernel.name, &arguments.shape);
    let rank = members(&arguments.group).map(|_| arguments.group.rank as usize)?;
    let map = |address: DeviceAddress, length, count, stride: u64, height| {
        TensorMap::of(shape.element, address, (length, count, stride), height)
    };
    let Shard { rows, columns } = shard(&arguments, rank);
    let expected = map(arguments.sources[rank], columns, rows, columns, a_lines);
    check_map(name, "the own shard", &own, expected)?;
    let whole = map(
        arguments.gathered[rank],
        shape.k,
        shape.m,
        shape.a_stride,
        a_lines,
    );
    check_map(name, "the gathered A", &gathered, whole)?;
    let (lines, height) = match shape.b_order {
        MatrixOrderCode::COLUMNS => ([shape.k, shape.n], b_lines[1]),
        _ => ([shape.n, shape.k], b_lines[0]),
    };
    let [length, count] = lines;
    let expected = map(arguments.b, length, count, shape.b_stride, height);
    check_map(name, "B", &b, expected)?;
    multiply(launch, runner, arguments)
}

pub(super) fn tensor_gemm_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    ranges(launch.arguments::<TensorGemmArguments>().arguments)
}

/// Reports another launch than the kernels of a tile's size need: two or four stages of 32 elements of the tile's rows and
/// columns in shared memory, depending on the target.
pub(super) fn check_tile_launch(launch: &Launch, rows: u32, columns: u32) {
    let bytes = 2 * (rows + columns) * 32 * 2;
    if ![bytes, 2 * bytes].contains(&launch.shared) || launch.threads != [512, 1, 1] {
        violation(format!(
            "{} is launched with {} bytes of shared memory and {:?} threads",
            launch.kernel.name, launch.shared, launch.threads
        ));
    }
}

/// Runs the GEMM kernel of a tile's size, which also needs chunks of whole tiles.
pub(super) fn gathered_gemm<const ROWS: u32, const COLUMNS: u32>(
    launch: &Launch,
    runner: &Runner,
) -> Result {
    let arguments: GatheredGemmArguments = launch.arguments();
    let name = launch.kernel.name;
    check_tile_launch(launch, ROWS, COLUMNS);
    if arguments.chunks > 1 && !arguments.chunk.is_multiple_of(ROWS.into()) {
        violation(format!(
            "{name}: chunks of {} rows cut tiles",
            arguments.chunk
        ));
    }
    check_quota(launch, &arguments, (ROWS.into(), COLUMNS.into()));
    multiply(launch, runner, arguments)
}

/// How the blocks of a grid divide tiles.
pub(super) struct Division {
    /// Steps of a block in the last round; 0 if its tiles are not divided.
    pub quota: u64,
    /// Blocks that multiply.
    pub blocks: u64,
    pub tiles: u64,
    pub k: u64,
}

impl Division {
    /// Returns the tiles of the last round.
    fn last(&self) -> u64 {
        self.tiles % self.blocks
    }

    /// Returns the steps of the last round.
    fn steps(&self) -> u64 {
        self.last() * self.k.div_ceil(32)
    }
}

/// Reports a quota with which steps of the last tiles have no block.
pub(super) fn check_division(launch: &Launch, division: &Division) {
    let Division { quota, blocks, .. } = *division;
    let steps = division.steps();
    if quota != 0 && quota * blocks < steps {
        violation(format!(
            "{}: {quota} steps for each of {blocks} blocks, of {steps}",
            launch.kernel.name
        ));
    }
}

/// Reports a quota with which steps of the last tiles have no block, or parts of tiles no memory.
fn check_quota(launch: &Launch, arguments: &GatheredGemmArguments, (rows, columns): (u64, u64)) {
    let quota = u64::from(arguments.quota);
    if quota == 0 {
        return;
    }
    let [grid, ..] = launch.blocks;
    let world = arguments.group.world as usize;
    let ranges = match arguments.sharding {
        ShardingCode::COLUMNS => 1,
        _ => world,
    };
    let row_tiles: u64 = (0..ranges)
        .map(|member| shard(arguments, member).rows.div_ceil(rows))
        .sum();
    let division = Division {
        quota,
        blocks: u64::from(grid.saturating_sub(arguments.movers).max(1)),
        tiles: row_tiles * arguments.shape.n.div_ceil(columns),
        k: arguments.shape.k,
    };
    check_division(launch, &division);
    let counters = (u64::from(grid) * 4).next_multiple_of(SIGNAL_STRIDE);
    let places = division.steps().div_ceil(quota) + division.last();
    let bytes = counters + places * rows * columns * 4;
    if arguments.partials.0 == 0 || arguments.partial_bytes < bytes {
        violation(format!(
            "{}: {} bytes of partial sums at {:#x} where {bytes} may be used",
            launch.kernel.name, arguments.partial_bytes, arguments.partials.0
        ));
    }
}

pub(super) fn gathered_gemm_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    ranges(launch.arguments())
}
