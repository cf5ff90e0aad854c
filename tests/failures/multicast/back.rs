//! Multicast's teardown: every rank releases what it bound, mapped and held, in order, whatever fails, stalls or dies.

use super::places::{first_from, until, way_back};
use super::*;

#[test]
fn what_fails_while_it_is_given_back_is_given_back_all_the_same() {
    if !permitted() {
        return;
    }
    for_each(3, way_back(1).to_vec(), |(rank, symbol, number)| {
        let fails = plan("multicast/use")
            .env("FAKE_DEVICE_FAIL", format!("{symbol}:{number}"))
            .env("FAKE_DEVICE_FAIL_RANK", rank);
        let status = works(fails);
        assert_eq!(status, ["HARDWARE: ", "HARDWARE: "], "{symbol}:{number}");
    });
}

/// Makes calls of rank 1 that release something fail without effect, at each of these places of the teardown.
fn not_given_back(at: &[usize]) {
    let places = at.iter().map(|&at| way_back(1)[at]).collect();
    for_each(3, places, |(rank, symbol, number)| {
        let mut world = plan("multicast/use")
            .env("FAKE_DEVICE_FAIL", format!("{symbol}:{number}:999:undone"))
            .env("FAKE_DEVICE_FAIL_RANK", rank)
            .start();
        let what = format!("{symbol}:{number}");
        assert_eq!(world.expect("used"), ["ok"; WORLD], "{what}");
        assert_eq!(world.expect("finalized"), ["ok"; WORLD], "{what}");
        world.ranks.iter_mut().for_each(Rank::ends_well);
        for other in &world.ranks {
            let report = world.report_of(other);
            if other.number != rank {
                assert_eq!(report, [""; 0], "{what}");
                continue;
            }
            let broken = report.iter().find(|line| line.starts_with("violation: "));
            assert_eq!(broken, None, "{what}");
            let left = report.iter().any(|line| line.starts_with("live: "));
            assert!(left, "{what} took effect");
        }
    });
}

/// What is not released stays with the driver until the process ends. Of failures at earlier steps, nobody can tell
/// whether the call took effect, because a driver may return the error of earlier work. Such a call counts as done, and
/// the next step is tried.
#[test]
fn what_is_not_given_back_keeps_nothing_else() {
    if permitted() {
        not_given_back(&[3, 5]);
    }
}

/// Holds a buffer that the ranks drop one after the other on request, rank 0 first and rank 1 last.
pub fn hold(member: &Member, communicator: &Communicator) -> Result<()> {
    let stream = communicator.stream()?;
    let buffer = communicator.allocate::<u32>(&[COUNT])?;
    // Unused memory is released when a stream is synchronized.
    let look_often = || {
        let look = |_| {
            std::thread::sleep(Duration::from_millis(2));
            stream.synchronize()
        };
        (0..50).try_for_each(look)
    };
    member.ready();
    drop(buffer);
    look_often()?;
    member.ready();
    look_often()?;
    member.ready();
    Ok(())
}

#[test]
fn nothing_is_unbound_before_every_rank_has_given_it_up() {
    if !permitted() {
        return;
    }
    let traces = traces();
    let mut world = traced(plan("multicast/hold"), &traces).start();
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    world.ready();
    let unbound = || [0, 1, 2].map(|rank: usize| made(&traces[rank], "cuMulticastUnbind"));
    assert_eq!(unbound(), [0; WORLD]);
    for rank in [0, 2] {
        world.ranks[rank].go();
        world.ranks[rank].expect("ready");
        assert_eq!(
            unbound(),
            [0; WORLD],
            "rank 1 holds the buffer, rank {rank} released it"
        );
    }
    world.ranks[1].go();
    world.ranks[1].expect("ready");
    for rank in [0, 2] {
        world.ranks[rank].go();
        world.ranks[rank].expect("ready");
    }
    assert_eq!(unbound(), [1; WORLD], "no rank holds the buffer");
    world.ranks[1].go();
    world.ranks[1].expect("ready");
    world.go();
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    world.ends_well();
    for trace in traces {
        calls(&trace);
    }
}

/// Selects each place of the teardown on another rank.
fn in_turn(place: &Place) -> bool {
    let number = way_back(place.0).iter().position(|other| other == place);
    number.is_some_and(|number| number % WORLD == place.0)
}

fn each_rank() -> Vec<Place> {
    (0..WORLD).flat_map(way_back).collect()
}

#[test]
fn a_rank_that_dies_on_the_way_back_keeps_nobody_and_nothing_is_left() {
    if crate::built::amount::too_long() {
        return;
    }
    if !permitted() {
        return;
    }
    let chosen = chosen("deaths in multicast's teardown", each_rank(), in_turn);
    for_each(3, chosen, |(rank, symbol, number)| {
        let mut world = plan("multicast/use")
            .env("FAKE_DEVICE_KILL", format!("{symbol}:{number}"))
            .env("FAKE_DEVICE_KILL_RANK", rank)
            .start();
        let what = format!("{symbol}:{number} on rank {rank}");
        for survivor in world.ranks.iter_mut().filter(|other| other.number != rank) {
            assert_eq!(survivor.expect("used").1, "ok", "{what}");
            // The dying rank's last step with the others may be over when it dies.
            let (_, finalized) = survivor.expect("finalized");
            let told = finalized == "ok" || finalized.starts_with("PeerDied");
            assert!(told, "{what}: {finalized}");
            survivor.ends_well();
        }
        assert!(
            !world.ranks[rank].wait().success(),
            "{what}: the rank survived"
        );
        assert_eq!(complaints(&world, rank), [""; 0], "{what}");
    });
}

/// Within a step, core cannot tell which call is stuck: the object is unmapped and its addresses are freed.
#[test]
fn what_never_returns_on_the_way_back_keeps_nobody() {
    if crate::built::amount::too_long() {
        return;
    }
    if !permitted() {
        return;
    }
    let stalls = chosen("stalls in multicast's teardown", each_rank(), |place| {
        in_turn(place) && place.1 != "cuMemAddressFree"
    });
    for_each(5, stalls, |(rank, symbol, number)| {
        let start = Instant::now();
        let mut world = plan("multicast/use")
            .env("FAKE_DEVICE_STALL", format!("{symbol}:{number}:forever"))
            .env("FAKE_DEVICE_STALL_RANK", rank)
            .setup_deadline(SHORT)
            .start();
        let what = format!("{symbol}:{number} on rank {rank}");
        assert_eq!(world.expect("used"), ["ok"; WORLD], "{what}");
        assert_eq!(world.expect("finalized"), ["ok"; WORLD], "{what}");
        let place = way_back(rank)
            .iter()
            .position(|place| *place == (rank, symbol, number));
        // What is left is everything that was not released before the stuck call.
        let left = match place.expect("it is one of them") {
            0 => Left::mapped(3, 3),
            1 => Left::mapped(2, 2),
            2 => Left::mapped(1, 1),
            3 => Left {
                addresses: true,
                ..Left::bound(1, 1)
            },
            4 => Left::bound(1, 1),
            _ => Left::OBJECT,
        };
        ends_with_what_is_stuck(&mut world, rank, left, &what);
        assert!(start.elapsed() < 5 * SHORT, "{what}");
    });
}

/// Returns calls that fail on rank 1, so that all ranks undo their work: binding the slots, or mapping the object.
fn failures() -> [Place; 2] {
    let found = |symbol| {
        let mut all = set_up().into_iter();
        let found = all.find(|place| (place.0, place.1) == (1, symbol));
        found.expect("rank 1 makes that call")
    };
    ["cuMulticastBindMem", "cuMemMap"].map(found)
}

/// Returns the plan of a world that works without multicast because rank 1 fails.
fn without((rank, symbol, number): Place) -> Plan {
    plan("multicast/open")
        .env("FAKE_DEVICE_FAIL", format!("{symbol}:{number}"))
        .env("FAKE_DEVICE_FAIL_RANK", rank)
}

#[test]
fn what_never_returns_while_all_go_without_keeps_nobody() {
    if crate::built::amount::too_long() {
        return;
    }
    if !permitted() {
        return;
    }
    for_each(2, failures().to_vec(), |failure| {
        let mut world = without(failure)
            .setup_deadline(SHORT)
            .env("FAKE_DEVICE_STALL", "cuMulticastUnbind:1:forever")
            .env("FAKE_DEVICE_STALL_RANK", 0)
            .start();
        let status = agreed(&mut world);
        assert!(status.starts_with("NONE: rank 1: "), "{status}");
        assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
        ends_with_what_is_stuck(&mut world, 0, Left::bound(1, 1), failure.1);
    });
}

#[test]
fn a_rank_that_dies_while_all_go_without_is_an_error_of_all_others_and_nothing_is_left() {
    if !permitted() {
        return;
    }
    let [_, mapping] = failures();
    let traces = traces();
    let status = opens(traced(without(mapping), &traces));
    assert!(status.starts_with("NONE: rank 1: "), "{status}");
    let [_, _, calls] = traces.map(|trace| calls(&trace));
    let bound = places(&calls, "cuMulticastBindMem")[0];
    let steps = [
        "cuMemUnmap",
        "cuMemAddressFree",
        "cuMulticastUnbind",
        "cuMemRelease",
    ];
    let mut from = bound;
    let deaths = steps.map(|symbol| {
        let number;
        (from, number) = first_from(&calls, symbol, from);
        (symbol, number)
    });
    assert_eq!(until(&calls, "cuMulticastUnbind", bound), 0);
    for_each(3, deaths.to_vec(), |(symbol, number)| {
        let mut world = without(mapping)
            .env("FAKE_DEVICE_KILL", format!("{symbol}:{number}"))
            .env("FAKE_DEVICE_KILL_RANK", 2)
            .start();
        let what = format!("{symbol}:{number}");
        for survivor in &mut world.ranks[..2] {
            // Undoing is the setup's last step, so a survivor may open before the death and see it at the end.
            let (_, mut told) = survivor.expect("opened");
            if told == "ok" {
                (_, told) = survivor.expect("finalized");
            }
            assert!(told.starts_with("PeerDied"), "{what}: {told}");
            survivor.ends_well();
        }
        assert!(
            !world.ranks[2].wait().success(),
            "{what}: the rank survived"
        );
        assert_eq!(complaints(&world, 2), [""; 0], "{what}");
    });
}

/// Forbids multicast once two buffers are bound, as a program may before it starts another library. Then frees one
/// buffer and drops the other.
pub fn forbid(communicator: &Communicator) -> Result<()> {
    let [first, second] = [(); 2].map(|()| communicator.allocate::<u32>(&[COUNT]));
    let (first, second) = (first?, second?);
    assert!(has_view(&first) && has_view(&second));
    // SAFETY: all other readers of the environment in this process use std, which locks it.
    unsafe { std::env::set_var("NCCL_NVLS_ENABLE", "0") };
    first.free()?;
    drop(second);
    // A new buffer does not use multicast: no multicast function may be called any more.
    let third = communicator.allocate::<u32>(&[COUNT])?;
    assert!(!has_view(&third));
    third.free()
}

#[test]
fn what_is_bound_is_given_back_though_the_environment_forbids_multicast_by_now() {
    if !permitted() {
        return;
    }
    let mut world = plan("multicast/forbid").start();
    assert_eq!(agreed(&mut world), "HARDWARE: ");
    assert_eq!(world.expect("used"), ["ok"; WORLD]);
    assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
    world.ends_well();
}
