//! The memory that the start of a communicator takes on each device, over the fakes.

#[allow(dead_code, reason = "this test uses the fakes only")]
mod support;

use rstest::rstest;
use std::time::Duration;
use support::vendors::{Vendor, ranks_with, role};
use symmem::{BackendSource, StartMemory, backends};

/// Most bytes that a start takes by default with up to 8 ranks.
const MOST: u64 = 64_000_000;
const VARIABLE: &str = "START_MEMORY_WORLD";

/// Returns the source of the vendor's linked backend, which needs no device.
fn source(vendor: Vendor) -> BackendSource {
    let probes = backends::probe_all().into_iter();
    let mut ours = probes.filter(|probe| probe.name == vendor.backend());
    ours.next().and_then(|probe| probe.source).expect("linked")
}

#[rstest]
fn the_default_of_every_world_of_one_host_is_within_64_mb(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let source = source(vendor);
    for world in 1..=8 {
        let memory = StartMemory::of(&source, world).unwrap();
        // Two allocations, each rounded up to 2 MiB.
        let rounded = memory.device_bytes() + (4 << 20);
        assert!(rounded <= MOST, "{world} ranks: {:#?}", memory.parts());
    }
}

#[rstest]
fn a_start_takes_what_the_inventory_says_and_no_more_than_64_mb(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
    #[values("1", "2", "4", "8")] world: &str,
) {
    let environment = [(VARIABLE, world), ("FAKE_DEVICE_COUNT", world)];
    let wrong = role(vendor, "start", &vendor.runtime(), &environment);
    assert_eq!(wrong, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn start() {
    let world = std::env::var(VARIABLE).expect("set above").parse().unwrap();
    let told = StartMemory::of(&source(Vendor::of_role()), world as usize).unwrap();
    let patient = |_, builder: symmem::Builder| {
        let limit = Duration::from_secs(60);
        builder.deadline(limit).setup_deadline(limit)
    };
    ranks_with(world, patient, |communicator| {
        let memory = communicator.start_memory();
        assert_eq!(*memory, told);
        // Each rank has a device of its own.
        let information = communicator.memory_information().unwrap();
        let taken = information.total - information.free;
        let rounding = 2 * communicator.capabilities().share_granularity;
        let bytes = memory.device_bytes();
        assert!(
            (bytes..=bytes + rounding).contains(&taken) && taken <= MOST,
            "{taken} bytes are taken, of {:#?}",
            memory.parts()
        );
        communicator.finalize().unwrap();
    });
}
