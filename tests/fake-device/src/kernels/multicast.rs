//! Collectives by multicast, done by the members' own addresses, which they are given either way.

use symmem_core::backend::abi::{MulticastArguments, MulticastLoad, MulticastStore, SLOT_BLOCKS};
use symmem_core::host::emulation::Work;

use super::Launch;
use super::collectives::{Translation, check_element, check_grid, group_ranges, members, spans};
use crate::error::Result;
use crate::report::violation;
use crate::work::Runner;

pub(super) fn reduce(launch: &Launch, runner: &Runner) -> Result {
    let arguments: MulticastArguments = launch.arguments();
    check_element(launch, "symmem_multicast_reduce_", arguments.element);
    if arguments.load != MulticastLoad::REDUCED {
        violation(format!("{} reduces nothing", launch.kernel.name));
    }
    run(launch, runner, arguments)
}

pub(super) fn move_bytes(launch: &Launch, runner: &Runner) -> Result {
    let arguments: MulticastArguments = launch.arguments();
    if arguments.load != MulticastLoad::OWN || arguments.element.bytes() != 1 {
        violation(format!(
            "{} moves bytes of its own, not {} of {}",
            launch.kernel.name,
            arguments.load.name(),
            arguments.element.name()
        ));
    }
    run(launch, runner, arguments)
}

fn run(launch: &Launch, runner: &Runner, mut arguments: MulticastArguments) -> Result {
    check_grid(launch, SLOT_BLOCKS);
    let translation = Translation::new(runner);
    translation.group(&mut arguments.group, false)?;
    let bytes = arguments.count * arguments.element.bytes();
    let (world, rank) = (members(&arguments.group)?, arguments.group.rank as usize);
    for member in 0..world {
        let own = member == rank;
        let (to, from) = (arguments.destinations[member], arguments.sources[member]);
        let loaded = arguments.load == MulticastLoad::REDUCED || own;
        let stored = arguments.store == MulticastStore::ALL || own;
        if bytes > 0 && (loaded && from.0 == 0 || stored && to.0 == 0) {
            violation(format!(
                "{} is not told where the memory of member {member} is",
                launch.kernel.name
            ));
        }
        // A copy onto itself must stay recognisable as one.
        translation.change(&mut arguments.sources[member], bytes)?;
        translation.change(&mut arguments.destinations[member], bytes)?;
    }
    translation.run(launch, Work::Multicast(&arguments))
}

pub(super) fn ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: MulticastArguments = launch.arguments();
    let world = (arguments.group.world as usize).min(symmem_core::backend::abi::MAX_RANKS);
    let bytes = arguments.count * arguments.element.bytes();
    let mut ranges = group_ranges(&arguments.group, false);
    for addresses in [&arguments.destinations, &arguments.sources] {
        ranges.extend(spans(&addresses[..world], |_| bytes));
    }
    ranges
}
