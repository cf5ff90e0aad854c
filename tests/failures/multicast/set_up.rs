//! Multicast is set up by all ranks or by none: each call of the setup fails, is slow, never returns, or is a rank's
//! last.

use super::*;

#[test]
fn a_call_that_fails_on_one_rank_has_all_go_without_for_the_same_reason() {
    if crate::built::amount::too_long() {
        return;
    }
    if !permitted() {
        return;
    }
    // For each step, one world also works after the failure. The other failures only check the status, because ranks
    // go without multicast in the same way wherever it failed.
    let working = [
        (0, "cuMulticastCreate"),
        (1, "cuMemImportFromShareableHandle"),
        (2, "cuMulticastAddDevice"),
        (0, "cuMulticastBindMem"),
        (1, "cuMemMap"),
    ];
    for_each(3, set_up(), |(rank, symbol, number)| {
        let fails = |role| {
            plan(role)
                .env("FAKE_DEVICE_FAIL", format!("{symbol}:{number}"))
                .env("FAKE_DEVICE_FAIL_RANK", rank)
        };
        let status = if working.contains(&(rank, symbol)) {
            let [before, after] = works(fails("multicast/use"));
            assert_eq!(before, after);
            before
        } else {
            opens(fails("multicast/open"))
        };
        assert!(
            status.starts_with(&format!("NONE: rank {rank}: ")) && status.contains(symbol),
            "{symbol}:{number} on rank {rank}: {status}"
        );
    });
}

/// The backend's own tests know the advice for each error number.
#[rstest]
#[case(1, "without a reset of the GPUs")]
#[case(2, "128 multicast objects")]
fn a_way_to_fail_says_what_to_do(#[case] code: u32, #[case] words: &str) {
    if !permitted() {
        return;
    }
    let fails =
        plan("multicast/open").env("FAKE_DEVICE_FAIL", format!("cuMulticastBindMem:1:{code}"));
    let status = opens(fails.env("FAKE_DEVICE_FAIL_RANK", 2));
    assert!(
        status.starts_with("NONE: rank 2: ") && status.contains(words),
        "{status}"
    );
}

#[test]
fn a_call_that_is_slow_but_in_time_is_waited_for() {
    if !permitted() {
        return;
    }
    let slow = (SHORT / 4).as_millis();
    let status = opens(
        plan("multicast/open")
            .env("FAKE_DEVICE_STALL", format!("cuMulticastBindMem:1:{slow}"))
            .env("FAKE_DEVICE_STALL_RANK", 2)
            .setup_deadline(SHORT),
    );
    assert_eq!(status, "HARDWARE: ");
}

#[test]
fn a_granularity_above_that_of_memory_is_what_all_is_a_multiple_of() {
    if !permitted() {
        return;
    }
    let coarse = plan("multicast/use").env("FAKE_CUDA_MULTICAST_MINIMUM", 8 << 20);
    assert_eq!(works(coarse), ["HARDWARE: ", "HARDWARE: "]);
}

/// Selects one call of each step: within a step, the setup cannot tell which call is stuck.
fn is_first_of_its_step(&(_, symbol, _): &Place) -> bool {
    [
        "cuMulticastCreate",
        "cuMemImportFromShareableHandle",
        "cuMulticastAddDevice",
        "cuMulticastBindMem",
        "cuMemMap",
    ]
    .contains(&symbol)
}

#[test]
fn a_call_that_never_returns_has_all_go_without_within_the_deadline() {
    if crate::built::amount::too_long() {
        return;
    }
    if !permitted() {
        return;
    }
    let stalls = |(rank, symbol, number): Place| {
        let start = Instant::now();
        let mut world = plan("multicast/open")
            .env("FAKE_DEVICE_STALL", format!("{symbol}:{number}:forever"))
            .env("FAKE_DEVICE_STALL_RANK", rank)
            .setup_deadline(SHORT)
            .start();
        let status = agreed(&mut world);
        let what = format!("{symbol}:{number} on rank {rank}: {status}");
        assert!(
            status.starts_with(&format!("NONE: rank {rank}: "))
                && status.contains("did not return"),
            "{what}"
        );
        assert_eq!(world.expect("finalized"), ["ok"; WORLD], "{what}");
        // An independent check of the time: three steps, and what the ranks do besides.
        assert!(start.elapsed() < 5 * SHORT, "{what}");
        let left = match symbol {
            "cuMulticastAddDevice" => Left::OBJECT,
            "cuMulticastBindMem" => Left::bound(1, 0),
            "cuMemAddressReserve" => Left::bound(1, 1),
            "cuMemMap" => Left {
                addresses: true,
                ..Left::bound(1, 1)
            },
            "cuMemSetAccess" => Left::mapped(1, 1),
            "cuMemExportToShareableHandle" => Left::OBJECT,
            // The object does not exist yet.
            _ => Left::DEVICE,
        };
        ends_with_what_is_stuck(&mut world, rank, left, &what);
    };
    let places = chosen(
        "stalls in multicast's setup",
        set_up(),
        is_first_of_its_step,
    );
    for_each(6, places, stalls);
}

#[test]
fn a_rank_that_dies_at_any_step_is_an_error_of_all_others_and_nothing_is_left() {
    if crate::built::amount::too_long() {
        return;
    }
    if !permitted() {
        return;
    }
    let all = set_up().into_iter();
    let deaths = all.flat_map(|place| [(place, ""), (place, ":after")]);
    // A death after one call equals a death before the next, unless the ranks agree in between.
    let chosen = chosen("deaths in multicast's setup", deaths.collect(), |death| {
        let ((_, symbol, number), after) = *death;
        match symbol {
            "cuMulticastGetGranularity" => number == 1 && after.is_empty(),
            "cuMemExportToShareableHandle" => true,
            "cuMulticastAddDevice" | "cuMulticastBindMem" | "cuMemSetAccess" => true,
            _ => after.is_empty(),
        }
    });
    for_each(3, chosen, |((rank, symbol, number), after)| {
        let mut world = plan("multicast/open")
            .env("FAKE_DEVICE_KILL", format!("{symbol}:{number}{after}"))
            .env("FAKE_DEVICE_KILL_RANK", rank)
            .setup_deadline(SHORT)
            .start();
        let what = format!("{symbol}:{number}{after} on rank {rank}");
        for survivor in world.ranks.iter_mut().filter(|other| other.number != rank) {
            let (_, error) = survivor.expect("opened");
            assert!(error.starts_with("PeerDied"), "{what}: {error}");
            survivor.ends_well();
        }
        assert!(
            !world.ranks[rank].wait().success(),
            "{what}: the rank survived"
        );
        let mut complaints = complaints(&world, rank);
        // A rank that has not heard of the death yet may import the object after the others have released it. The
        // import fails there, and the rank learns why.
        complaints.retain(|complaint| !complaint.contains("released it before this import"));
        assert_eq!(complaints, [""; 0], "{what}");
    });
}

#[test]
fn what_returns_after_all_went_without_is_undone_then() {
    if crate::built::amount::too_long() {
        return;
    }
    if !permitted() {
        return;
    }
    // Each call returns after the ranks have stopped waiting for it, and its effect is undone then. An object that the
    // rank learns of only then is released, and nothing is left; an object on which a call was stuck is left alone.
    let (create, import) = ("cuMulticastCreate", "cuMemImportFromShareableHandle");
    let (join, bind, map) = (
        "cuMulticastAddDevice",
        "cuMulticastBindMem",
        "cuMemSetAccess",
    );
    let (release, unbind, unmap) = ("cuMemRelease", "cuMulticastUnbind", "cuMemUnmap");
    let cases = [
        (0, create, "", release, Left::NOTHING),
        (0, create, ":after", release, Left::NOTHING),
        (1, import, ":after", release, Left::NOTHING),
        (1, join, "", release, Left::DEVICE),
        (1, bind, "", unbind, Left::bound(1, 0)),
        (1, map, "", unmap, Left::bound(1, 1)),
    ];
    for_each(
        cases.len(),
        cases.to_vec(),
        |(rank, symbol, after, undone, left)| {
            let mut all = set_up().into_iter();
            let found = all.find(|place| place.0 == rank && place.1 == symbol);
            let (_, _, number) = found.expect("the rank makes that call");
            let traces = traces();
            let late = 2 * SHORT;
            let start = Instant::now();
            let mut world = traced(plan("multicast/linger"), &traces)
                .env(
                    "FAKE_DEVICE_STALL",
                    format!("{symbol}:{number}:{}{after}", late.as_millis()),
                )
                .env("FAKE_DEVICE_STALL_RANK", rank)
                .setup_deadline(SHORT)
                .start();
            let status = agreed(&mut world);
            assert!(
                status.starts_with(&format!("NONE: rank {rank}: "))
                    && status.contains("did not return"),
                "{symbol}: {status}"
            );
            world.ready();
            // All ranks are still alive when the call returns, and nothing else happens meanwhile.
            let before = made(&traces[rank], undone);
            while made(&traces[rank], undone) == before {
                assert!(
                    start.elapsed() < 4 * late,
                    "{symbol}: {undone} is never called"
                );
                std::thread::sleep(Duration::from_millis(50));
            }
            assert!(start.elapsed() >= late, "{undone} was called too early");
            world.go();
            assert_eq!(world.expect("finalized"), ["ok"; WORLD]);
            ends_with_what_is_stuck(&mut world, rank, left, symbol);
            for trace in traces {
                calls(&trace);
            }
        },
    );
}

/// One rank's call never returns while another rank dies: nobody waits for the first rank's deadline.
#[rstest]
fn a_death_is_heard_of_within_a_second_by_a_rank_that_is_stuck_and_by_one_that_waits_for_it(
    #[values(0, 1)] stuck: usize,
) {
    if !permitted() {
        return;
    }
    let victim = 2;
    let mut world = plan("multicast/open")
        .env("FAKE_DEVICE_STALL", "cuMulticastBindMem:1:forever")
        .env("FAKE_DEVICE_STALL_RANK", stuck)
        .env("FAKE_DEVICE_KILL", "cuMulticastBindMem:1")
        .env("FAKE_DEVICE_KILL_RANK", victim)
        .start();
    assert!(!world.ranks[victim].wait().success());
    let death = Instant::now();
    for survivor in &mut world.ranks[..victim] {
        let (heard, error) = survivor.expect("opened");
        assert!(error.starts_with("PeerDied"), "{error}");
        let detection = heard.saturating_duration_since(death);
        assert!(
            detection < crate::support::detection(),
            "detected after {detection:?}: {error}"
        );
        survivor.ends_well();
    }
}
