//! Ranks that meet, work, fail and die, over real sockets; as threads and as processes.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Barrier;

use std::time::{Duration, Instant};

use super::meeting::Meeting;
use super::request::{Request, VERSION};
use super::stream::{Address, Stream};
use super::*;

mod descriptors;
mod failures;
#[cfg(feature = "tcp")]
mod nodes;
mod strangers;
#[cfg(feature = "tcp")]
mod tcp;

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);
/// Time within which a survivor must learn of a death. It takes milliseconds on an idle machine; one that runs many
/// tests may keep a process waiting for seconds. [`LONG`], by which the waits would end, is far beyond.
const AT_ONCE: Duration = Duration::from_secs(8);

fn job() -> String {
    environment::random_job(0).unwrap()
}

fn place(rank: u32, world: u32, job: &str) -> LaunchEnvironment {
    LaunchEnvironment::local(rank, world, job.to_owned()).unwrap()
}

/// Connects every environment in a thread of its own.
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

/// Runs `work` on every rank of a world of threads; each keeps its place until all are done.
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

/// Starts this test binary again, to run only the test `name` with `role` in the environment.
fn child(name: &str, role: &str) -> Child {
    command(name, role).spawn().unwrap()
}

fn command(name: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            &format!("bootstrap::tests::{name}"),
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("SYMMEM_TEST_ROLE", role)
        .stdout(Stdio::piped());
    command
}

fn role() -> Option<String> {
    std::env::var("SYMMEM_TEST_ROLE").ok()
}

/// Announces to the parent test that this child is ready to be killed, and waits.
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
    // Rank 2 never comes, so rank 0 stays for the whole farewell each time.
    for taken in [0, 1].repeat(4) {
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
        let meeting = Meeting::of(&environment, LONG, None).unwrap();
        let store = Store::new(1, 2, meeting.reach(&meeting.address).unwrap(), None);
        let error = store
            .join(
                &Request::ForeignJoin {
                    version: 9,
                    rank: 1,
                },
                LONG,
                None,
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
