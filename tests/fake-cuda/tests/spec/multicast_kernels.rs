//! Kernels over multicast addresses: what a switch does with the bound replicas.

use std::os::fd::AsRawFd;

use symmem_core::backend::abi::{
    CollectiveGroup, CollectiveOperationCode, DependentsCode, DeviceAddress, ElementTypeCode,
    MAX_RANKS, MulticastArguments, MulticastLoad, MulticastStore, ReduceOpCode, SLOT_BLOCKS,
    SLOT_BYTES, Watch,
};
use symmem_fake_cuda::contexts::*;
use symmem_fake_cuda::modules::cuFuncLoad;
use symmem_fake_cuda::multicast::*;
use symmem_fake_cuda::streams::*;
use symmem_fake_cuda::vmm::*;

use crate::kernels::launch;
use crate::multicast_sharing::{descriptor_of, exported, import};
use crate::multicast_support::{HARDWARE, UNIT, memory, object};
use crate::support::*;

/// Offset of the elements in each device's memory, behind the slots.
const DATA: u64 = 3 << 19;
const RESULT: u64 = DATA + 4096;
const _: () = assert!(SLOT_BLOCKS as u64 * SLOT_BYTES <= DATA);

/// Two ranks. Each has a unit of its device's memory, which is bound at one unit of an object.
struct World {
    object: u64,
    /// Each rank's memory, as addresses in this process.
    bases: [u64; 2],
    /// The multicast address of both.
    both: u64,
}

/// Maps a handle with access for both devices.
#[track_caller]
fn open_to_both(handle: u64, units: usize) -> u64 {
    let (mut base, bytes) = (0, units * UNIT);
    ok(cuMemAddressReserve(Some(&mut base), bytes, UNIT, 0, 0));
    ok(cuMemMap(base, bytes, 0, handle, 0));
    let access = [0, 1].map(|id| Access {
        location: Location { kind: 1, id },
        flags: 3,
    });
    // SAFETY: the array has two descriptors.
    ok(unsafe { cuMemSetAccess(base, bytes, access.as_ptr(), 2) });
    base
}

impl World {
    /// Sets up both ranks in this process.
    fn of_one_process() -> Self {
        let object = object(2);
        let parts = [0, 1].map(|device| memory(device, 1));
        for device in [0, 1] {
            ok(cuMulticastAddDevice(object, device));
        }
        for part in parts {
            ok(cuMulticastBindMem(object, UNIT, part, 0, UNIT, 0));
        }
        Self::new(object, parts)
    }

    fn new(object: u64, parts: [u64; 2]) -> Self {
        let bases = parts.map(|part| open_to_both(part, 1));
        let both = open_to_both(object, 4) + UNIT as u64;
        Self {
            object,
            bases,
            both,
        }
    }

    fn at(&self, offset: u64) -> [DeviceAddress; MAX_RANKS] {
        let mut addresses = [DeviceAddress::NULL; MAX_RANKS];
        for (address, base) in addresses.iter_mut().zip(self.bases) {
            *address = DeviceAddress(base + offset);
        }
        addresses
    }

    /// Returns the arguments of a rank that does its half of a two-shot all-reduce of 8 floats.
    fn all_reduce(&self, rank: u32) -> MulticastArguments {
        let half = 16 * u64::from(rank);
        MulticastArguments {
            group: CollectiveGroup {
                watch: Watch {
                    deadline_ns: 60_000_000_000,
                    rank,
                    ..Default::default()
                },
                slots: self.at(0),
                packet_bytes: 0,
                dependents: DependentsCode::ANSWERED,
                rank,
                world: 2,
                slot: 0,
                operation: CollectiveOperationCode::ALL_REDUCE,
                members: std::array::from_fn(|member| member as u8),
            },
            slots: DeviceAddress(self.both),
            source: DeviceAddress(self.both + DATA + half),
            destination: DeviceAddress(self.both + RESULT + half),
            sources: self.at(DATA + half),
            destinations: self.at(RESULT + half),
            count: 4,
            element: ElementTypeCode::F32,
            reduce: ReduceOpCode::SUM,
            load: MulticastLoad::REDUCED,
            store: MulticastStore::ALL,
        }
    }
}

/// The same without multicast addresses, as in emulation.
fn emulated(arguments: MulticastArguments) -> MulticastArguments {
    MulticastArguments {
        slots: DeviceAddress::NULL,
        source: DeviceAddress::NULL,
        destination: DeviceAddress::NULL,
        ..arguments
    }
}

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

/// Launches a kernel once by each rank of this process, and waits for the end.
fn run(name: &str, contexts: [u64; 2], all: [MulticastArguments; 2]) -> [i32; 2] {
    let mut streams = [0; 2];
    for ((context, arguments), own) in contexts.into_iter().zip(all).zip(&mut streams) {
        ok(cuCtxSetCurrent(context));
        *own = stream();
        let (_, function) = kernel(name, size_of::<MulticastArguments>());
        ok(cuFuncLoad(function));
        ok(launch(function, 4, 128, 0, *own, &arguments));
    }
    let mut ends = [0; 2];
    for ((context, stream), end) in contexts.into_iter().zip(streams).zip(&mut ends) {
        ok(cuCtxSetCurrent(context));
        *end = cuStreamSynchronize(stream);
    }
    ends
}

/// Runs a test of two ranks in its own process.
fn with_two_ranks(body: impl FnOnce([u64; 2], World)) {
    alone(&[HARDWARE], || {
        let contexts = [1, 0].map(context);
        body([contexts[1], contexts[0]], World::of_one_process());
    });
}

/// Gives one rank wrong arguments and checks the report. The other rank does not run.
fn refused(change: impl Fn(&World, &mut MulticastArguments), what: &str) {
    refused_by("symmem_multicast_reduce_f32", change, what);
}

fn refused_by(name: &str, change: impl Fn(&World, &mut MulticastArguments), what: &str) {
    let world = World::of_one_process();
    let mut arguments = world.all_reduce(0);
    change(&world, &mut arguments);
    let (stream, (_, function)) = (stream(), kernel(name, size_of::<MulticastArguments>()));
    ok(cuFuncLoad(function));
    ok(launch(function, 1, 128, 0, stream, &arguments));
    assert_ne!(cuStreamSynchronize(stream), 0);
    violated(what);
}

/// Defines refusals. Each loses the context, so each runs in its own process.
macro_rules! refusals {
    ($($name:ident: $change:expr, $what:literal;)*) => {$(
        #[test]
        fn $name() {
            alone(&[HARDWARE], || {
                context(0);
                refused($change, $what);
            });
        }
    )*};
}

#[test]
fn a_reduction_loads_from_all_replicas_and_stores_to_all() {
    with_two_ranks(|contexts, world| {
        for (rank, base) in world.bases.into_iter().enumerate() {
            write(base + DATA, &floats((0..8).map(|i| (i + 10 * rank) as f32)));
        }
        let sums = floats((0..8).map(|i| (10 + 2 * i) as f32));
        for emulate in [false, true] {
            let all = [0, 1].map(|rank| match world.all_reduce(rank) {
                arguments if emulate => emulated(arguments),
                arguments => arguments,
            });
            assert_eq!(run("symmem_multicast_reduce_f32", contexts, all), [0, 0]);
            for base in world.bases {
                assert_eq!(read(base + RESULT, 32), sums, "emulated: {emulate}");
                write(base + RESULT, &[0; 32]);
            }
        }
        clean();
    });
}

#[test]
fn a_reduction_can_be_for_one_rank_alone() {
    with_two_ranks(|contexts, world| {
        for base in world.bases {
            write(base + DATA, &floats([1.5; 8]));
        }
        let all = [0, 1].map(|rank| MulticastArguments {
            destination: DeviceAddress::NULL,
            store: MulticastStore::OWN,
            reduce: ReduceOpCode::AVERAGE,
            ..world.all_reduce(rank)
        });
        assert_eq!(run("symmem_multicast_reduce_f32", contexts, all), [0, 0]);
        for (rank, base) in world.bases.into_iter().enumerate() {
            let mut expected = [0.0; 8];
            expected[4 * rank..4 * rank + 4].fill(1.5);
            assert_eq!(read(base + RESULT, 32), floats(expected));
        }
        clean();
    });
}

#[test]
fn bytes_go_to_all_replicas_and_a_barrier_moves_none() {
    with_two_ranks(|contexts, world| {
        for (rank, base) in (1..).zip(world.bases) {
            write(base + DATA, &[rank; 64]);
        }
        let moved = |rank: u32| {
            let mut arguments = world.all_reduce(rank);
            arguments.group.operation = CollectiveOperationCode::ALL_GATHER;
            arguments.element = ElementTypeCode::U8;
            arguments.load = MulticastLoad::OWN;
            arguments.source = DeviceAddress::NULL;
            arguments.count = 16;
            arguments
        };
        let met = |rank: u32| {
            let mut arguments = moved(rank);
            arguments.group.operation = CollectiveOperationCode::BARRIER;
            arguments.store = MulticastStore::OWN;
            arguments.destination = DeviceAddress::NULL;
            arguments.count = 0;
            arguments
        };
        let all = [0, 1].map(moved);
        assert_eq!(run("symmem_multicast_move", contexts, all), [0, 0]);
        for base in world.bases {
            assert_eq!(read(base + RESULT, 32), [[1; 16], [2; 16]].concat());
        }
        assert_eq!(
            run("symmem_multicast_move", contexts, [0, 1].map(met)),
            [0, 0]
        );
        clean();
    });
}

/// Sets up rank 1 in the peer process. It creates the object, which gets both devices in time. Its memory is bound and
/// holds `values`.
fn peer_of_two(values: impl IntoIterator<Item = f32>) -> World {
    context(1);
    let (object, own) = (object(2), memory(1, 1));
    ok(cuMulticastAddDevice(object, 1));
    let descriptors = [exported(object), exported(own)];
    let [object_number, own_number] = descriptors.each_ref().map(AsRawFd::as_raw_fd);
    say(&format!("{object_number} {own_number}"));
    let theirs = listen();
    let (process, number) = theirs.split_once(' ').expect("two numbers");
    let theirs = import(&descriptor_of(process, number)).expect("memory");
    ok(cuMulticastBindMem(object, UNIT, own, 0, UNIT, 0));
    let world = World::new(object, [theirs, own]);
    write(world.bases[1] + DATA, &floats(values));
    world
}

/// Sets up rank 0 with the peer's object.
fn first_of_two(peer: &mut Peer, values: impl IntoIterator<Item = f32>) -> World {
    context(0);
    let own = memory(0, 1);
    let process = peer.id().to_string();
    let said = peer.hear();
    let (object_number, number) = said.split_once(' ').expect("two numbers");
    let object = import(&descriptor_of(&process, object_number)).expect("an object");
    let theirs = import(&descriptor_of(&process, number)).expect("memory");
    ok(cuMulticastAddDevice(object, 0));
    ok(cuMulticastBindMem(object, UNIT, own, 0, UNIT, 0));
    let descriptor = exported(own);
    peer.tell(&format!(
        "{} {}",
        std::process::id(),
        descriptor.as_raw_fd()
    ));
    let world = World::new(object, [own, theirs]);
    write(world.bases[0] + DATA, &floats(values));
    assert_eq!(peer.hear(), "bound");
    world
}

/// Launches one kernel by this rank and waits for the end.
fn run_alone(rank: u32, world: &World) -> i32 {
    let name = "symmem_multicast_reduce_f32";
    let (stream, (_, function)) = (stream(), kernel(name, size_of::<MulticastArguments>()));
    ok(cuFuncLoad(function));
    ok(launch(function, 4, 128, 0, stream, &world.all_reduce(rank)));
    cuStreamSynchronize(stream)
}

#[test]
fn the_replicas_of_another_process_are_reached_and_what_it_does_not_bind_is_not() {
    alone(&[HARDWARE], || {
        let sums = floats((0..8).map(|i| 100.0 + 2.0 * i as f32));
        if is_peer() {
            let world = peer_of_two((0..8).map(|i| 100.0 + i as f32));
            say("bound");
            ok(run_alone(1, &world));
            assert_eq!(read(world.bases[1] + RESULT, 32), sums);
            clean();
            assert_eq!(listen(), "unbind");
            ok(cuMulticastUnbind(world.object, 1, UNIT, UNIT));
            return say_and_wait("unbound");
        }
        let mut peer = Peer::start(&[]);
        let world = first_of_two(&mut peer, (0..8).map(|i| i as f32));
        ok(run_alone(0, &world));
        assert_eq!(read(world.bases[0] + RESULT, 32), sums);
        clean();
        peer.tell("unbind");
        assert_eq!(peer.hear(), "unbound");
        assert_ne!(run_alone(0, &world), 0);
        violated("nothing of device 1 is bound at 2097152");
        peer.release();
    });
}

#[test]
fn what_a_killed_process_bound_is_there_while_its_memory_is() {
    alone(&[HARDWARE], || {
        if is_peer() {
            let _world = peer_of_two([1.0; 8]);
            return say_and_wait("bound");
        }
        let mut peer = Peer::start(&[]);
        let world = first_of_two(&mut peer, [2.0; 8]);
        peer.kill();
        // The other member is dead. The barrier has a deadline, and what is bound stays bound.
        let mut arguments = world.all_reduce(0);
        arguments.group.watch.deadline_ns = 50_000_000;
        let name = "symmem_multicast_reduce_f32";
        let (stream, (_, function)) = (stream(), kernel(name, size_of::<MulticastArguments>()));
        ok(cuFuncLoad(function));
        ok(launch(function, 4, 128, 0, stream, &arguments));
        ok(cuStreamSynchronize(stream));
        clean();
    });
}

#[test]
fn what_a_killed_process_bound_is_lost_with_its_memory() {
    alone(&[HARDWARE], || {
        if is_peer() {
            let _world = peer_of_two([1.0; 8]);
            return say_and_wait("bound");
        }
        let mut peer = Peer::start(&[]);
        let world = first_of_two(&mut peer, [2.0; 8]);
        let gone = format!("process {}, which bound it, is gone", peer.id());
        peer.kill();
        let mut theirs = 0;
        ok(cuMemRetainAllocationHandle(
            Some(&mut theirs),
            world.bases[1],
        ));
        ok(cuMemUnmap(world.bases[1], UNIT));
        ok(cuMemRelease(theirs));
        ok(cuMemRelease(theirs));
        let bases = [world.bases[0]; 2];
        assert_ne!(run_alone(0, &World { bases, ..world }), 0);
        violated(&gone);
    });
}

refusals! {
    an_address_that_is_no_multicast_address:
        |world, arguments| arguments.source = DeviceAddress(world.bases[0] + DATA),
        "is not a multicast address";
    bytes_behind_the_end_of_what_is_mapped:
        |world, arguments| arguments.source = DeviceAddress(world.both + 3 * UNIT as u64 - 8),
        "runs out of its memory after 8 bytes";
    bytes_that_nobody_bound:
        |world, arguments| arguments.source = DeviceAddress(world.both + UNIT as u64),
        "nothing of device 0 is bound at 4194304";
    bytes_of_which_only_the_first_are_bound:
        |world, arguments| arguments.source = DeviceAddress(world.both + UNIT as u64 - 8),
        "ends after 8 bytes";
    a_replica_that_was_unbound:
        |world, _| ok(cuMulticastUnbind(world.object, 1, UNIT, UNIT)),
        "nothing of device 1 is bound at 2097152";
    an_object_that_was_unmapped:
        |world, _| ok(cuMemUnmap(world.both - UNIT as u64, 4 * UNIT)),
        "is reserved and not mapped";
    an_access_that_was_taken_away:
        |world, _| {
            let access = Access { location: Location { kind: 1, id: 0 }, flags: 0 };
            // SAFETY: the array has one descriptor.
            ok(unsafe { cuMemSetAccess(world.both - UNIT as u64, 4 * UNIT, &access, 1) });
        },
        "no access has been set for device 0";
    sources_that_are_not_those_behind_the_address:
        |_, arguments| arguments.sources[1].0 += 16,
        "the members' sources are not the memory bound";
    destinations_that_are_not_those_behind_the_address:
        |_, arguments| arguments.destination.0 -= 16,
        "the members' destinations are not the memory bound";
    slots_that_are_not_those_behind_the_address:
        |_, arguments| arguments.slots.0 += 4096,
        "the members' slots are not the memory bound";
    a_group_of_fewer_members_than_devices:
        |_, arguments| arguments.group.world = 1,
        "the members' slots are not the memory bound";
    sources_without_a_multicast_address:
        |_, arguments| arguments.source = DeviceAddress::NULL,
        "the sources have no multicast address, but the slots have one";
    slots_without_a_multicast_address:
        |_, arguments| arguments.slots = DeviceAddress::NULL,
        "the sources have a multicast address, but the slots have none";
    a_multicast_address_for_one_member:
        |_, arguments| arguments.store = MulticastStore::OWN,
        "the destinations have a multicast address, but belong to this member alone";
    elements_of_another_type:
        |_, arguments| arguments.element = ElementTypeCode::I32,
        "is given elements of I32";
    a_reduction_that_no_switch_has:
        |_, arguments| arguments.reduce = ReduceOpCode::MAXIMUM,
        "no switch computes MAXIMUM of F32";
    a_reduction_of_one_member:
        |_, arguments| arguments.load = MulticastLoad::OWN,
        "loads must be reduced, not";
}

#[test]
fn a_move_that_is_no_barrier_goes_to_all() {
    alone(&[HARDWARE], || {
        context(0);
        let change = |_: &World, arguments: &mut MulticastArguments| {
            arguments.element = ElementTypeCode::U8;
            arguments.load = MulticastLoad::OWN;
            arguments.source = DeviceAddress::NULL;
            arguments.store = MulticastStore::OWN;
        };
        let what = "a barrier moves nothing; every other operation stores to all members";
        refused_by("symmem_multicast_move", change, what);
    });
}

#[test]
fn what_a_running_kernel_uses_is_neither_unbound_nor_unmapped() {
    alone(&[HARDWARE], || {
        context(0);
        let world = World::of_one_process();
        let name = "symmem_multicast_reduce_f32";
        let (stream, (_, function)) = (stream(), kernel(name, size_of::<MulticastArguments>()));
        ok(cuFuncLoad(function));
        // The other rank never arrives.
        ok(launch(function, 4, 128, 0, stream, &world.all_reduce(0)));
        // The kernel has begun once it has given its signal to the other rank.
        while read(world.bases[1], DATA as usize)
            .iter()
            .all(|byte| *byte == 0)
        {}
        ok(cuMulticastUnbind(world.object, 1, UNIT, UNIT));
        violated("unbound");
        for (call, what) in [
            (
                cuMulticastUnbind(world.object, 0, UNIT, UNIT),
                "unbound while work",
            ),
            (
                cuMemUnmap(world.both - UNIT as u64, 4 * UNIT),
                "unmapped while work",
            ),
        ] {
            ok(call);
            let text = symmem_fake_cuda::report::text();
            assert!(text.contains(what), "{text}");
        }
        // Either call may wait for the device, which waits for the other rank.
        let text = symmem_fake_cuda::report::text();
        assert_eq!(
            text.matches("which can wait for a peer").count(),
            2,
            "{text}"
        );
    });
}

#[test]
fn what_a_kernel_of_another_process_uses_is_not_unbound() {
    alone(&[HARDWARE], || {
        if is_peer() {
            let world = peer_of_two([1.0; 8]);
            say("bound");
            let name = "symmem_multicast_reduce_f32";
            let (stream, (_, function)) = (stream(), kernel(name, size_of::<MulticastArguments>()));
            ok(cuFuncLoad(function));
            // The other rank never arrives, until this one is killed.
            ok(launch(function, 4, 128, 0, stream, &world.all_reduce(1)));
            return say_and_wait("running");
        }
        let mut peer = Peer::start(&[]);
        let world = first_of_two(&mut peer, [2.0; 8]);
        assert_eq!(peer.hear(), "running");
        while read(world.bases[0], DATA as usize)
            .iter()
            .all(|byte| *byte == 0)
        {}
        let id = peer.id();
        ok(cuMulticastUnbind(world.object, 0, UNIT, UNIT));
        violated(&format!(
            "are unbound while a kernel of process {id} uses them"
        ));
        peer.kill();
        let part = memory(0, 1);
        ok(cuMulticastBindMem(world.object, UNIT, part, 0, UNIT, 0));
        ok(cuMulticastUnbind(world.object, 0, UNIT, UNIT));
        clean();
    });
}
