//! GEMM + reduce-scatter and GEMM + all-reduce in one kernel.
//!
//! The fake multiplies, sends and adds as the host backend does: in memory of the size that the kernel asks for, but in another
//! layout. Two tensor maps come in front of the arguments.

use symmem_core::backend::abi::{
    DeviceAddress, MatrixOrderCode, ReducedGemmArguments, ReducedMode, SIGNAL_STRIDE,
};
use symmem_core::host::emulation::{Work, reduced_limits};

use super::collectives::{Translation, members};
use super::products::{ELEMENT_BYTES, TensorMap, check_map, check_matrices, span};
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

pub(super) fn ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let mut arguments = launch.arguments::<TensorReducedArguments>().arguments;
    let watch = arguments.group.watch;
    if members(&arguments.group).is_err() {
        return watch_ranges(&watch);
    }
    let named = touched(&mut arguments).into_iter();
    let named = named.map(|(address, bytes)| (address.0, bytes));
    let some = named.filter(|(address, bytes)| *address != 0 && *bytes != 0);
    some.chain(watch_ranges(&watch)).collect()
}

/// Runs the kernel for large tiles.
pub(super) fn reduced_gemm(launch: &Launch, runner: &Runner) -> Result {
    run(launch, runner, ReducedMode::PUSH, 128)
}

/// Runs the kernel for few rows, whose name ends in the rows of a tile.
pub(super) fn split_reduce<const ROWS: u32>(launch: &Launch, runner: &Runner) -> Result {
    run(launch, runner, ReducedMode::PACKETS, ROWS)
}

fn run(launch: &Launch, runner: &Runner, mode: ReducedMode, tile_rows: u32) -> Result {
    /// Columns in a box of B.
    const BOX_COLUMNS: u32 = 128;
    let TensorReducedArguments {
        a,
        b,
        mut arguments,
    } = launch.arguments();
    let (name, shape) = (launch.kernel.name, arguments.shape);
    members(&arguments.group)?;
    check_matrices(name, &shape);
    if arguments.mode != mode {
        let given = arguments.mode.name();
        violation(format!("{name} is launched in mode {given}"));
    }
    let lines = (shape.k, shape.m, shape.a_stride);
    let expected = TensorMap::of(shape.element, arguments.a, lines, tile_rows);
    check_map(name, "A", &a, expected)?;
    check_map(
        name,
        "B",
        &b,
        TensorMap::of_b(&shape, arguments.b, BOX_COLUMNS),
    )?;
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
