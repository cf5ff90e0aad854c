//! Sums of rows in Lamport packets, with a residual and a norm.

use symmem_core::backend::abi::{
    LAMPORT_COUNTER_BYTES, MAX_RANKS, QuantizationCode, ReduceNormArguments, SLOT_BLOCKS,
};
use symmem_core::host::emulation::Work;

use super::Launch;
use super::collectives::{Translation, check_element, check_grid, members, spans};
use super::lamport::inbox_bytes;
use super::signals::watch_ranges;
use crate::error::Result;
use crate::report::violation;
use crate::work::Runner;

pub(super) fn reduce(launch: &Launch, runner: &Runner) -> Result {
    let mut arguments: ReduceNormArguments = launch.arguments();
    check_grid(launch, SLOT_BLOCKS);
    let world = members(&arguments.reduce.group)?;
    check_call(launch, &arguments, world);
    let lengths = Lengths::of(&arguments);
    let translation = Translation::new(runner);
    let reduce = &mut arguments.reduce;
    let own = reduce.group.rank as usize;
    translation.watch(&mut reduce.group.watch)?;
    translation.change(&mut reduce.sources[own], lengths.matrix)?;
    translation.change(&mut reduce.destination, lengths.result)?;
    if world > 1 {
        // Peers write into this rank's inbox, which it polls.
        runner.check_polled(reduce.inboxes[own].0);
        let inbox = inbox_bytes(&reduce.group, reduce.part_bytes);
        for member in 0..world {
            translation.change(&mut reduce.inboxes[member], inbox)?;
        }
        translation.change(&mut reduce.counters, LAMPORT_COUNTER_BYTES)?;
    }
    for (address, bytes) in [
        (&mut arguments.residual, lengths.matrix),
        (&mut arguments.residual_out, lengths.matrix),
        (&mut arguments.weight, lengths.row),
        (&mut arguments.bias, lengths.row),
        (&mut arguments.scales, lengths.scales),
    ] {
        translation.change(address, bytes)?;
    }
    translation.run(launch, Work::ReduceNorm(&arguments))
}

/// Bytes of what a call reads and writes.
struct Lengths {
    matrix: u64,
    row: u64,
    result: u64,
    scales: u64,
}

impl Lengths {
    fn of(arguments: &ReduceNormArguments) -> Self {
        Self {
            matrix: arguments.reduce.bytes(),
            row: u64::from(arguments.hidden) * arguments.reduce.element.bytes(),
            result: arguments.result_bytes(),
            scales: arguments.scales_used() * 4,
        }
    }
}

/// Reports a call that is not one of this kernel's.
fn check_call(launch: &Launch, arguments: &ReduceNormArguments, world: usize) {
    let (name, reduce) = (launch.kernel.name, &arguments.reduce);
    let size = [
        "pair_plain",
        "few_plain",
        "pair_narrow",
        "few_narrow",
        "pair",
        "few",
    ];
    let size = size.into_iter().find(|size| name.contains(size));
    let prefix = size.map_or_else(String::new, |size| format!("{size}_"));
    check_element(
        launch,
        &format!("symmem_reduce_norm_{prefix}"),
        reduce.element,
    );
    if reduce.dependents != reduce.group.dependents || reduce.pair != reduce.pair_of() {
        violation(format!("{name} is given {reduce:?}"));
    }
    if u64::from(launch.blocks[0]) > u64::from(arguments.rows) {
        violation(format!(
            "{name} is given {} rows for {} blocks: a block has a row at least",
            arguments.rows, launch.blocks[0]
        ));
    }
    let scaled = arguments.quantization != QuantizationCode::NONE;
    if scaled == (arguments.scales.0 == 0) {
        violation(format!(
            "{name} is given {:?} and scales at {:#x}",
            arguments.quantization, arguments.scales.0
        ));
    }
    // Two numbers for each 32 threads.
    if launch.shared < launch.threads[0].div_ceil(32) * 8 {
        violation(format!(
            "{name} is given {} bytes of shared memory for {} threads",
            launch.shared, launch.threads[0]
        ));
    }
    let Some(size) = size else {
        return;
    };
    let is_its = match size {
        "pair_plain" | "few_plain" => arguments.is_plain(),
        "pair_narrow" | "few_narrow" => arguments.is_narrow(),
        _ => true,
    };
    if !is_its {
        violation(format!("{name} is given {arguments:?}"));
    }
    let bytes = u64::from(arguments.hidden) * reduce.element.bytes();
    let addresses = [
        reduce.sources[reduce.group.rank as usize],
        reduce.destination,
        arguments.residual,
        arguments.residual_out,
        arguments.weight,
        arguments.bias,
    ];
    let all = addresses.iter().fold(bytes, |all, address| all | address.0);
    let room = u64::from(launch.threads[0]);
    let fits = if size.starts_with("pair") {
        world == 2
    } else {
        world > 1
    };
    if !fits || !all.is_multiple_of(16) || bytes / 16 > room {
        violation(format!(
            "{name} is given rows of {bytes} bytes in a group of {world}, for {} threads, at {addresses:?}",
            launch.threads[0]
        ));
    }
}

pub(super) fn ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: ReduceNormArguments = launch.arguments();
    let (reduce, lengths) = (&arguments.reduce, Lengths::of(&arguments));
    let world = (reduce.group.world as usize).min(MAX_RANKS);
    let own = (reduce.group.rank as usize).min(MAX_RANKS - 1);
    let mut ranges: Vec<(u64, u64)> = watch_ranges(&reduce.group.watch).into_iter().collect();
    if world > 1 {
        let inbox = inbox_bytes(&reduce.group, reduce.part_bytes);
        ranges.extend(spans(&reduce.inboxes[..world], |_| inbox));
        ranges.extend(spans(&[reduce.counters], |_| LAMPORT_COUNTER_BYTES));
    }
    let addresses = [
        reduce.sources[own],
        reduce.destination,
        arguments.residual,
        arguments.residual_out,
        arguments.weight,
        arguments.bias,
        arguments.scales,
    ];
    let bytes = [
        lengths.matrix,
        lengths.result,
        lengths.matrix,
        lengths.matrix,
        lengths.row,
        lengths.row,
        lengths.scales,
    ];
    ranges.extend(spans(&addresses, |index| bytes[index]));
    ranges
}
