//! Reductions and moves in Lamport packets.

use symmem_core::backend::abi::{
    CollectiveGroup, DeviceAddress, EVERY_MEMBER, LAMPORT_BUFFERS, LAMPORT_COUNTER_BYTES,
    MAX_RANKS, MoveLamportArguments, ReduceLamportArguments, SLOT_BLOCKS,
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
    let inbox = inbox_bytes(&arguments.group, arguments.part_bytes);
    for member in 0..world {
        let sent = source_bytes(&arguments, member);
        translation.change(&mut arguments.sources[member], sent)?;
        translation.change(&mut arguments.inboxes[member], inbox)?;
    }
    let received = destination_bytes(&arguments);
    translation.change(&mut arguments.destination, received)?;
    translation.change(&mut arguments.counters, LAMPORT_COUNTER_BYTES)?;
    translation.run(launch, Work::ReduceLamport(&arguments))
}

/// Returns the bytes of what a member reduces; 0 if the kernel does not use the address.
fn source_bytes(arguments: &ReduceLamportArguments, member: usize) -> u64 {
    let member = member as u32;
    match arguments.share_bytes {
        0 if arguments.receives(member) => arguments.bytes(),
        0 => 0,
        _ => arguments.share_of(member),
    }
}

/// Returns the bytes of the result; 0 if this rank does not receive it.
fn destination_bytes(arguments: &ReduceLamportArguments) -> u64 {
    match arguments.receives(arguments.group.rank) {
        true => arguments.bytes(),
        false => 0,
    }
}

pub(super) fn inbox_bytes(group: &CollectiveGroup, part_bytes: u32) -> u64 {
    let peers = u64::from(group.world).saturating_sub(1);
    LAMPORT_BUFFERS * peers * u64::from(part_bytes)
}

/// Reports a call that is not one of this kernel's.
fn check_call(launch: &Launch, arguments: &ReduceLamportArguments, world: usize) {
    let name = launch.kernel.name;
    let size = small(name);
    let call = ["two_shot_", "scatter_", "rooted_"];
    let call = call.into_iter().find(|call| name.contains(call));
    let call = call.unwrap_or_default();
    let prefix = size.map_or_else(String::new, |small| format!("{}_", small.name));
    let prefix = format!("symmem_reduce_lamport_{call}{prefix}");
    check_element(launch, &prefix, arguments.element);
    let (two_shot, rooted) = (call == "two_shot_", call == "rooted_");
    if two_shot != (arguments.share_bytes != 0) || rooted != (arguments.receiver != EVERY_MEMBER) {
        violation(format!(
            "{name} is given shares of {} bytes, and receiver {}",
            arguments.share_bytes, arguments.receiver
        ));
    }
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
    match size {
        Some(size) if two_shot => check_small_shares(launch, arguments, world, &size),
        Some(size) => check_small(launch, arguments, world, &size),
        None => {}
    }
}

/// Reports a one-shot call that is not one of a small kernel's.
fn check_small(launch: &Launch, arguments: &ReduceLamportArguments, world: usize, size: &Small) {
    let (name, bytes) = (launch.kernel.name, arguments.bytes());
    let sources = &arguments.sources[..world];
    // A pair's kernels, and those that scatter, take different sources.
    let alike = size.only == Some(2)
        || name.contains("scatter_")
        || sources.windows(2).all(|two| two[0] == two[1]);
    let wide = size.only.is_none_or(|only| world == only);
    let all = sources.iter().fold(bytes, |all, source| all | source.0);
    let aligned = (all | arguments.destination.0).is_multiple_of(16);
    let threads = threads(launch);
    if !alike || !wide || !aligned || bytes / 16 > threads * size.each {
        violation(format!(
            "{name} is given {bytes} bytes in a group of {world}, for {threads} threads, from {sources:?} to {:?}",
            arguments.destination
        ));
    }
}

/// Reports a two-shot call that is not one of the small kernel's.
fn check_small_shares(
    launch: &Launch,
    arguments: &ReduceLamportArguments,
    world: usize,
    size: &Small,
) {
    let (name, bytes, share) = (launch.kernel.name, arguments.bytes(), arguments.share_bytes);
    let sources = &arguments.sources[..world];
    let used = spans(sources, |member| arguments.share_of(member as u32));
    let all = used.fold(bytes | share, |all, (source, _)| all | source);
    let aligned = (all | arguments.destination.0).is_multiple_of(16);
    let threads = threads(launch);
    if !size.serves(world) || !aligned || share / 16 > threads * size.each {
        violation(format!(
            "{name} is given {bytes} bytes in shares of {share} in a group of {world}, for {threads} threads, from \
             {sources:?} to {:?}",
            arguments.destination
        ));
    }
}

fn threads(launch: &Launch) -> u64 {
    u64::from(launch.blocks[0]) * u64::from(launch.threads[0])
}

pub(super) fn ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: ReduceLamportArguments = launch.arguments();
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let inbox = inbox_bytes(&arguments.group, arguments.part_bytes);
    let mut ranges: Vec<(u64, u64)> = watch_ranges(&arguments.group.watch).into_iter().collect();
    ranges.extend(spans(&arguments.sources[..world], |member| {
        source_bytes(&arguments, member)
    }));
    ranges.extend(spans(&arguments.inboxes[..world], |_| inbox));
    let own: [DeviceAddress; 2] = [arguments.destination, arguments.counters];
    let lengths = [destination_bytes(&arguments), LAMPORT_COUNTER_BYTES];
    ranges.extend(spans(&own, |index| lengths[index]));
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
    for member in 0..world {
        let (sent, received) = (
            sent_bytes(&arguments, member),
            received_bytes(&arguments, member),
        );
        translation.change(&mut arguments.sources[member], sent)?;
        translation.change(&mut arguments.destinations[member], received)?;
        translation.change(&mut arguments.inboxes[member], inbox)?;
    }
    translation.change(&mut arguments.counters, LAMPORT_COUNTER_BYTES)?;
    translation.run(launch, Work::MoveLamport(&arguments))
}

/// Returns the bytes of this rank's message to a member; 0 if the kernel does not use the address.
fn sent_bytes(arguments: &MoveLamportArguments, member: usize) -> u64 {
    arguments.bytes_between(arguments.group.rank, member as u32)
}

/// Returns the bytes of a member's message to this rank, likewise.
fn received_bytes(arguments: &MoveLamportArguments, member: usize) -> u64 {
    arguments.bytes_between(member as u32, arguments.group.rank)
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
    let (sender, receiver) = (arguments.sender, arguments.receiver);
    let every = sender == EVERY_MEMBER && receiver == EVERY_MEMBER;
    if every == name.contains("_rooted") {
        violation(format!(
            "{name} is given sender {sender} and receiver {receiver}"
        ));
    }
    let Some(size) = small(name) else {
        return;
    };
    let (sources, destinations) = (
        &arguments.sources[..world],
        &arguments.destinations[..world],
    );
    let addresses = sources.iter().chain(destinations);
    let all = addresses.fold(arguments.bytes, |all, address| all | address.0);
    let threads = threads(launch);
    let taken = MoveLamportArguments::taken_bytes(arguments.bytes);
    if !size.serves(world) || !all.is_multiple_of(16) || taken / 16 > threads * size.each {
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
    ranges.extend(spans(&arguments.sources[..world], |member| {
        sent_bytes(&arguments, member)
    }));
    ranges.extend(spans(&arguments.destinations[..world], |member| {
        received_bytes(&arguments, member)
    }));
    ranges.extend(spans(&arguments.inboxes[..world], |_| inbox));
    ranges.extend(spans(&[arguments.counters], |_| LAMPORT_COUNTER_BYTES));
    ranges
}
