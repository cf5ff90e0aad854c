//! NVIDIA's fused GEMM + reduce kernels, with two tensor maps in front of the arguments.

use symmem_core::backend::abi::{
    DeviceAddress, ElementTypeCode, MAX_RANKS, MatrixOrderCode, ReducedGemmArguments, ReducedMode,
    SIGNAL_STRIDE,
};
use symmem_core::host::emulation::Work;

use super::collectives::{Translation, members};
use super::products::{TensorMap, check_map, check_name, map, map_of_b, span};
use super::signals::watch_ranges;
use super::{Launch, Plain};
use crate::error::Result;
use crate::report::violation;
use crate::work::Runner;

const ELEMENT_BYTES: u64 = 2;
const F32_BYTES: u64 = 4;

/// The arguments of NVIDIA's kernels.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub(super) struct TensorReducedArguments {
    a: TensorMap,
    b: TensorMap,
    arguments: ReducedGemmArguments,
}
// SAFETY: a repr(C) struct of integers, for which any bytes are a value.
unsafe impl Plain for TensorReducedArguments {}

/// Returns the bytes of an inbox that the host's code uses, which runs here. No kernel asks for fewer.
fn inbox_bytes(arguments: &ReducedGemmArguments) -> u64 {
    let shape = &arguments.shape;
    let rows = match (arguments.mode, arguments.all) {
        (ReducedMode::PACKETS, 1) => shape.m,
        _ => arguments.shard.min(shape.m),
    };
    let partial = match arguments.partial {
        ElementTypeCode::F32 => F32_BYTES,
        _ => ELEMENT_BYTES,
    };
    let peers = u64::from(arguments.group.world).saturating_sub(1);
    rows * shape.n * partial * peers
}

/// Returns everything that a call touches: addresses, with lengths in bytes.
fn touched(arguments: &mut ReducedGemmArguments) -> Vec<(&mut DeviceAddress, u64)> {
    let known = *arguments;
    let (shape, rank) = (&known.shape, known.group.rank as usize);
    let world = (known.group.world as usize).min(MAX_RANKS);
    let first = known.shard.saturating_mul(rank as u64).min(shape.m);
    let rows = match known.all {
        0 => known.shard.min(shape.m - first),
        _ => shape.m,
    };
    let (b_length, b_lines) = match shape.b_order {
        MatrixOrderCode::COLUMNS => (shape.k, shape.n),
        _ => (shape.n, shape.k),
    };
    let bias = shape.n * ELEMENT_BYTES * u64::from(known.bias.0 != 0);
    let mut touched = vec![
        (&mut arguments.a, span(shape.m, shape.k, shape.a_stride)),
        (&mut arguments.b, span(b_lines, b_length, shape.b_stride)),
        (&mut arguments.c, span(rows, shape.n, shape.c_stride)),
        (&mut arguments.bias, bias),
    ];
    let pushes = known.mode == ReducedMode::PUSH && known.all != 0;
    let results = arguments.results[..world].iter_mut();
    let whole = span(shape.m, shape.n, shape.c_stride);
    touched.extend(results.filter(|_| pushes).map(|result| (result, whole)));
    let inboxes = arguments.inboxes[..world].iter_mut();
    touched.extend(inboxes.map(|inbox| (inbox, inbox_bytes(&known))));
    let words = arguments.words[..world].iter_mut();
    touched.extend(words.map(|words| (words, world as u64 * SIGNAL_STRIDE)));
    touched
}

pub(super) fn ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let mut arguments = launch.arguments::<TensorReducedArguments>().arguments;
    let watch = arguments.group.watch;
    let named = touched(&mut arguments).into_iter();
    let named = named.map(|(address, bytes)| (address.0, bytes));
    let some = named.filter(|(address, bytes)| *address != 0 && *bytes != 0);
    some.chain(watch_ranges(&watch)).collect()
}

/// Runs the kernel for few rows, whose name ends in the rows of a tile.
pub(super) fn split_reduce<const ROWS: u32>(launch: &Launch, runner: &Runner) -> Result {
    let arguments = launch.arguments::<TensorReducedArguments>().arguments;
    let (name, shape) = (launch.kernel.name, &arguments.shape);
    if arguments.mode != ReducedMode::PACKETS {
        violation(format!(
            "{name} is launched in mode {}",
            arguments.mode.name()
        ));
    }
    if shape.m > ROWS.into() {
        violation(format!("{name} is launched with {} rows", shape.m));
    }
    tiles(launch, runner, ROWS, 128)
}

/// Checks the tensor maps of a kernel with tiles of `tile_rows` rows and boxes of `box_columns` columns of B, multiplies
/// and reduces.
fn tiles(launch: &Launch, runner: &Runner, tile_rows: u32, box_columns: u32) -> Result {
    let TensorReducedArguments {
        a,
        b,
        mut arguments,
    } = launch.arguments();
    let (name, shape) = (launch.kernel.name, &arguments.shape);
    let expected = map(
        shape,
        arguments.a,
        [shape.k, shape.m],
        shape.a_stride,
        tile_rows,
    );
    check_map(name, "A", &a, expected)?;
    let expected = map_of_b(shape, arguments.b, box_columns);
    check_map(name, "B", &b, expected)?;
    check_name(name, shape);
    let rank = members(&arguments.group).map(|_| arguments.group.rank as usize)?;
    let translation = Translation::new(runner);
    translation.watch(&mut arguments.group.watch)?;
    runner.check_polled(arguments.inboxes[rank].0);
    runner.check_polled(arguments.words[rank].0);
    for (address, bytes) in touched(&mut arguments) {
        translation.change(address, bytes)?;
    }
    translation.run(launch, Work::ReducedGemm(&arguments))
}
