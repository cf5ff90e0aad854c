//! Multicast after its set-up: calls that return when nobody waits any more, ranks that die at work, what
//! survivors have.

use super::*;

/// Works until a rank dies, and goes on with those who are left.
pub fn rebuild(member: &Member, communicator: Communicator) {
    let used = use_it(member, &communicator);
    member.tell("used", &used);
    let rebuilt = communicator.rebuild();
    member.tell("rebuilt", &rebuilt);
    let Ok(communicator) = rebuilt else { return };
    tell_status(member, &communicator);
    member.tell("used", &use_it(member, &communicator));
    member.tell("finalized", &communicator.finalize());
}

/// Later than the set-up, too: of a buffer's memory, and of what is bound before it.
#[rstest]
#[case::binding_never_returns("", "cuMulticastBindMem:2:forever", "did not return")]
#[case::unbinding_never_returns_after_another_rank_failed(
    "cuMulticastBindMem:2:401",
    "cuMulticastUnbind:1:forever",
    "fabric"
)]
fn a_buffer_at_which_a_call_never_returns_is_reached_without_multicast_and_nothing_bound_is_freed(
    #[case] fails: &str,
    #[case] stalls: &str,
    #[case] reason: &str,
) {
    if !permitted() {
        return;
    }
    let mut world = plan("multicast/use")
        .env("FAKE_DEVICE_FAIL", fails)
        .env("FAKE_DEVICE_FAIL_RANK", 1)
        .env("FAKE_DEVICE_STALL", stalls)
        .env("FAKE_DEVICE_STALL_RANK", 0)
        .setup_deadline(SHORT)
        .start();
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    let after = agreed(&mut world);
    assert!(
        after.starts_with("HARDWARE: rank ") && after.contains(reason),
        "{after}"
    );
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    ends_with_what_is_stuck(&mut world, stalls);
}

/// Two buffers of so many bytes, both of which collectives take, wherever they are bound.
pub fn fill(member: &Member, communicator: &Communicator) -> Result<()> {
    let stream = communicator.stream()?;
    let bytes: usize = member.argument.parse().expect("bytes");
    let world = communicator.world() as u32;
    for _ in 0..2 {
        let buffers = [bytes / 4; 2].map(|count| communicator.allocate::<u32>(&[count]));
        let [first, second] = buffers;
        let (first, second) = (first?, second?);
        member.say(
            "views",
            format!("{:?}", [has_view(&first), has_view(&second)]),
        );
        for buffer in [&first, &second] {
            buffer.write(&stream, 0, &[7; COUNT])?;
            let range = buffer.range(0, COUNT)?;
            let by = CollectiveOptions {
                algorithm: Algorithm::MULTICAST,
                ..CollectiveOptions::default()
            };
            stream.all_reduce_with(range, range, ReduceOperation::SUM, &by)?;
            expect(&stream, buffer, |_| 7 * world, COUNT)?;
        }
        first.free()?;
        second.free()?;
    }
    Ok(())
}

/// A world that fills an object of so many bytes with buffers of so many.
fn sized(object: u64, buffer: u64) -> Plan {
    plan("multicast/room")
        .env("SYMMEM_MULTICAST_BYTES", object)
        .argument(buffer)
}

/// What the slots of collectives take of an object, and the size of which every object's is a multiple.
pub fn slots_and_unit() -> (u64, u64) {
    let mut world = sized(1, 4 * COUNT as u64).start();
    let reason = agreed(&mut world);
    let words = reason.split(|other: char| !other.is_ascii_digit());
    let numbers: Vec<u64> = words.filter_map(|number| number.parse().ok()).collect();
    let [slots, unit] = numbers[..] else {
        panic!("{reason}");
    };
    (slots, unit)
}

#[test]
fn an_object_with_room_for_one_buffer_serves_the_one_that_comes_first() {
    if !permitted() {
        return;
    }
    let (slots, unit) = slots_and_unit();
    // Besides the slots there is room for one unit at least, and for less than two.
    let mut world = sized(slots + unit, unit).start();
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    // And again, where the first one's place is free again.
    for _ in 0..2 {
        assert_eq!(world.expect("views"), ["[true, false]"; WORLD]);
    }
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    world.ends_well();
}

/// What the fake driver complains of, but for what nobody can know: that the creator has just died.
fn complaints(world: &World, dead: usize) -> Vec<String> {
    let orphan = |line: &str| dead == 0 && line.contains("the multicast object is gone");
    let report = world.report();
    let lines = report.lines().filter(|line| !line.starts_with("process "));
    lines
        .filter(|line| !orphan(line))
        .map(str::to_owned)
        .collect()
}

#[rstest]
#[case::joining("cuMulticastAddDevice", "cuMemRelease")]
#[case::binding("cuMulticastBindMem", "cuMulticastUnbind")]
#[case::mapping("cuMemSetAccess", "cuMemUnmap")]
fn what_returns_after_all_went_without_is_undone_then(#[case] symbol: &str, #[case] undone: &str) {
    if !permitted() {
        return;
    }
    let found = set_up()
        .into_iter()
        .find(|place| place.0 == 1 && place.1 == symbol);
    let (rank, _, number) = found.expect("rank 1 makes that call");
    let traces = traces();
    let late = 2 * SHORT;
    let start = Instant::now();
    let mut world = traced(plan("multicast/linger"), &traces)
        .env(
            "FAKE_DEVICE_STALL",
            format!("{symbol}:{number}:{}", late.as_millis()),
        )
        .env("FAKE_DEVICE_STALL_RANK", rank)
        .setup_deadline(SHORT)
        .start();
    let status = agreed(&mut world);
    assert!(
        status.starts_with("NONE: rank 1: ") && status.contains("did not return"),
        "{status}"
    );
    world.ready();
    // They are all still there when it returns; nothing but that happens meanwhile.
    let calls_of_one = || {
        let text = std::fs::read_to_string(&traces[rank]).unwrap_or_default();
        text.lines()
            .filter(|line| line.contains(&format!(" {undone} = ")))
            .count()
    };
    let before = calls_of_one();
    while calls_of_one() == before {
        assert!(start.elapsed() < 4 * late, "{undone} is never called");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(start.elapsed() >= late, "{undone} has another reason");
    world.go();
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    ends_with_what_is_stuck(&mut world, symbol);
    for trace in traces {
        calls(&trace);
    }
}

/// Places of work after the set-up: a buffer's memory is bound, collectives run, it is unbound.
fn at_work(rank: usize) -> Vec<Place> {
    let launch = "cuLaunchKernelEx";
    let launches = places(&clean_calls()[rank], launch).len();
    assert!(launches > 4, "collectives are launches");
    let unbind = "cuMulticastUnbind";
    [
        ("cuMulticastBindMem", 2),
        (launch, launches / 2),
        (unbind, 1),
    ]
    .map(|(symbol, number)| (rank, symbol, number))
    .to_vec()
}

#[test]
fn a_rank_that_dies_at_work_is_an_error_of_all_others_and_nothing_is_left() {
    if !permitted() {
        return;
    }
    let all = [0, 1].into_iter().flat_map(at_work);
    let deaths = all.flat_map(|place| [(place, ""), (place, ":after")]);
    for_each(deaths.collect(), |((rank, symbol, number), after)| {
        let mut world = plan("multicast/use")
            .env("FAKE_DEVICE_KILL", format!("{symbol}:{number}{after}"))
            .env("FAKE_DEVICE_KILL_RANK", rank)
            .start();
        let what = format!("{symbol}:{number}{after} on rank {rank}");
        for survivor in world.ranks.iter_mut().filter(|other| other.number != rank) {
            let (_, status) = survivor.expect("status");
            assert_eq!(status, "HARDWARE: ", "{what}");
            let (_, error) = survivor.expect("used");
            assert!(error.starts_with("PeerDied"), "{what}: {error}");
            survivor.ends_well();
        }
        assert!(!world.ranks[rank].wait().success(), "{what}: it lives");
        assert_eq!(complaints(&world, rank), [""; 0], "{what}");
    });
}

/// Some sites forbid it for one process and not for another.
#[rstest]
#[case::nccl("NCCL_NVLS_ENABLE", "0")]
#[case::nvshmem("NVSHMEM_DISABLE_NVLS", "1")]
fn what_one_rank_may_not_do_no_rank_does(#[case] name: &str, #[case] value: &str) {
    if !permitted() {
        return;
    }
    let traces = traces();
    let [before, after] = works(traced(plan("multicast/use"), &traces).env_of(1, name, value));
    assert_eq!(before, format!("NONE: rank 1: {name} forbids it"));
    assert_eq!(before, after);
    for (rank, trace) in traces.iter().enumerate() {
        let calls = calls(trace);
        assert!(!calls.is_empty());
        let of_multicast = calls.iter().find(|call| call.contains("Multicast"));
        assert_eq!(of_multicast, None, "rank {rank}");
    }
}

/// Our own is compared, like all that ranks are told: whoever asks means all of them.
#[rstest]
#[case("")]
#[case("0")]
#[case("emulate")]
fn our_own_switch_is_the_same_on_all_ranks_or_an_error_that_names_it(#[case] value: &str) {
    if !permitted() {
        return;
    }
    let unlike = plan("multicast/open").env_of(1, "SYMMEM_MULTICAST", value);
    let mut world = unlike.start();
    for opened in world.expect("opened") {
        assert!(
            opened.starts_with("Mismatch") && opened.contains("SYMMEM_MULTICAST=1"),
            "{opened}"
        );
    }
    world.ends_well();
}

#[rstest]
fn survivors_have_an_object_of_their_own(#[values(0, 1, 2)] victim: usize) {
    if !permitted() {
        return;
    }
    for_each(at_work(victim), |(_, symbol, number)| {
        let mut world = plan("multicast/rebuild")
            .env("FAKE_DEVICE_KILL", format!("{symbol}:{number}"))
            .env("FAKE_DEVICE_KILL_RANK", victim)
            .start();
        let what = format!("{symbol}:{number} on rank {victim}");
        for survivor in world.ranks.iter_mut().filter(|rank| rank.number != victim) {
            assert_eq!(survivor.expect("status").1, "HARDWARE: ", "{what}");
            let (_, error) = survivor.expect("used");
            assert!(error.starts_with("PeerDied"), "{what}: {error}");
            assert_eq!(survivor.expect("rebuilt").1, "ok", "{what}");
            assert_eq!(survivor.expect("status").1, "HARDWARE: ", "{what}");
            assert_eq!(survivor.expect("views").1, "[true, true]", "{what}");
            assert_eq!(survivor.expect("used").1, "ok", "{what}");
            assert_eq!(survivor.expect("finalized").1, "ok", "{what}");
            survivor.ends_well();
        }
        assert!(!world.ranks[victim].wait().success(), "{what}: it lives");
        assert_eq!(complaints(&world, victim), [""; 0], "{what}");
    });
}
