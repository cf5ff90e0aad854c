//! The remaining ranks of a poisoned communicator rebuild it. Ranks are threads on the host backend. `tests/failures`
//! has the tests that kill ranks, which are processes there.

use std::time::{Duration, Instant};
use symmem::bootstrap::{BootstrapError, LaunchEnvironment};
use symmem::{BackendSource, Communicator, Configuration, Error, Result, SignalPlacement};

/// Much longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `rank` as each rank of a world and returns the results.
fn world<T: Send>(
    world: u32,
    configure: impl Fn(&mut Configuration) + Sync,
    rank: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    let job = format!("rebuild-{}-{:?}", std::process::id(), Instant::now());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|number| {
                let (job, rank, configure) = (job.clone(), &rank, &configure);
                scope.spawn(move || {
                    let launch = LaunchEnvironment::local(number, world, job);
                    let mut configuration = Configuration::new(launch.expect("a rank"));
                    configuration.deadline = PATIENCE;
                    configuration.setup_deadline = PATIENCE;
                    configure(&mut configuration);
                    let opened = Communicator::open(&BackendSource::Host, configuration);
                    rank(opened.expect("the world comes up"))
                })
            })
            .collect();
        let results = ranks.into_iter().map(|rank| rank.join().expect("no panic"));
        results.collect()
    })
}

/// Every rank puts its number to its neighbor and signals; every rank checks.
fn ring(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream()?;
    let outbox = communicator.allocate::<u64>(&[16])?;
    let inbox = communicator.allocate::<u64>(&[16])?;
    outbox.write(&stream, 0, &[rank as u64 + 100; 16])?;
    stream.put_signal((rank + 1) % world, inbox.all(), outbox.all(), 0)?;
    let left = (rank + world - 1) % world;
    stream.wait_signal(left, 0)?;
    stream.barrier()?;
    let mut received = [0; 16];
    inbox.read(&stream, 0, &mut received)?;
    assert_eq!(received, [left as u64 + 100; 16]);
    outbox.free()?;
    inbox.free()
}

#[test]
fn an_aborted_world_is_rebuilt_whole_and_again() {
    let results = world(
        4,
        |_| {},
        |mut communicator| {
            let rank = communicator.rank();
            let process_wide = communicator.stream()?;
            process_wide.wait_signal((rank + 1) % 4, 3)?;
            for generation in 1..=3 {
                // No rank is in a call that the abort would fail.
                communicator.host_barrier()?;
                if rank == generation as usize {
                    communicator.abort();
                }
                communicator = communicator.rebuild()?;
                assert_eq!(communicator.generation(), generation);
                assert_eq!((communicator.rank(), communicator.world_size()), (rank, 4));
                ring(&communicator)?;
            }
            // A handle of the first communicator, held until now, returns errors and does no harm.
            assert!(process_wide.barrier().is_err());
            drop(process_wide);
            communicator.finalize().map(|leaks| leaks.is_empty())
        },
    );
    for result in results {
        assert!(result.expect("rebuilt"));
    }
}

#[test]
fn ranks_that_gave_their_communicator_up_are_left_out_and_the_rest_is_numbered_in_the_old_order() {
    for placement in [SignalPlacement::Device, SignalPlacement::Host] {
        let place = |configuration: &mut Configuration| configuration.signal_placement = placement;
        // If a rank aborted at once, the allocation of a slower rank could fail.
        let allocated = std::sync::Barrier::new(5);
        let results = world(5, place, |communicator| {
            let old = communicator.rank();
            let held = communicator.allocate::<u32>(&[64]);
            allocated.wait();
            let held = held?;
            // Rank 0, which holds the store, and a rank in the middle.
            if old == 0 || old == 2 {
                communicator.abort();
                return Ok(None);
            }
            while communicator.check().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let rebuilt = communicator.rebuild()?;
            ring(&rebuilt)?;
            let error = held
                .free()
                .expect_err("the buffer belongs to the old communicator");
            assert!(matches!(error, Error::PeerFailed { .. }), "{error}");
            Ok(Some((old, rebuilt.rank(), rebuilt.world_size())))
        });
        let found: Vec<_> = results
            .into_iter()
            .filter_map(|result: Result<_>| result.expect("rebuilt"))
            .collect();
        assert_eq!(found, [(1, 0, 3), (3, 1, 3), (4, 2, 3)]);
    }
}

#[test]
fn a_rank_that_is_alive_and_does_not_come_is_named_at_the_deadline() {
    let limit = Duration::from_secs(2);
    let done = std::sync::Barrier::new(3);
    let results = world(
        3,
        |configuration| configuration.setup_deadline = limit,
        |communicator| {
            let start = Instant::now();
            if communicator.rank() == 1 {
                done.wait();
                return None;
            }
            let outcome = communicator.rebuild();
            done.wait();
            Some((outcome.map(drop), start.elapsed()))
        },
    );
    for (outcome, elapsed) in results.into_iter().flatten() {
        let Err(Error::Bootstrap(error)) = outcome else {
            panic!("{outcome:?}");
        };
        assert!(
            matches!(&*error, BootstrapError::Timeout { missing, .. } if missing == &[1]),
            "{error}"
        );
        assert!(elapsed >= limit && elapsed < PATIENCE, "{elapsed:?}");
    }
}

#[test]
fn a_rank_that_was_only_slow_takes_part() {
    let results = world(
        3,
        |_| {},
        |communicator| {
            match communicator.rank() {
                2 => std::thread::sleep(Duration::from_millis(300)),
                _ => communicator.abort(),
            }
            let rebuilt = communicator.rebuild()?;
            ring(&rebuilt)?;
            Result::Ok(rebuilt.world_size())
        },
    );
    for result in results {
        assert_eq!(result.expect("rebuilt"), 3);
    }
}

#[test]
fn the_last_one_rebuilds_alone() {
    let results = world(
        2,
        |_| {},
        |communicator| {
            if communicator.rank() == 0 {
                communicator.abort();
                return Ok(1);
            }
            while communicator.check().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let start = Instant::now();
            // Rank 0 has aborted and is about to leave: the rebuild waits for no other rank.
            let rebuilt = communicator.rebuild()?;
            assert!(start.elapsed() < PATIENCE);
            ring(&rebuilt)?;
            Result::Ok(rebuilt.world_size())
        },
    );
    for result in results {
        assert_eq!(result.expect("rebuilt"), 1);
    }
}
