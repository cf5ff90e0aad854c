//! Reductions and moves in Lamport packets.

use symmem_core::backend::abi::{
    CollectiveGroup, DeviceAddress, LAMPORT_BUFFERS, LAMPORT_COUNTER_BYTES, MAX_RANKS,
    MoveLamportArguments, ReduceLamportArguments, SLOT_BLOCKS,
};
use symmem_core::host::emulation::Work;

use super::Launch;
use super::collectives::{Small, Translation, check_element, check_grid, members, small, spans};
use super::signals::watch_ranges;
use crate::error::Result;
use crate::report::violation;
use crate::work::Runner;

pub(super) fn reduce(launch: &Launch, runner: &Runner) -> Result {
    let mut arguments: ReduceLamportArguments = launch.arguments();
    check_grid(launch, SLOT_BLOCKS);
    let world = members(&arguments.group)?;
    check_call(launch, &arguments, world);
    let translation = Translation::new(runner);
    translation.watch(&mut arguments.group.watch)?;
    // Peers write into this rank's inbox, which it polls.
    if world > 1 {
        runner.check_polled(arguments.inboxes[arguments.group.rank as usize].0);
    }
    let (bytes, inbox) = (
        message_bytes(&arguments),
        inbox_bytes(&arguments.group, arguments.part_bytes),
    );
    for member in 0..world {
        translation.change(&mut arguments.sources[member], bytes)?;
        translation.change(&mut arguments.inboxes[member], inbox)?;
    }
    translation.change(&mut arguments.destination, bytes)?;
    translation.change(&mut arguments.counters, LAMPORT_COUNTER_BYTES)?;
    translation.run(launch, Work::ReduceLamport(&arguments))
}

fn message_bytes(arguments: &ReduceLamportArguments) -> u64 {
    arguments.count * arguments.element.bytes()
}

fn inbox_bytes(group: &CollectiveGroup, part_bytes: u32) -> u64 {
    let peers = u64::from(group.world).saturating_sub(1);
    LAMPORT_BUFFERS * peers * u64::from(part_bytes)
}

/// Reports a call that is not one of this kernel's.
fn check_call(launch: &Launch, arguments: &ReduceLamportArguments, world: usize) {
    let name = launch.kernel.name;
    let size = small(name);
    let prefix = size.map_or_else(String::new, |small| format!("{}_", small.name));
    let prefix = format!("symmem_reduce_lamport_{prefix}");
    check_element(launch, &prefix, arguments.element);
    if arguments.dependents != arguments.group.dependents {
        violation(format!(
            "{name} is given {:?} beside {:?} of the group",
            arguments.dependents, arguments.group.dependents
        ));
    }
    if arguments.pair != arguments.pair_of() {
        violation(format!(
            "{name} is given {:?} for {:?}",
            arguments.pair,
            arguments.pair_of()
        ));
    }
    let Some(Small { each, pair, .. }) = size else {
        return;
    };
    let sources = &arguments.sources[..world];
    let alike = pair || sources.windows(2).all(|two| two[0] == two[1]);
    let wide = !pair || world == 2;
    let all = sources
        .iter()
        .fold(message_bytes(arguments), |all, source| all | source.0);
    let aligned = (all | arguments.destination.0).is_multiple_of(16);
    let threads = u64::from(launch.blocks[0]) * u64::from(launch.threads[0]);
    if !alike || !wide || !aligned || message_bytes(arguments) / 16 > threads * each {
        violation(format!(
            "{name} is given {} bytes in a group of {world}, for {threads} threads, from {sources:?} to {:?}",
            message_bytes(arguments),
            arguments.destination
        ));
    }
}

pub(super) fn ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: ReduceLamportArguments = launch.arguments();
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let (bytes, inbox) = (
        message_bytes(&arguments),
        inbox_bytes(&arguments.group, arguments.part_bytes),
    );
    let mut ranges: Vec<(u64, u64)> = watch_ranges(&arguments.group.watch).into_iter().collect();
    ranges.extend(spans(&arguments.sources[..world], |_| bytes));
    ranges.extend(spans(&arguments.inboxes[..world], |_| inbox));
    let own: [DeviceAddress; 2] = [arguments.destination, arguments.counters];
    ranges.extend(spans(&own, |index| [bytes, LAMPORT_COUNTER_BYTES][index]));
    ranges
}

pub(super) fn move_any(launch: &Launch, runner: &Runner) -> Result {
    let mut arguments: MoveLamportArguments = launch.arguments();
    check_grid(launch, SLOT_BLOCKS);
    let world = members(&arguments.group)?;
    check_move(launch, &arguments, world);
    let translation = Translation::new(runner);
    translation.watch(&mut arguments.group.watch)?;
    // Peers write into this rank's inbox, which it polls.
    if world > 1 {
        runner.check_polled(arguments.inboxes[arguments.group.rank as usize].0);
    }
    let inbox = inbox_bytes(&arguments.group, arguments.part_bytes);
    let bytes = arguments.bytes;
    for member in 0..world {
        translation.change(&mut arguments.sources[member], bytes)?;
        translation.change(&mut arguments.destinations[member], bytes)?;
        translation.change(&mut arguments.inboxes[member], inbox)?;
    }
    translation.change(&mut arguments.counters, LAMPORT_COUNTER_BYTES)?;
    translation.run(launch, Work::MoveLamport(&arguments))
}

/// Reports a move that is not one of this kernel's.
fn check_move(launch: &Launch, arguments: &MoveLamportArguments, world: usize) {
    let name = launch.kernel.name;
    if arguments.dependents != arguments.group.dependents {
        violation(format!(
            "{name} is given {:?} beside {:?} of the group",
            arguments.dependents, arguments.group.dependents
        ));
    }
    if arguments.pair != arguments.pair_of() {
        violation(format!(
            "{name} is given {:?} for {:?}",
            arguments.pair,
            arguments.pair_of()
        ));
    }
    let Some(Small { each, pair, .. }) = small(name) else {
        return;
    };
    let serves = if pair { world == 2 } else { world <= 8 };
    let (sources, destinations) = (
        &arguments.sources[..world],
        &arguments.destinations[..world],
    );
    let addresses = sources.iter().chain(destinations);
    let all = addresses.fold(arguments.bytes, |all, address| all | address.0);
    let threads = u64::from(launch.blocks[0]) * u64::from(launch.threads[0]);
    let taken = MoveLamportArguments::taken_bytes(arguments.bytes);
    if !serves || !all.is_multiple_of(16) || taken / 16 > threads * each {
        violation(format!(
            "{name} is given {} bytes in a group of {world}, for {threads} threads, from {sources:?} to {destinations:?}",
            arguments.bytes
        ));
    }
}

pub(super) fn move_ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: MoveLamportArguments = launch.arguments();
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let inbox = inbox_bytes(&arguments.group, arguments.part_bytes);
    let mut ranges: Vec<(u64, u64)> = watch_ranges(&arguments.group.watch).into_iter().collect();
    ranges.extend(spans(&arguments.sources[..world], |_| arguments.bytes));
    ranges.extend(spans(&arguments.destinations[..world], |_| arguments.bytes));
    ranges.extend(spans(&arguments.inboxes[..world], |_| inbox));
    ranges.extend(spans(&[arguments.counters], |_| LAMPORT_COUNTER_BYTES));
    ranges
}
