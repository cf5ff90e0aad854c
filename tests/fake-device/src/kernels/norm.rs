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
    // One-shot, the kernels read the own entry only.
    for member in 0..world {
        if lengths.two_shot || member == own {
            translation.change(&mut reduce.sources[member], lengths.sources[member])?;
        }
    }
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
        (&mut arguments.residual, lengths.sources[own]),
        (&mut arguments.residual_out, lengths.sources[own]),
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
    two_shot: bool,
    /// Of each member's rows in this call; the own entry is also the residual's.
    sources: [u64; MAX_RANKS],
    row: u64,
    result: u64,
    scales: u64,
}

impl Lengths {
    fn of(arguments: &ReduceNormArguments) -> Self {
        let row = u64::from(arguments.hidden) * arguments.reduce.element.bytes();
        let rows = |member| u64::from(arguments.rows_of(member as u32));
        // A call of some of each member's rows ends with those of the last member that has any.
        let world = (arguments.reduce.group.world as usize).min(MAX_RANKS);
        let end = |member: usize| match rows(member) {
            0 => 0,
            rows => member as u64 * u64::from(arguments.owner_rows) + rows,
        };
        let end = (0..world).map(end).max().unwrap_or(0);
        Self {
            two_shot: arguments.is_two_shot(),
            sources: std::array::from_fn(|member| rows(member) * row),
            row,
            result: match arguments.is_two_shot() {
                true => end * row,
                false => arguments.result_bytes(),
            },
            scales: arguments.scales_used() * 4,
        }
    }
}

/// Reports a call that is not one of this kernel's.
fn check_call(launch: &Launch, arguments: &ReduceNormArguments, world: usize) {
    let (name, reduce) = (launch.kernel.name, &arguments.reduce);
    let size = [
        "pair_shares",
        "few_shares",
        "shares",
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
    if launch.blocks[0] > arguments.block_rows() {
        violation(format!(
            "{name} is given {} rows for {} blocks: a block has a row at least",
            arguments.block_rows(),
            launch.blocks[0]
        ));
    }
    if name.contains("shares") != arguments.is_two_shot() {
        violation(format!("{name} is given {arguments:?}"));
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
    let Some(size) = size.filter(|size| *size != "shares") else {
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
        reduce.destination,
        arguments.residual,
        arguments.residual_out,
        arguments.weight,
        arguments.bias,
    ];
    let addresses = addresses.iter().chain(&reduce.sources[..world]);
    let all = addresses
        .clone()
        .fold(bytes, |all, address| all | address.0);
    let room = u64::from(launch.threads[0]);
    let fits = if size.starts_with("pair") {
        world == 2
    } else {
        world > 1
    };
    if !fits || !all.is_multiple_of(16) || bytes / 16 > room {
        violation(format!(
            "{name} is given rows of {bytes} bytes in a group of {world}, for {} threads, at {:?}",
            launch.threads[0],
            addresses.collect::<Vec<_>>()
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
    let sources = match lengths.two_shot {
        true => &reduce.sources[..world],
        false => &reduce.sources[own..=own],
    };
    let of_sources = match lengths.two_shot {
        true => &lengths.sources[..world],
        false => &lengths.sources[own..=own],
    };
    ranges.extend(spans(sources, |index| of_sources[index]));
    let addresses = [
        reduce.destination,
        arguments.residual,
        arguments.residual_out,
        arguments.weight,
        arguments.bias,
        arguments.scales,
    ];
    let bytes = [
        lengths.result,
        lengths.sources[own],
        lengths.sources[own],
        lengths.row,
        lengths.row,
        lengths.scales,
    ];
    ranges.extend(spans(&addresses, |index| bytes[index]));
    ranges
}
