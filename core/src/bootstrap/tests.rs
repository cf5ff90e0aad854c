//! Ranks that meet, work, fail and die, over real sockets; as threads and as processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

use super::*;

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);
/// What a survivor may take to hear of a death.
const AT_ONCE: Duration = Duration::from_secs(1);

fn job() -> String {
    environment::random_job(0).unwrap()
}

fn place(rank: u32, world: u32, job: &str) -> LaunchEnvironment {
    LaunchEnvironment::local(rank, world, job.to_owned()).unwrap()
}

/// Every environment in a thread of its own.
fn connect_all(
    environments: Vec<LaunchEnvironment>,
    deadline: Duration,
) -> Vec<Result<Bootstrap, BootstrapError>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = environments
            .into_iter()
            .map(|environment| scope.spawn(move || Bootstrap::connect(environment, deadline)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// `work` on every rank of a world of threads; each keeps its place until all are done.
fn on_ranks<T: Send>(world: u32, work: impl Fn(&Bootstrap) -> T + Sync) -> Vec<T> {
    let done = Barrier::new(world as usize);
    let (work, done) = (&work, &done);
    std::thread::scope(|scope| {
        let threads: Vec<_> = Bootstrap::threads(world, LONG)
            .unwrap()
            .into_iter()
            .map(|rank| {
                scope.spawn(move || {
                    let result = work(&rank);
                    done.wait();
                    result
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

/// This test binary again, running only the test `name` with `role` in the environment.
fn child(name: &str, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            &format!("bootstrap::tests::{name}"),
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("SYMMEM_TEST_ROLE", role)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn role() -> Option<String> {
    std::env::var("SYMMEM_TEST_ROLE").ok()
}

/// Announce to the parent test that this child has come to where it wants to be killed, and wait.
fn await_death() -> ! {
    println!("ready");
    std::thread::sleep(LONG);
    std::process::exit(3)
}

fn await_ready(child: &mut Child) {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(
        lines
            .map_while(Result::ok)
            .any(|line| line.ends_with("ready")),
        "the child ended early"
    );
}

#[test]
fn a_world_of_one_needs_nobody() {
    let alone = Bootstrap::connect(LaunchEnvironment::alone().unwrap(), LONG).unwrap();
    assert_eq!(
        (alone.rank(), alone.world(), alone.peers().len()),
        (0, 1, 1)
    );
    assert_eq!(alone.store().all_gather("a", b"x", LONG).unwrap(), [b"x"]);
}

#[test]
fn sixty_four_ranks_gather_on_any_number_of_processors() {
    let start = Instant::now();
    on_ranks(64, |rank| {
        for round in 0..20u32 {
            let mine = [rank.rank(), round].map(u32::to_le_bytes).concat();
            let all = rank.store().all_gather("round", &mine, LONG).unwrap();
            for (peer, payload) in all.iter().enumerate() {
                assert_eq!(
                    *payload,
                    [peer as u32, round].map(u32::to_le_bytes).concat()
                );
            }
        }
        for (index, peer) in rank.peers().iter().enumerate() {
            assert_eq!(
                (peer.rank, peer.process.pid),
                (index as u32, std::process::id())
            );
        }
    });
    println!("64 ranks, rendezvous and 20 rounds: {:?}", start.elapsed());
}

#[test]
fn a_gather_takes_about_a_hundred_microseconds() {
    const ROUNDS: u32 = 500;
    for world in [2, 8] {
        let times = on_ranks(world, |rank| {
            rank.store().barrier("start", LONG).unwrap();
            let start = Instant::now();
            for _ in 0..ROUNDS {
                rank.store().all_gather("round", &[0; 64], LONG).unwrap();
            }
            start.elapsed() / ROUNDS
        });
        let slowest = times.into_iter().max().unwrap();
        println!("world {world}: {slowest:?} a round");
        // The bound only catches a sleep or a timer on the path, such as a delayed acknowledgement
        // (40 ms): the machine may be busy with other tests.
        assert!(slowest < Duration::from_millis(20), "{slowest:?}");
    }
}

#[test]
fn the_largest_payload_passes_and_one_byte_more_is_refused() {
    on_ranks(3, |rank| {
        let limit = rank.store().payload_limit();
        let all = rank
            .store()
            .all_gather("large", &vec![7; limit], LONG)
            .unwrap();
        assert!(all.iter().all(|payload| payload.len() == limit));
        let error = rank
            .store()
            .all_gather("large", &vec![7; limit + 1], LONG)
            .unwrap_err();
        assert!(
            matches!(error, BootstrapError::TooLarge { size, .. } if size == limit + 1),
            "{error}"
        );
        rank.store().barrier("still in step", LONG).unwrap();
    });
}

#[test]
fn keys_are_set_awaited_and_counted() {
    on_ranks(4, |rank| {
        let store = rank.store();
        if rank.rank() == 3 {
            store.set("key", b"value", LONG).unwrap();
        }
        assert_eq!(store.get("key", LONG).unwrap(), b"value");
        store.add("counter", 2, LONG).unwrap();
        store.barrier("counted", LONG).unwrap();
        assert_eq!(store.add("counter", 0, LONG).unwrap(), 8);
        let error = store.add("key", 1, LONG).unwrap_err();
        assert!(
            matches!(error, BootstrapError::NotACounter { .. }),
            "{error}"
        );
    });
}

#[test]
fn a_rank_that_never_comes_to_the_rendezvous_is_named() {
    let job = job();
    let results = connect_all(vec![place(0, 4, &job), place(3, 4, &job)], SHORT);
    for result in results {
        let error = result.unwrap_err();
        assert!(
            matches!(&error, BootstrapError::Timeout { missing, .. } if *missing == [1, 2]),
            "{error}"
        );
    }
}

#[test]
fn without_rank_0_the_deadline_holds() {
    let start = Instant::now();
    let error = Bootstrap::connect(place(1, 2, &job()), SHORT).unwrap_err();
    assert!(
        matches!(&error, BootstrapError::Timeout { missing, .. } if *missing == [0]),
        "{error}"
    );
    assert!(start.elapsed() < SHORT + AT_ONCE);
}

#[test]
fn a_rank_that_never_comes_to_a_collective_is_named_and_the_call_can_be_repeated() {
    on_ranks(3, |rank| {
        let store = rank.store();
        if rank.rank() != 1 {
            let error = store.barrier("late", SHORT).unwrap_err();
            let named = matches!(&error, BootstrapError::Timeout { missing, awaited, .. }
                if *missing == [1] && awaited.contains("late"));
            assert!(named, "{error}");
            store.barrier("late", LONG).unwrap();
        } else {
            std::thread::sleep(3 * SHORT);
            store.barrier("late", LONG).unwrap();
        }
    });
}

#[test]
fn different_collectives_at_the_same_time_are_an_error_at_once() {
    on_ranks(3, |rank| {
        let tag = if rank.rank() == 1 { "free" } else { "allocate" };
        let error = rank.store().barrier(tag, LONG).unwrap_err();
        assert!(
            matches!(error, BootstrapError::TagMismatch { .. }),
            "{error}"
        );
    });
}

#[test]
fn two_of_one_rank_are_an_error_on_all() {
    for taken in [0, 1].repeat(20) {
        let job = job();
        let ranks = vec![place(0, 3, &job), place(1, 3, &job), place(taken, 3, &job)];
        for result in connect_all(ranks, LONG) {
            let error = result.unwrap_err();
            assert!(
                matches!(error, BootstrapError::RankTaken { rank } if rank == taken),
                "{error}"
            );
        }
    }
}

#[test]
fn two_sizes_of_the_world_are_an_error_on_all() {
    let job = job();
    let ranks = vec![place(0, 3, &job), place(1, 3, &job), place(2, 4, &job)];
    for result in connect_all(ranks, LONG) {
        let error = result.unwrap_err();
        let named = matches!(
            error,
            BootstrapError::WorldMismatch {
                peer: 2,
                world: 4,
                expected: 3
            }
        );
        assert!(named, "{error}");
    }
}

#[test]
fn ranks_of_another_generation_never_meet() {
    let job = job();
    let mut late = place(1, 2, &job);
    late.generation = 1;
    for result in connect_all(vec![place(0, 2, &job), late], SHORT) {
        assert!(matches!(result, Err(BootstrapError::Timeout { .. })));
    }
}

#[test]
fn another_version_is_an_error_on_both_sides() {
    let job = job();
    let environment = place(1, 2, &job);
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), LONG));
        let meeting = Meeting::of(&environment, LONG).unwrap();
        let store = Store::new(1, 2, meeting.reach(&meeting.address).unwrap(), None);
        let error = store
            .join(
                &Request::ForeignJoin {
                    version: 9,
                    rank: 1,
                },
                LONG,
            )
            .unwrap_err();
        let expected = |error: &BootstrapError| {
            matches!(
                error,
                BootstrapError::VersionMismatch {
                    peer: 1,
                    version: 9,
                    expected: VERSION
                }
            )
        };
        assert!(expected(&error), "{error}");
        assert!(expected(&rank_0.join().unwrap().unwrap_err()));
    });
}

#[test]
fn a_job_can_meet_again_and_again() {
    let job = job();
    for _ in 0..20 {
        let ranks = connect_all(vec![place(0, 2, &job), place(1, 2, &job)], LONG);
        let ranks: Vec<Bootstrap> = ranks.into_iter().map(Result::unwrap).collect();
        // The first store is still up.
        let again = connect_all(vec![place(0, 2, &job), place(1, 2, &job)], LONG);
        assert!(again.iter().all(Result::is_ok));
        drop(ranks);
    }
}

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
    const NAME: &str = "a_rank_killed_in_a_collective_is_named_within_a_second";
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
    const NAME: &str = "a_rank_killed_in_the_rendezvous_is_named_within_a_second";
    if let Some(job) = role() {
        let environment = place(1, 3, &job);
        let meeting = Meeting::of(&environment, LONG).unwrap();
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

fn raw(job: &str) -> UnixStream {
    raw_at(&Meeting::of(&place(1, 2, job), LONG).unwrap().address)
}

/// A connection to rank 0, as soon as it listens, that has not said anything.
fn raw_at(address: &Address) -> UnixStream {
    let Address::Unix(name) = address else {
        panic!("the default is a Unix socket")
    };
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let start = Instant::now();
    loop {
        match UnixStream::connect_addr(&name) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < LONG, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn strangers_are_dropped_and_delay_nobody() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), LONG));
        // Silent, half a greeting, garbage, and a greeting with a false proof.
        let _silent: Vec<UnixStream> = (0..40).map(|_| raw(&job)).collect();
        let mut half = raw(&job);
        half.write_all(b"symmem").unwrap();
        let mut garbage = raw(&job);
        garbage.write_all(&[0xff; handshake::HELLO_BYTES]).unwrap();
        let mut false_proof = raw(&job);
        let hello = [b"symmem\0\n".as_slice(), &[1; 32]].concat();
        false_proof.write_all(&hello).unwrap();
        false_proof.read_exact(&mut [0; 64]).unwrap();
        // What follows the proof would be a valid message; it is never looked at.
        false_proof.write_all(&[2; 32]).unwrap();
        let _ = false_proof.write_all(
            &Request::ForeignJoin {
                version: 9,
                rank: 1,
            }
            .encode(1, 0),
        );
        for mut refused in [garbage, false_proof] {
            refused.set_read_timeout(Some(LONG)).unwrap();
            assert!(
                matches!(refused.read(&mut [0; 8]), Ok(0) | Err(_)),
                "not one byte in answer"
            );
        }
        let start = Instant::now();
        let rank_1 = Bootstrap::connect(place(1, 2, &job), LONG).unwrap();
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        let rank_0 = rank_0.join().unwrap().unwrap();
        scope.spawn(move || rank_0.store().barrier("both", LONG).unwrap());
        rank_1.store().barrier("both", LONG).unwrap();
    });
}

#[test]
fn a_rank_with_another_secret_is_refused() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), SHORT));
        let stream = raw(&job);
        let environment = place(1, 2, &job);
        let mut meeting = Meeting::of(&environment, LONG).unwrap();
        meeting.secret = Secret::random().unwrap();
        drop(stream);
        let error = meeting.join(meeting.address.clone()).unwrap_err();
        assert!(
            matches!(error, BootstrapError::WrongSecret { rank: 1, .. }),
            "{error}"
        );
        assert!(rank_0.join().unwrap().is_err());
    });
}

#[test]
fn another_user_is_refused_on_both_sides() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can act as another user");
        return;
    }
    let job = job();
    let environment = place(1, 2, &job);
    let meeting = Meeting::of(&environment, LONG).unwrap();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), SHORT));
        drop(raw(&job));
        // The system call changes the user of this thread only.
        scope.spawn(|| {
            let (root, nobody) = (
                rustix::process::Uid::ROOT,
                rustix::process::Uid::from_raw(65534),
            );
            rustix::thread::set_thread_res_uid(root, nobody, root).unwrap();
            let error = meeting.reach(&meeting.address).unwrap_err();
            assert!(
                matches!(
                    error,
                    BootstrapError::ForeignUser {
                        rank: 1,
                        uid: 0,
                        ..
                    }
                ),
                "{error}"
            );
            // One that does not look at who listens gets no further.
            let mut stranger = raw_at(&meeting.address);
            let _ = stranger.write_all(&[b"symmem\0\n".as_slice(), &[1; 32]].concat());
            assert!(
                matches!(stranger.read(&mut [0; 64]), Ok(0) | Err(_)),
                "not one byte in answer"
            );
        });
        assert!(matches!(
            rank_0.join().unwrap(),
            Err(BootstrapError::Timeout { .. })
        ));
    });
}

#[test]
fn an_oversized_message_ends_its_sender_and_is_reported() {
    let ranks = Bootstrap::threads(3, LONG).unwrap();
    let header = [
        &(message::MAX_BODY as u32 + 1).to_le_bytes()[..],
        &[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    ];
    rustix::io::write(ranks[1].store(), &header.concat()).unwrap();
    for rank in [&ranks[0], &ranks[2]] {
        let error = rank.store().barrier("all", LONG).unwrap_err();
        let named = matches!(&error, BootstrapError::PeerFailed { peer: 1, reason } if reason.contains("limit"));
        assert!(named, "{error}");
    }
}

#[test]
fn descriptors_reach_every_rank() {
    on_ranks(4, |rank| {
        for round in 0..10u32 {
            // Ranks 1 and 3 give a file that holds their number; the others give none.
            let file = (rank.rank() % 2 == 1).then(|| {
                let file =
                    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
                rustix::io::write(&file, &[rank.rank() as u8, round as u8]).unwrap();
                file
            });
            let payload = rank.rank().to_le_bytes();
            let all = rank
                .store()
                .all_gather_with_descriptors(
                    "share",
                    &payload,
                    file.as_ref().map(AsFd::as_fd),
                    LONG,
                )
                .unwrap();
            for (peer, contribution) in all.iter().enumerate() {
                assert_eq!(contribution.payload, (peer as u32).to_le_bytes());
                assert_eq!(contribution.descriptor.is_some(), peer % 2 == 1);
                if let Some(file) = &contribution.descriptor {
                    let mut bytes = [0; 2];
                    rustix::io::pread(file, &mut bytes, 0).unwrap();
                    assert_eq!(bytes, [peer as u8, round as u8]);
                }
            }
        }
    });
}

#[test]
fn no_descriptor_is_left_behind() {
    const NAME: &str = "no_descriptor_is_left_behind";
    // In a process of its own, where no other test opens files.
    if role().is_none() {
        assert!(
            child(NAME, "count")
                .wait_with_output()
                .unwrap()
                .status
                .success()
        );
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let file = std::fs::File::open("/dev/null").unwrap();
    let before = open();
    {
        let ranks = Bootstrap::threads(3, LONG).unwrap();
        let connected = open();
        let gather = |rank: &Bootstrap, tag: &str, deadline| {
            rank.store()
                .all_gather_with_descriptors(tag, &[], Some(file.as_fd()), deadline)
                .map(drop)
        };
        std::thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(move || (0..200).for_each(|_| gather(rank, "share", LONG).unwrap()));
            }
        });
        // One that times out, and one where tags differ.
        assert!(gather(&ranks[1], "late", Duration::from_millis(20)).is_err());
        std::thread::scope(|scope| {
            for (rank, tag) in ranks.iter().zip(["a", "b", "b"]) {
                scope.spawn(move || assert!(gather(rank, tag, LONG).is_err()));
            }
        });
        ranks[0].store().set("k", b"", LONG).unwrap();
        assert_eq!(open(), connected);
    }
    assert_eq!(open(), before);
}

#[test]
fn a_process_without_room_for_descriptors_says_so() {
    const NAME: &str = "a_process_without_room_for_descriptors_says_so";
    if role().is_none() {
        let output = child(NAME, "full").wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        return;
    }
    let ranks = Bootstrap::threads(2, LONG).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // All of the numbers below are taken, so no descriptor can be added.
    limit.current = Some(3);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    std::thread::scope(|scope| {
        for rank in &ranks {
            let file = file.as_fd();
            scope.spawn(move || {
                let error = rank
                    .store()
                    .all_gather_with_descriptors("share", &[], Some(file), LONG)
                    .unwrap_err();
                assert!(
                    matches!(error, BootstrapError::DescriptorLost { .. }),
                    "{error}"
                );
            });
        }
    });
}

/// A port that was free a moment ago.
fn tcp_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn tcp_place(rank: u32, world: u32, address: &str, secret: &Secret) -> LaunchEnvironment {
    let mut environment = place(rank, world, "unused");
    environment.job = None;
    environment.address = Some(address.to_owned());
    environment.secret = Some(secret.clone());
    environment
}

#[test]
fn ranks_meet_at_a_tcp_address_and_still_exchange_descriptors() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let ranks = (0..4)
        .map(|rank| tcp_place(rank, 4, &address, &secret))
        .collect();
    let ranks: Vec<Bootstrap> = connect_all(ranks, LONG)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    std::thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(|| {
                let null = std::fs::File::open("/dev/null").unwrap();
                let all = rank.store().all_gather_with_descriptors(
                    "share",
                    b"x",
                    Some(null.as_fd()),
                    LONG,
                );
                assert!(all.unwrap().iter().all(|part| part.descriptor.is_some()));
            });
        }
    });
}

#[test]
fn a_tcp_address_needs_a_secret_and_the_right_one() {
    let mut open = place(0, 1, "job");
    open.address = Some(tcp_address());
    let error = Bootstrap::connect(open, SHORT).unwrap_err();
    assert!(
        matches!(error, BootstrapError::SecretMissing { .. }),
        "{error}"
    );
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let ranks = vec![
        tcp_place(0, 2, &address, &secret),
        tcp_place(1, 2, &address, &Secret::random().unwrap()),
    ];
    let mut results = connect_all(ranks, Duration::from_secs(1)).into_iter();
    assert!(
        matches!(results.next(), Some(Err(BootstrapError::Timeout { missing, .. })) if missing == [1])
    );
    assert!(matches!(
        results.next(),
        Some(Err(BootstrapError::WrongSecret { rank: 1, .. }))
    ));
}

#[test]
fn ranks_of_two_generations_at_one_tcp_address_are_told() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let mut late = tcp_place(1, 2, &address, &secret);
    late.generation = 1;
    for result in connect_all(vec![tcp_place(0, 2, &address, &secret), late], LONG) {
        let error = result.unwrap_err();
        assert!(
            matches!(error, BootstrapError::GenerationMismatch { peer: 1, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_launcher_without_a_job_is_asked_for_one() {
    let mut environment = place(0, 1, "job");
    environment.job = None;
    let error = Bootstrap::connect(environment, SHORT).unwrap_err();
    assert!(
        matches!(error, BootstrapError::JobUnknown { .. }),
        "{error}"
    );
}
