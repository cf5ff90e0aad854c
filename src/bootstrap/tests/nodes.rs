//! Ranks of several nodes of which one dies, or is cut off, at each step of their meeting: every survivor names it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::tcp::{tcp_address, tcp_place};
use super::*;

/// The node of each rank.
const NODES: [&str; 4] = ["a", "a", "b", "b"];
const WORLD: u32 = NODES.len() as u32;

/// Where a job meets.
struct Place {
    address: String,
    secret: Secret,
}

impl Place {
    fn new() -> Self {
        Self {
            address: tcp_address(),
            secret: Secret::random().unwrap(),
        }
    }

    fn of(&self, rank: u32) -> LaunchEnvironment {
        let mut environment = tcp_place(rank, WORLD, &self.address, &self.secret);
        environment.node = Some(NODES[rank as usize].into());
        environment
    }

    /// Starts a rank as a process, which ends with the step of the meeting that it is told.
    fn start(&self, test: &str, rank: u32, step: &str) -> Child {
        let role = format!("{step} {rank} {} {}", self.address, self.secret.to_hex());
        child(&format!("nodes::{test}"), &role)
    }
}

/// Goes as far as a test has told this process, which is then killed.
fn die_if_asked() {
    let Some(role) = role() else {
        return;
    };
    let [step, rank, address, secret] = role.split(' ').collect::<Vec<_>>().try_into().unwrap();
    let place = Place {
        address: address.into(),
        secret: Secret::from_hex(secret).unwrap(),
    };
    let environment = place.of(rank.parse().unwrap());
    let meeting = || Meeting::of(&environment, LONG, None).unwrap();
    match step {
        "connected" => {
            let _stream = connect(&place.address);
            await_death()
        }
        "greeted" => {
            let meeting = meeting();
            let _stream = meeting.reach(&meeting.address).unwrap();
            await_death()
        }
        "proved" => {
            let meeting = meeting();
            let _stream = prove(&meeting);
            await_death()
        }
        "joined" => {
            let meeting = meeting();
            let stream = meeting.reach(&meeting.address).unwrap();
            stream
                .send_all(&join_of(&meeting).encode(1, 0), meeting.until)
                .unwrap();
            await_death()
        }
        "met" => {
            let _rank = Bootstrap::connect(environment, LONG).unwrap();
            await_death()
        }
        other => panic!("no such step: {other}"),
    }
}

fn connect(address: &str) -> TcpStream {
    let start = Instant::now();
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < LONG, "{error}"),
        }
    }
}

fn join_of(meeting: &Meeting<'_>) -> Request {
    Request::Join {
        version: VERSION,
        world: WORLD,
        generation: 0,
        peer: meeting.peer.clone(),
        deadline: 60_000_000,
    }
}

/// Returns a connection that has proved to be a rank's and has told a part of its first message, not yet which rank.
fn prove(meeting: &Meeting<'_>) -> Stream {
    let stream = meeting.reach(&meeting.address).unwrap();
    let join = join_of(meeting).encode(1, 0);
    stream.send_all(&join[..20], meeting.until).unwrap();
    stream
}

/// Has a rank killed after a step of the meeting while the others wait for `limit` at most. Returns their errors, and the
/// time from the kill to the last.
fn errors_after(
    test: &str,
    victim: u32,
    step: &str,
    limit: Duration,
) -> (Vec<BootstrapError>, Duration) {
    let place = Place::new();
    let survivors = || (0..WORLD).filter(|&rank| rank != victim);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = survivors()
            .map(|rank| {
                let environment = place.of(rank);
                scope.spawn(move || {
                    let rank = Bootstrap::connect(environment, limit)?;
                    rank.gather("a step of the set-up", &[], None, limit)
                        .map(drop)
                })
            })
            .collect();
        let mut child = place.start(test, victim, step);
        await_ready(&mut child);
        std::thread::sleep(SHORT);
        let start = Instant::now();
        child.kill().unwrap();
        child.wait().unwrap();
        let errors = ranks.into_iter().map(|rank| rank.join().unwrap());
        let errors = errors.map(Result::unwrap_err).collect();
        (errors, start.elapsed())
    })
}

#[test]
fn a_rank_that_dies_before_it_has_shown_anything_is_named_at_the_deadline() {
    die_if_asked();
    let test = "a_rank_that_dies_before_it_has_shown_anything_is_named_at_the_deadline";
    for step in ["connected", "greeted"] {
        let limit = Duration::from_secs(2);
        let (errors, took) = errors_after(test, 2, step, limit);
        for error in errors {
            let named =
                matches!(&error, BootstrapError::Timeout { missing, .. } if *missing == [2]);
            assert!(named, "{step}: {error}");
            assert_eq!(error.peer(), Some(2));
        }
        assert!(took < limit + AT_ONCE, "{step}: {took:?}");
    }
}

#[test]
fn a_rank_that_dies_before_it_has_told_its_number_is_one_of_those_that_are_named_at_once() {
    die_if_asked();
    let test =
        "a_rank_that_dies_before_it_has_told_its_number_is_one_of_those_that_are_named_at_once";
    let (errors, took) = errors_after(test, 2, "proved", LONG);
    for error in errors {
        let named =
            matches!(&error, BootstrapError::ConnectionLost { ranks, .. } if ranks.contains(&2));
        assert!(named, "{error}");
    }
    assert!(took < coordinator::FAREWELL + AT_ONCE, "{took:?}");
}

#[test]
fn a_rank_that_dies_after_it_has_joined_or_met_is_named_at_once() {
    die_if_asked();
    let test = "a_rank_that_dies_after_it_has_joined_or_met_is_named_at_once";
    // While it has only joined, rank 3 is not there.
    for (victim, step) in [(0, "met"), (1, "met"), (2, "met"), (3, "met")] {
        let (errors, took) = errors_after(test, victim, step, LONG);
        for error in errors {
            let named = matches!(error, BootstrapError::PeerDied { peer, .. } if peer == victim);
            assert!(named, "{step}: {error}");
        }
        assert!(took < AT_ONCE, "{step}: {took:?}");
    }
    let place = Place::new();
    std::thread::scope(|scope| {
        let waiting = [0, 1].map(|rank| {
            let environment = place.of(rank);
            scope.spawn(move || Bootstrap::connect(environment, LONG).map(drop))
        });
        let mut child = place.start(test, 2, "joined");
        await_ready(&mut child);
        std::thread::sleep(SHORT);
        let start = Instant::now();
        child.kill().unwrap();
        for rank in waiting {
            let error = rank.join().unwrap().unwrap_err();
            let named = matches!(error, BootstrapError::PeerDied { peer: 2, .. });
            assert!(named, "{error}");
        }
        assert!(start.elapsed() < coordinator::FAREWELL + AT_ONCE);
        child.wait().unwrap();
    });
}

#[test]
fn rank_0_that_dies_while_ranks_are_awaited_is_named_by_all() {
    const NAME: &str = "nodes::rank_0_that_dies_while_ranks_are_awaited_is_named_by_all";
    if let Some(role) = role() {
        let [address, secret] = role.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let place = Place {
            address: address.into(),
            secret: Secret::from_hex(secret).unwrap(),
        };
        let environment = place.of(0);
        let meeting = Meeting::of(&environment, LONG, None).unwrap();
        let _store = meeting.start_store().unwrap().unwrap();
        await_death();
    }
    let place = Place::new();
    let mut child = child(
        NAME,
        &format!("{} {}", place.address, place.secret.to_hex()),
    );
    await_ready(&mut child);
    let limit = Duration::from_secs(3);
    std::thread::scope(|scope| {
        let rank_2 = scope.spawn(|| Bootstrap::connect(place.of(2), limit).map(drop));
        std::thread::sleep(SHORT);
        child.kill().unwrap();
        child.wait().unwrap();
        let late = scope.spawn(|| Bootstrap::connect(place.of(3), limit).map(drop));
        let error = rank_2.join().unwrap().unwrap_err();
        assert!(
            matches!(&error, BootstrapError::ConnectionLost { ranks, .. } if *ranks == [2]),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("by which rank 2 reached rank 0"), "{text}");
        let error = late.join().unwrap().unwrap_err();
        assert_eq!(error.peer(), Some(0), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("refused"), "{cause}");
    });
}

#[test]
fn a_host_that_cannot_be_reached_is_awaited_and_the_error_names_rank_0_and_keeps_the_cause() {
    let mut place = Place::new();
    // The kernel refuses to connect to a multicast address as it does to a network without a route.
    place.address = "224.0.0.1:29500".into();
    let start = Instant::now();
    let error = Bootstrap::connect(place.of(1), SHORT).unwrap_err();
    assert!(start.elapsed() >= SHORT, "{error}");
    assert!(
        matches!(&error, BootstrapError::Timeout { missing, .. } if *missing == [0]),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.contains("rank 0 to listen at 224.0.0.1:29500"),
        "{text}"
    );
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("unreachable"), "{cause}");
}

/// Carries connections to `store` until `is_cut`; from then on it carries nothing, and closes nothing.
fn relay(listener: &TcpListener, store: &str, is_cut: &Arc<AtomicBool>) {
    while let Ok((rank, _)) = listener.accept() {
        let rank_0 = connect(store);
        let ways = [
            (rank.try_clone().unwrap(), rank_0.try_clone().unwrap()),
            (rank_0, rank),
        ];
        for (mut from, mut to) in ways {
            let is_cut = is_cut.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    if is_cut.load(Ordering::Acquire) {
                        std::thread::sleep(2 * LONG);
                    }
                    to.write_all(&bytes[..count]).unwrap();
                }
            });
        }
    }
}

#[test]
fn a_node_that_is_cut_off_during_the_set_up_is_named_on_both_sides_within_the_silence() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let far = Place {
        address: listener.local_addr().unwrap().to_string(),
        secret: place.secret.clone(),
    };
    let is_cut = Arc::new(AtomicBool::new(false));
    let (store, cut) = (place.address.clone(), is_cut.clone());
    std::thread::spawn(move || relay(&listener, &store, &cut));
    let silence = Duration::from_secs(1);
    let met = Barrier::new(WORLD as usize + 1);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..WORLD)
            .map(|rank| {
                let place = if rank < 2 { &place } else { &far };
                let (environment, met) = (place.of(rank), &met);
                scope.spawn(move || {
                    let rank = Arc::new(Bootstrap::connect(environment, LONG).unwrap());
                    let beating = Beating::start(&rank, silence).unwrap();
                    assert!(beating.is_some());
                    met.wait();
                    // Rank 0 itself is busy, as one that opens its device.
                    if rank.rank() == 0 {
                        std::thread::sleep(3 * silence);
                    }
                    let error = rank.gather("open", &[], None, LONG).unwrap_err();
                    (error, Instant::now())
                })
            })
            .collect();
        met.wait();
        std::thread::sleep(SHORT);
        is_cut.store(true, Ordering::Release);
        let start = Instant::now();
        for (rank, thread) in ranks.into_iter().enumerate() {
            let (error, at) = thread.join().unwrap();
            let BootstrapError::PeerDied { peer, .. } = error else {
                panic!("rank {rank}: {error}");
            };
            assert_ne!(NODES[peer as usize], NODES[rank], "{error}");
            let limit = if rank == 0 { 4 * silence } else { silence };
            assert!(
                at - start < limit + AT_ONCE,
                "rank {rank}: {:?}",
                at - start
            );
        }
    });
}

#[test]
fn a_rank_whose_message_does_not_get_out_notices_that_the_store_is_silent() {
    let (unread, stream) = Stream::pair().unwrap();
    let store = Store::new(1, 2, stream, None).lasting();
    let silence = Duration::from_secs(1);
    store.beat(silence);
    let start = Instant::now();
    // More than the socket holds.
    let error = store.set("much", &vec![0; 900 << 10], LONG).unwrap_err();
    assert!(
        matches!(error, BootstrapError::PeerDied { peer: 0, .. }),
        "{error}"
    );
    assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
    drop(unread);
}

#[test]
fn a_step_within_a_node_ends_if_another_rank_of_it_learned_of_a_failure_in_the_step_before() {
    let place = Place::new();
    let done = Barrier::new(WORLD as usize);
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..WORLD)
            .map(|rank| {
                let (environment, done) = (place.of(rank), &done);
                scope.spawn(move || {
                    let rank = Bootstrap::connect(environment, LONG).unwrap();
                    let null = std::fs::File::open("/dev/null").unwrap();
                    if rank.rank() == 2 {
                        // The first of the two steps only.
                        rank.store().all_gather("share", &[1], LONG).unwrap();
                        std::thread::sleep(SHORT);
                        rank.store().fail("out of memory").unwrap();
                        done.wait();
                        return None;
                    }
                    let start = Instant::now();
                    let gathered = rank.gather("share", &[], Some(null.as_fd()), LONG);
                    let took = start.elapsed();
                    done.wait();
                    assert!(took < AT_ONCE, "{took:?}");
                    gathered.err()
                })
            })
            .collect();
        let errors = ranks.into_iter().map(|rank| rank.join().unwrap());
        let errors: Vec<_> = errors.collect();
        let named = matches!(
            &errors[3],
            Some(BootstrapError::PeerFailed { peer: 2, reason }) if reason == "out of memory"
        );
        assert!(named, "{errors:?}");
        assert!(errors[0].is_none() && errors[1].is_none(), "{errors:?}");
    });
}
