//! Collectives over multicast addresses, or over the members' own addresses where multicast is emulated.
//!
//! The fake performs the switch's work on the bound replicas, in their order. Kernels handle the ends of a range
//! through the members' own addresses, so these must lead to the same bytes. Then everything between a kernel's
//! barriers is a reduction or a copy.

use symmem_core::backend::abi::{
    CollectiveGroup, CollectiveOperationCode, DeviceAddress, ElementTypeCode, MAX_RANKS,
    MoveArguments, MulticastArguments, MulticastLoad, MulticastStore, ReduceArguments,
    ReduceOpCode, SLOT_BLOCKS,
};
use symmem_core::host::emulation::Work;

use super::Launch;
use super::collectives::{
    Translation, check_element, check_grid, group_ranges, members, slots_bytes, spans,
};
use crate::error::{Code, Result};
use crate::report::violation;
use crate::work::Runner;

pub(super) fn reduce(launch: &Launch, runner: &Runner) -> Result {
    let arguments: MulticastArguments = launch.arguments();
    if !check_element(launch, "symmem_multicast_reduce_", arguments.element) {
        return Err(Code::ILLEGAL_ADDRESS);
    }
    let (element, reduce) = (arguments.element, arguments.reduce);
    if !reduces(element, reduce) {
        return refuse(
            launch,
            format!("no switch computes {} of {}", reduce.name(), element.name()),
        );
    }
    if arguments.load != MulticastLoad::REDUCED {
        return refuse(
            launch,
            format!("loads must be reduced, not {:?}", arguments.load),
        );
    }
    let translation = Translation::new(runner);
    let found = Found::new(launch, &translation, &arguments)?;
    let reduction = ReduceArguments {
        group: found.group,
        sources: found.sources,
        destinations: found.destinations,
        count: arguments.count,
        element,
        reduce,
    };
    translation.run(launch, Work::Reduce(&reduction))
}

pub(super) fn move_bytes(launch: &Launch, runner: &Runner) -> Result {
    let arguments: MulticastArguments = launch.arguments();
    if arguments.load != MulticastLoad::OWN || arguments.element != ElementTypeCode::U8 {
        let (load, element) = (arguments.load, arguments.element.name());
        return refuse(
            launch,
            format!("the kernel loads its own bytes, not {load:?} of {element}"),
        );
    }
    // A barrier is one meeting; all other operations meet at both ends.
    let meets = arguments.store == MulticastStore::OWN;
    let barrier = arguments.group.operation == CollectiveOperationCode::BARRIER;
    if meets != barrier || meets && arguments.count != 0 {
        return refuse(
            launch,
            "a barrier moves nothing; every other operation stores to all members".into(),
        );
    }
    let translation = Translation::new(runner);
    let found = Found::new(launch, &translation, &arguments)?;
    let own = found.sources[arguments.group.rank as usize];
    let copies = MoveArguments {
        group: found.group,
        destinations: found.destinations,
        sources: [own; MAX_RANKS],
        bytes: [arguments.count; MAX_RANKS],
        copies: found.group.world,
        concurrent: 1,
    };
    translation.run(launch, Work::Move(&copies))
}

fn refuse(launch: &Launch, why: String) -> Result {
    violation(format!("{}: {why}", launch.kernel.name));
    Err(Code::ILLEGAL_ADDRESS)
}

/// Whether `multimem.ld_reduce` supports the combination (table in the PTX ISA) with the results that symmem promises;
/// an average is a sum.
fn reduces(element: ElementTypeCode, reduce: ReduceOpCode) -> bool {
    use ElementTypeCode as E;
    match reduce {
        ReduceOpCode::SUM | ReduceOpCode::AVERAGE => matches!(
            element,
            E::F16 | E::BF16 | E::F32 | E::F64 | E::I32 | E::U32 | E::U64 | E::F8_E4M3 | E::F8_E5M2
        ),
        ReduceOpCode::MINIMUM | ReduceOpCode::MAXIMUM => {
            matches!(element, E::I32 | E::U32 | E::I64 | E::U64)
        }
        _ => false,
    }
}

type Addresses = [DeviceAddress; MAX_RANKS];

/// The memory that a kernel names, as addresses of this process.
struct Found {
    group: CollectiveGroup,
    /// What is reduced, in this order; or this rank's memory.
    sources: Addresses,
    /// What is written, if anything.
    destinations: Addresses,
}

impl Found {
    fn new(
        launch: &Launch,
        translation: &Translation<'_>,
        arguments: &MulticastArguments,
    ) -> Result<Self> {
        check_grid(launch, SLOT_BLOCKS);
        let mut group = arguments.group;
        translation.group(&mut group, false)?;
        let hardware = arguments.slots.0 != 0;
        let view = View {
            launch,
            translation,
            hardware,
            rank: group.rank as usize,
            world: members(&group)?,
        };
        if hardware {
            let bytes = slots_bytes(&group, false);
            view.behind(arguments.slots, bytes, &group.slots, "slots")?;
        }
        let bytes = arguments.count * arguments.element.bytes();
        let reduced = arguments.load == MulticastLoad::REDUCED;
        let to_all = arguments.store == MulticastStore::ALL;
        let (source, destination) = (arguments.source, arguments.destination);
        Ok(Self {
            group,
            sources: view.find(source, &arguments.sources, reduced, bytes, "sources")?,
            destinations: view.find(
                destination,
                &arguments.destinations,
                to_all,
                bytes,
                "destinations",
            )?,
        })
    }
}

/// One member's view of memory.
struct View<'a> {
    launch: &'a Launch,
    translation: &'a Translation<'a>,
    /// Whether multicast addresses are used.
    hardware: bool,
    rank: usize,
    world: usize,
}

impl View<'_> {
    /// Finds memory of all members, on hardware behind a multicast address, or memory of this member alone.
    fn find(
        &self,
        address: DeviceAddress,
        members: &Addresses,
        all: bool,
        bytes: u64,
        what: &str,
    ) -> Result<Addresses> {
        let mut found = [DeviceAddress::NULL; MAX_RANKS];
        if bytes == 0 {
            return Ok(found);
        }
        let given = address.0 != 0;
        if given != (self.hardware && all) {
            let why = match (self.hardware, given) {
                (false, _) => "have a multicast address, but the slots have none",
                (true, true) => "have a multicast address, but belong to this member alone",
                (true, false) => "have no multicast address, but the slots have one",
            };
            return refuse(self.launch, format!("the {what} {why}")).map(|()| found);
        }
        for (member, place) in found[..self.world].iter_mut().enumerate() {
            if all || member == self.rank {
                *place = self.translation.find(members[member], bytes)?;
            }
        }
        match self.hardware && all {
            true => self.behind(address, bytes, &found, what),
            false => Ok(found),
        }
    }

    /// Returns the replicas behind a multicast address, which must be the members' own memory.
    fn behind(
        &self,
        address: DeviceAddress,
        bytes: u64,
        members: &Addresses,
        what: &str,
    ) -> Result<Addresses> {
        let replicas = self.translation.replicas(address, bytes)?;
        let sorted = |addresses: &[DeviceAddress]| {
            let mut numbers: Vec<u64> = addresses.iter().map(|address| address.0).collect();
            numbers.sort_unstable();
            numbers
        };
        let mut found = [DeviceAddress::NULL; MAX_RANKS];
        if sorted(&replicas) != sorted(&members[..self.world]) {
            let why = format!(
                "the members' {what} are not the memory bound behind multicast address {:#x}",
                address.0
            );
            return refuse(self.launch, why).map(|()| found);
        }
        found[..self.world].copy_from_slice(&replicas);
        Ok(found)
    }
}

pub(super) fn ranges(launch: &Launch) -> Vec<(u64, u64)> {
    let arguments: MulticastArguments = launch.arguments();
    let world = (arguments.group.world as usize).min(MAX_RANKS);
    let bytes = arguments.count * arguments.element.bytes();
    let mut ranges = group_ranges(&arguments.group, false);
    let slots = slots_bytes(&arguments.group, false);
    ranges.extend(spans(&[arguments.slots], |_| slots));
    ranges.extend(spans(&[arguments.source, arguments.destination], |_| bytes));
    for addresses in [&arguments.sources, &arguments.destinations] {
        ranges.extend(spans(&addresses[..world], |_| bytes));
    }
    ranges
}
