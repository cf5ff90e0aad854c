//! Tests of ranks that fail, leave and die.

use super::*;

#[test]
fn a_failure_that_a_rank_reports_reaches_all_at_once() {
    on_ranks(3, |rank| {
        let start = Instant::now();
        if rank.rank() == 2 {
            std::thread::sleep(SHORT);
            rank.store().fail("out of memory on device 2").unwrap();
        }
        let error = rank.store().barrier("allocate", LONG).unwrap_err();
        let named = matches!(&error, BootstrapError::PeerFailed { peer: 2, reason }
            if reason == "out of memory on device 2");
        assert!(named, "{error}");
        assert!(start.elapsed() < SHORT + AT_ONCE);
        let later = rank.store().get("key", LONG).unwrap_err();
        assert!(
            matches!(later, BootstrapError::PeerFailed { .. }),
            "{later}"
        );
    });
}

#[test]
fn a_watching_thread_can_report_while_its_rank_waits() {
    on_ranks(2, |rank| {
        std::thread::scope(|scope| {
            if rank.rank() == 1 {
                scope.spawn(|| {
                    std::thread::sleep(SHORT);
                    rank.store().check().unwrap();
                    rank.store().fail("the device is gone").unwrap();
                });
                let error = rank.store().barrier("wait", LONG).unwrap_err();
                assert!(
                    matches!(error, BootstrapError::PeerFailed { peer: 1, .. }),
                    "{error}"
                );
            } else {
                let start = Instant::now();
                let error = loop {
                    if let Err(error) = rank.store().check() {
                        break error;
                    }
                    assert!(start.elapsed() < LONG);
                    std::thread::sleep(Duration::from_millis(5));
                };
                assert!(
                    matches!(error, BootstrapError::PeerFailed { peer: 1, .. }),
                    "{error}"
                );
            }
        });
    });
}

#[test]
fn a_rank_that_leaves_is_not_called_dead() {
    for leaver in [0, 1] {
        let mut ranks = Bootstrap::threads(3, LONG).unwrap();
        drop(ranks.remove(leaver));
        for rank in &ranks {
            let error = rank.store().barrier("gone", LONG).unwrap_err();
            let named =
                matches!(error, BootstrapError::PeerLeft { peer, .. } if peer == leaver as u32);
            assert!(named, "{error}");
        }
    }
}

#[test]
fn a_thread_that_panics_is_a_rank_that_died() {
    for victim in [0, 2] {
        let mut ranks = Bootstrap::threads(3, LONG).unwrap();
        let dying = ranks.remove(victim);
        let panicked = std::thread::spawn(move || {
            let _held = dying;
            std::panic::resume_unwind(Box::new("planted"));
        });
        assert!(panicked.join().is_err());
        let start = Instant::now();
        for rank in &ranks {
            let error = rank.store().barrier("gone", LONG).unwrap_err();
            let named =
                matches!(error, BootstrapError::PeerDied { peer, .. } if peer == victim as u32);
            assert!(named, "{error}");
        }
        assert!(start.elapsed() < AT_ONCE);
    }
}

#[test]
fn a_rank_killed_in_a_collective_is_named_within_a_second() {
    const NAME: &str = "failures::a_rank_killed_in_a_collective_is_named_within_a_second";
    if let Some(role) = role() {
        let (rank, job) = role.split_once(' ').unwrap();
        let _rank = Bootstrap::connect(place(rank.parse().unwrap(), 3, job), LONG).unwrap();
        await_death();
    }
    for victim in [0, 2] {
        let job = job();
        let mut child = child(NAME, &format!("{victim} {job}"));
        let survivors = (0..3)
            .filter(|rank| *rank != victim)
            .map(|rank| place(rank, 3, &job));
        let survivors: Vec<Bootstrap> = connect_all(survivors.collect(), LONG)
            .into_iter()
            .map(Result::unwrap)
            .collect();
        await_ready(&mut child);
        assert_eq!(
            survivors[0].peers()[victim as usize].process.pid,
            child.id()
        );
        std::thread::scope(|scope| {
            let waits: Vec<_> = survivors
                .iter()
                .map(|rank| scope.spawn(|| rank.store().barrier("all", LONG)))
                .collect();
            std::thread::sleep(SHORT);
            let start = Instant::now();
            child.kill().unwrap();
            for wait in waits {
                let error = wait.join().unwrap().unwrap_err();
                let named =
                    matches!(error, BootstrapError::PeerDied { peer, .. } if peer == victim);
                assert!(named, "{error}");
            }
            assert!(start.elapsed() < AT_ONCE);
        });
        assert!(!survivors[0].peers()[victim as usize].process.is_alive());
        child.wait().unwrap();
    }
}

#[test]
fn a_rank_killed_in_the_rendezvous_is_named_within_a_second() {
    const NAME: &str = "failures::a_rank_killed_in_the_rendezvous_is_named_within_a_second";
    if let Some(job) = role() {
        let environment = place(1, 3, &job);
        let meeting = Meeting::of(&environment, LONG, None).unwrap();
        let stream = meeting.reach(&meeting.address).unwrap();
        let (world, generation) = (3, 0);
        let peer = meeting.peer.clone();
        let join = Request::Join {
            version: VERSION,
            world,
            generation,
            peer,
            deadline: 60_000_000,
        };
        stream.send_all(&join.encode(1, 0), meeting.until).unwrap();
        await_death();
    }
    let job = job();
    let mut child = child(NAME, &job);
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 3, &job), LONG));
        await_ready(&mut child);
        let start = Instant::now();
        child.kill().unwrap();
        let error = rank_0.join().unwrap().unwrap_err();
        assert!(
            matches!(error, BootstrapError::PeerDied { peer: 1, .. }),
            "{error}"
        );
        // Rank 0 waits up to a second for rank 2, to tell it as well.
        assert!(start.elapsed() < coordinator::FAREWELL + AT_ONCE);
    });
    child.wait().unwrap();
}

#[test]
fn a_rendezvous_is_called_off_as_soon_as_it_is_not_wanted_any_more() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let job = job();
    // Rank 0 waits for rank 1 to come; rank 2 has come; a rank of another job waits for its rank 0.
    let places = [place(0, 3, &job), place(2, 3, &job), place(1, 2, "another")];
    let wanted = AtomicBool::new(true);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let wanted = &wanted;
        let ranks = places.map(|environment| {
            let asked = move || wanted.load(Ordering::Relaxed);
            scope.spawn(move || Bootstrap::connect_while(environment, LONG, &asked))
        });
        std::thread::sleep(SHORT);
        assert!(ranks.iter().all(|rank| !rank.is_finished()), "still wanted");
        wanted.store(false, Ordering::Relaxed);
        for rank in ranks {
            let error = rank.join().unwrap().unwrap_err();
            // A rank that first learns that another has called it off reports that as its reason.
            let expected = matches!(
                error,
                BootstrapError::CalledOff { .. } | BootstrapError::PeerLeft { .. }
            );
            assert!(expected, "{error}");
        }
    });
    assert!(start.elapsed() < AT_ONCE);
}

#[test]
fn a_failure_is_told_within_a_second_or_not_at_all_while_rank_0_reads_nothing() {
    let (_unread, stream) = Stream::pair().unwrap();
    let store = Store::new(1, 2, stream, None);
    let stuck_for = Duration::from_secs(5);
    std::thread::scope(|scope| {
        // More than the socket holds: it waits in the middle of a message.
        let stuck = scope.spawn(|| store.set("much", &vec![0; 900 << 10], stuck_for));
        std::thread::sleep(SHORT);
        let start = Instant::now();
        store.fail("told to nobody").unwrap_err();
        assert!(start.elapsed() < stuck_for, "{:?}", start.elapsed());
        assert!(!stuck.is_finished(), "or else nothing was tested");
        stuck.join().unwrap().unwrap_err();
    });
}
