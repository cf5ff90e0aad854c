//! Multicast after its setup: calls that return after the others have stopped waiting, ranks that die at work, and the
//! survivors.

use super::*;

/// Works until a rank dies, and continues with the survivors.
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

#[test]
fn a_buffer_that_cannot_be_bound_is_reached_by_its_members_own_addresses() {
    if !permitted() {
        return;
    }
    // The slots are bound first, then this buffer.
    let fails = plan("multicast/use")
        .env("FAKE_DEVICE_FAIL", "cuMulticastBindMem:2:401")
        .env("FAKE_DEVICE_FAIL_RANK", 1);
    let [before, after] = works(fails);
    assert_eq!(before, "HARDWARE: ");
    assert!(
        after.starts_with("HARDWARE: rank 1: ") && after.contains("fabric"),
        "{after}"
    );
}

/// Calls that are stuck after the setup: at a buffer's memory, and at memory that was bound before.
#[rstest]
#[case::binding_never_returns("", "cuMulticastBindMem:2:forever", "did not return", 1)]
#[case::unbinding_never_returns_after_another_rank_failed(
    "cuMulticastBindMem:2:401",
    "cuMulticastUnbind:1:forever",
    "fabric",
    2
)]
fn a_buffer_at_which_a_call_never_returns_is_reached_without_multicast_and_nothing_bound_is_freed(
    #[case] fails: &str,
    #[case] stalls: &str,
    #[case] reason: &str,
    #[case] bound: usize,
) {
    if crate::built::amount::too_long() {
        return;
    }
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
    // The slots of the collectives, and the buffer.
    ends_with_what_is_stuck(&mut world, 0, Left::mapped(2, bound), stalls);
}

/// Returns places of work after the setup: a buffer's memory is bound, collectives run, and the memory is unbound.
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
    let all = (0..WORLD).flat_map(at_work);
    let deaths = all.flat_map(|place| [(place, ""), (place, ":after")]);
    // The tests of rebuild below cover deaths before each of these calls, on any rank.
    let chosen = chosen("deaths at multicast's work", deaths.collect(), |death| {
        let ((rank, ..), after) = *death;
        rank != 1 && !after.is_empty()
    });
    for_each(3, chosen, |((rank, symbol, number), after)| {
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
        assert!(
            !world.ranks[rank].wait().success(),
            "{what}: the rank survived"
        );
        assert_eq!(complaints(&world, rank), [""; 0], "{what}");
    });
}

/// Some sites forbid multicast for one process only.
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

/// symmem's own switch is compared like all settings of ranks, because it must be the same on all of them.
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
    for_each(3, at_work(victim), |(_, symbol, number)| {
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
        assert!(
            !world.ranks[victim].wait().success(),
            "{what}: the rank survived"
        );
        assert_eq!(complaints(&world, victim), [""; 0], "{what}");
    });
}
