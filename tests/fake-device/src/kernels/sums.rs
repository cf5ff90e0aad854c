//! GEMM + reduce-scatter and GEMM + all-reduce in one kernel.
//!
//! The fake multiplies, sends and adds as the host backend does: in memory of the size that the kernel asks for, but in another
//! layout. Two tensor maps come in front of the arguments of NVIDIA's kernels.

use symmem_core::backend::abi::{
    DeviceAddress, MatrixOrderCode, ReducedGemmArguments, ReducedMode, SIGNAL_STRIDE,
};
use symmem_core::host::emulation::{Work, reduced_limits};

use super::collectives::{Translation, members};
use super::products::{
    Division, ELEMENT_BYTES, TensorMap, check_division, check_map, check_matrices,
    check_tile_launch, span,
};
use super::signals::watch_ranges;
use super::{Launch, Plain};
use crate::error::Result;
use crate::report::violation;
use crate::work::Runner;

/// The arguments of the kernels.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct TensorReducedArguments {
    a: TensorMap,
    b: TensorMap,
    arguments: ReducedGemmArguments,
}
// SAFETY: a repr(C) struct of integers, for which any bytes are a value.
unsafe impl Plain for TensorReducedArguments {}
// SAFETY: as above.
unsafe impl Plain for ReducedGemmArguments {}

/// Returns the rows of the sum that a member owns.
fn own_rows(arguments: &ReducedGemmArguments, member: usize) -> u64 {
    let rows = arguments.shape.m;
    let first = (member as u64).saturating_mul(arguments.shard).min(rows);
    arguments.shard.min(rows - first)
}

/// Returns everything that a call touches: addresses, with lengths in bytes.
fn touched(arguments: &mut ReducedGemmArguments) -> Vec<(&mut DeviceAddress, u64)> {
    let known = *arguments;
    let (shape, rank) = (&known.shape, known.group.rank as usize);
    let world = known.group.world as usize;
    let (b_length, b_lines) = match shape.b_order {
        MatrixOrderCode::COLUMNS => (shape.k, shape.n),
        _ => (shape.n, shape.k),
    };
    let rows = match known.all {
        0 => own_rows(&known, rank),
        _ => shape.m,
    };
    let sum = span(rows, shape.n, shape.c_stride);
    let bias = shape.n * ELEMENT_BYTES * u64::from(known.bias.0 != 0);
    let mut touched = vec![
        (&mut arguments.a, span(shape.m, shape.k, shape.a_stride)),
        (&mut arguments.b, span(b_lines, b_length, shape.b_stride)),
        (&mut arguments.c, sum),
        (&mut arguments.bias, bias),
    ];
    let limits = reduced_limits(shape, &known.problem()).unwrap_or_default();
    // The words of the kernel for few rows are three counters, and shorter than the host backend's. But an allocation of them has a
    // whole granule.
    for (addresses, bytes) in [
        (&mut arguments.inboxes, limits.inbox_bytes),
        (&mut arguments.words, limits.word_bytes),
        (&mut arguments.results, if known.all != 0 { sum } else { 0 }),
    ] {
        let members = addresses[..world].iter_mut();
        touched.extend(members.map(|address| (address, bytes)));
    }
    touched
}

pub(super) fn tensor_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    ranges_of(launch.arguments::<TensorReducedArguments>().arguments)
}

pub(super) fn ranges(launch: &Launch) -> Vec<(u64, u64)> {
    ranges_of(launch.arguments())
}

fn ranges_of(mut arguments: ReducedGemmArguments) -> Vec<(u64, u64)> {
    let watch = arguments.group.watch;
    if members(&arguments.group).is_err() {
        return watch_ranges(&watch);
    }
    let named = touched(&mut arguments).into_iter();
    let named = named.map(|(address, bytes)| (address.0, bytes));
    let some = named.filter(|(address, bytes)| *address != 0 && *bytes != 0);
    some.chain(watch_ranges(&watch)).collect()
}

/// Runs NVIDIA's kernel for large tiles.
pub(super) fn reduced_gemm(launch: &Launch, runner: &Runner) -> Result {
    run_with_maps(launch, runner, ReducedMode::PUSH, 128)
}

/// Runs the kernel for few rows, whose name ends in the rows of a tile.
pub(super) fn split_reduce<const ROWS: u32>(launch: &Launch, runner: &Runner) -> Result {
    run_with_maps(launch, runner, ReducedMode::PACKETS, ROWS)
}

/// Runs AMD's kernel of a tile's size.
pub(super) fn tile_reduce<const ROWS: u32, const COLUMNS: u32>(
    launch: &Launch,
    runner: &Runner,
) -> Result {
    let arguments: ReducedGemmArguments = launch.arguments();
    check_tile_launch(launch, ROWS, COLUMNS);
    members(&arguments.group)?;
    let (rows, columns) = (u64::from(ROWS), u64::from(COLUMNS));
    let world = arguments.group.world as usize;
    let tiles = |member| own_rows(&arguments, member).div_ceil(rows);
    let row_tiles: u64 = (0..world).map(tiles).sum();
    let [blocks, ..] = launch.blocks;
    // The kernel is not told the inbox's size: tests of `backend-hip` are about that.
    let division = Division {
        quota: arguments.quota.into(),
        blocks: blocks.into(),
        tiles: row_tiles * arguments.shape.n.div_ceil(columns),
        k: arguments.shape.k,
    };
    check_division(launch, &division);
    run(launch, runner, ReducedMode::PUSH, arguments)
}

fn run_with_maps(launch: &Launch, runner: &Runner, mode: ReducedMode, tile_rows: u32) -> Result {
    /// Columns in a box of B.
    const BOX_COLUMNS: u32 = 128;
    let TensorReducedArguments { a, b, arguments } = launch.arguments();
    let (name, shape) = (launch.kernel.name, arguments.shape);
    members(&arguments.group)?;
    let lines = (shape.k, shape.m, shape.a_stride);
    let expected = TensorMap::of(shape.element, arguments.a, lines, tile_rows);
    check_map(name, "A", &a, expected)?;
    check_map(
        name,
        "B",
        &b,
        TensorMap::of_b(&shape, arguments.b, BOX_COLUMNS),
    )?;
    run(launch, runner, mode, arguments)
}

fn run(
    launch: &Launch,
    runner: &Runner,
    mode: ReducedMode,
    mut arguments: ReducedGemmArguments,
) -> Result {
    let name = launch.kernel.name;
    check_matrices(name, &arguments.shape);
    if arguments.mode != mode {
        let given = arguments.mode.name();
        violation(format!("{name} is launched in mode {given}"));
    }
    let rank = arguments.group.rank as usize;
    for (what, address) in [
        ("words", arguments.words[rank]),
        ("inbox", arguments.inboxes[rank]),
    ] {
        if !address.0.is_multiple_of(SIGNAL_STRIDE) {
            violation(format!("{name}: the {what} are at {:#x}", address.0));
        }
    }
    if arguments.all != 0 && arguments.c != arguments.results[rank] {
        violation(format!("{name}: C is not this rank's own result"));
    }
    runner.check_polled(arguments.words[rank].0);
    if mode == ReducedMode::PACKETS {
        runner.check_polled(arguments.inboxes[rank].0);
    }
    let translation = Translation::new(runner);
    translation.watch(&mut arguments.group.watch)?;
    for (address, bytes) in touched(&mut arguments) {
        translation.change(address, bytes)?;
    }
    translation.run(launch, Work::ReducedGemm(&arguments))
}
