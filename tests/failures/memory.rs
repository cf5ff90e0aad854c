//! Memory: too little of it, invalid ranges, buffers that peers still use, and leaks after ten thousand rounds.

use crate::support::{Member, Plan, Setting, full, however_memory_is_shared, resources};
use rstest::rstest;
use rstest_reuse::apply;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::time::Duration;
use symmem::{CHANNELS, Communicator, Error, Stream, SymmetricBuffer};

pub fn role(role: &str, member: &Member) {
    match role {
        "exhausted" => exhausted(member),
        "ranges" => ranges(member),
        "dropped-in-use" => dropped_in_use(member),
        "rounds" => rounds(member),
        _ => panic!("no such role: {role}"),
    }
}

// ---- too little ----

fn exhausted(member: &Member) {
    let communicator = member.join();
    if member.rank == 1 && !member.setting.is_device() {
        // Limit the address space of this rank only.
        let now = std::fs::read_to_string("/proc/self/statm").expect("/proc");
        let pages: u64 = now
            .split(' ')
            .next()
            .and_then(|p| p.parse().ok())
            .expect("pages");
        let limit = pages * rustix::param::page_size() as u64 + (96 << 20);
        let maximum = getrlimit(Resource::As).maximum;
        setrlimit(
            Resource::As,
            Rlimit {
                current: Some(limit),
                maximum,
            },
        )
        .expect("a lower limit");
    }
    for _ in 0..3 {
        let refused = communicator.allocate::<u8>(&[128 << 20]);
        member.tell("refused", &refused);
    }
    let small = communicator.allocate::<u8>(&[1 << 20]);
    member.tell("small", &small);
    drop(small);
    member.tell("finalized", &communicator.finalize());
}

#[apply(however_memory_is_shared)]
fn a_rank_without_memory_fails_alone_and_smaller_requests_work(setting: Setting) {
    let plan = Plan::new("memory/exhausted", 3, setting);
    let mut world = plan
        .env_of(1, "FAKE_DEVICE_MEMORY_BYTES", 160 << 20)
        .start();
    for _ in 0..3 {
        let errors = world.expect("refused");
        assert!(
            errors[1].starts_with("OutOfMemory { rank: 1, bytes: 134217728"),
            "{}",
            errors[1]
        );
        for error in [&errors[0], &errors[2]] {
            assert!(
                error.starts_with("PeerFailed") && error.contains("peer: 1"),
                "{error}"
            );
            assert!(error.contains("134217728 bytes"), "{error}");
        }
    }
    assert_eq!(world.expect("small"), ["ok"; 3]);
    assert_eq!(world.expect("finalized"), ["ok"; 3]);
    world.ends_well();
}

// ---- ranges ----

fn ranges(member: &Member) {
    let communicator = member.join();
    let stream = communicator.stream().expect("a stream");
    let buffer = communicator.allocate::<u32>(&[100]).expect("memory");
    let peer = 1 - member.rank;
    for (offset, length) in [
        (0, 101),
        (100, 1),
        (101, 0),
        (usize::MAX, 2),
        (1, usize::MAX),
    ] {
        let end = offset.saturating_add(length);
        let error = buffer.slice(offset..end).map(drop).unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { length: 100, .. }),
            "{error:?}"
        );
    }
    assert!(buffer.slice(100..100).is_ok());
    let long = buffer.write(&stream, 90, &[0; 11]).unwrap_err();
    assert!(
        matches!(
            long,
            Error::OutOfRange {
                offset: 90,
                count: 11,
                ..
            }
        ),
        "{long:?}"
    );
    let long = buffer.read(&stream, 0, &mut [0; 101]).unwrap_err();
    assert!(matches!(long, Error::OutOfRange { .. }), "{long:?}");
    let range = |offset, length| {
        buffer
            .slice(offset..offset + length)
            .expect("in the buffer")
    };
    let invalid = |result: symmem::Result<()>, words: &str| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
    };
    invalid(stream.put(2, range(0, 1), range(1, 1)), "no rank 2");
    invalid(stream.get(usize::MAX, range(0, 1), range(1, 1)), "no rank");
    invalid(stream.put(peer, range(0, 2), range(1, 1)), "2 elements");
    invalid(
        stream.put(member.rank, range(0, 10), range(5, 10)),
        "overlap",
    );
    invalid(
        stream.put_signal(peer, range(0, 1), range(1, 1), CHANNELS),
        "channel",
    );
    invalid(stream.wait_signal(peer, CHANNELS), "channel");
    invalid(stream.wait_signal(2, 0), "no rank 2");
    invalid(
        stream.barrier_within(99, Duration::from_secs(1)),
        "channel 99",
    );
    // SAFETY: nothing is registered, because the misaligned address is refused before any access.
    let odd = unsafe { communicator.register::<u64>(symmem::DeviceAddress(4097), &[8]) };
    invalid(odd.map(drop), "aligned");
    // SAFETY: the address is valid memory of this process, which is refused because no peer can map it.
    let private = unsafe {
        let place = member as *const Member as u64 & !4095;
        communicator.register::<u8>(symmem::DeviceAddress(place), &[64])
    };
    member.tell("private", &private);
    // Refused calls must not have counted a signal.
    stream
        .put_signal(peer, range(0, 1), range(1, 1), 0)
        .expect("enqueued");
    stream.wait_signal(peer, 0).expect("enqueued");
    stream.synchronize().expect("one signal for one wait");
    member.tell("finalized", &communicator.finalize());
}

#[rstest]
fn ranges_peers_and_channels_that_are_not_there_are_refused(
    #[values(
        Setting::Host,
        Setting::HostWithHostSignals,
        Setting::Cuda,
        Setting::CudaWithHostSignals,
        Setting::Hip,
        Setting::HipWithHostSignals
    )]
    setting: Setting,
) {
    let mut world = Plan::new("memory/ranges", 2, setting).start();
    for error in world.expect("private") {
        assert!(error.starts_with("NotShareable"), "{error}");
    }
    assert_eq!(world.expect("finalized"), ["ok"; 2]);
    world.ends_well();
}

// ---- still in use ----

fn dropped_in_use(member: &Member) {
    let communicator = member.join();
    let mut stream = communicator.stream().expect("a stream");
    // The first pass also creates what stays: threads, their stacks and heaps.
    read_what_was_dropped(member, &communicator, &mut stream);
    let before = state(member, &communicator, &stream);
    for _ in 0..3 {
        read_what_was_dropped(member, &communicator, &mut stream);
        let after = state(member, &communicator, &stream);
        assert_eq!(
            (before.0, before.1.0),
            (after.0, after.1.0),
            "free bytes, descriptors"
        );
        assert!(
            after.1.1 <= before.1.1,
            "mappings: {before:?}, then {after:?}"
        );
    }
    member.tell("finalized", &communicator.finalize());
}

/// Rank 0 drops a buffer that rank 1 continues to read, also by a graph.
fn read_what_was_dropped(member: &Member, communicator: &Communicator, stream: &mut Stream) {
    const ELEMENTS: usize = 1 << 18;
    let meet = || communicator.host_barrier().expect("all here");
    let source: SymmetricBuffer<u32> = communicator.allocate(&[ELEMENTS]).expect("memory");
    let target: SymmetricBuffer<u32> = communicator.allocate(&[ELEMENTS]).expect("memory");
    let data: Vec<u32> = (0..ELEMENTS as u32).map(|i| i * 3 + 1).collect();
    source.write(stream, 0, &data).expect("written");
    meet();
    if member.rank == 0 {
        drop(source);
        meet();
        // Rank 1 reads the buffer now.
        meet();
    } else {
        meet();
        let graph = stream
            .capture(|queue| queue.get(0, &target, &source))
            .expect("captured");
        // The graph keeps the buffer that it uses.
        drop(source);
        let mut read = vec![0; ELEMENTS];
        for _ in 0..5 {
            target
                .write(stream, 0, &vec![0; ELEMENTS])
                .expect("cleared");
            stream.launch_graph(&graph).expect("launched");
            target.read(stream, 0, &mut read).expect("read");
            assert!(read == data, "the dropped buffer has changed");
        }
        drop(graph);
        meet();
    }
}

/// Returns the device's free bytes and this process's resources, once all ranks have released what they can.
fn state(member: &Member, communicator: &Communicator, stream: &Stream) -> (u64, (usize, usize)) {
    // One round to see whether peers have released the memory; then no rank continues before all have seen it.
    for _ in 0..2 {
        communicator.host_barrier().expect("all here");
        stream.synchronize().expect("idle");
    }
    communicator.host_barrier().expect("all here");
    let information = communicator.memory_information().expect("known");
    // On the host, other programs allocate and free memory all the time.
    let free = if member.setting.is_device() {
        information.free
    } else {
        0
    };
    communicator.host_barrier().expect("all here");
    (free, resources())
}

#[apply(however_memory_is_shared)]
fn a_buffer_that_a_peer_still_reads_stays_until_it_has_dropped_it_too(setting: Setting) {
    let mut world = Plan::new("memory/dropped-in-use", 2, setting).start();
    assert_eq!(world.expect("finalized"), ["ok"; 2]);
    world.ends_well();
}

// ---- rounds ----

fn rounds(member: &Member) {
    let rounds: usize = member.argument.parse().expect("a number");
    let communicator = member.join();
    let stream = communicator.stream().expect("a stream");
    let round = |number: usize| {
        let buffer = communicator
            .allocate::<u8>(&[1 + number % 9000])
            .expect("memory");
        match number % 2 {
            0 => buffer.free().expect("freed"),
            _ => drop(buffer),
        }
    };
    (0..20).for_each(round);
    let before = state(member, &communicator, &stream);
    (0..rounds).for_each(round);
    let after = state(member, &communicator, &stream);
    member.say("state", format!("{before:?} {after:?}"));
    assert_eq!(before, after, "free bytes, descriptors and mappings");
    member.tell("finalized", &communicator.finalize());
}

#[rstest]
fn thousands_of_rounds_leave_everything_as_it_was(
    #[values((Setting::Host, 10_000), (Setting::Cuda, 1_000), (Setting::CudaLegacy, 1_000), (Setting::Hip, 1_000))]
    case: (Setting, usize),
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let (setting, sample) = case;
    let rounds = if full() { 10_000 } else { sample };
    let mut world = Plan::new("memory/rounds", 2, setting)
        .argument(rounds)
        .start();
    for rank in &mut world.ranks {
        let (_, state) = rank.expect_within("state", Duration::from_secs(600));
        println!("{setting:?}: after {rounds} rounds: {state}");
    }
    assert_eq!(world.expect("finalized"), ["ok"; 2]);
    world.ends_well();
}
