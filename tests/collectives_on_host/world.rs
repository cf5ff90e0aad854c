//! Worlds whose ranks are threads on the host backend, and the input values of each rank.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use symmem::bootstrap::LaunchEnvironment;
use symmem::{BackendSource, Communicator, Configuration};

/// Much longer than any of these tests takes.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn configuration(rank: u32, world: u32, job: &str) -> Configuration {
    let launch = LaunchEnvironment::local(rank, world, job).expect("a rank of the world");
    let mut configuration = Configuration::new(launch);
    configuration.deadline = PATIENCE;
    configuration.setup_deadline = PATIENCE;
    configuration
}

/// Runs `rank` as each rank of a world, with configurations that `adapt` changes.
pub fn world_with<T: Send>(
    world: u32,
    adapt: impl Fn(&mut Configuration) + Sync,
    rank: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let job = format!("collectives-{}-{number}", std::process::id());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|number| {
                let (job, rank, adapt) = (&job, &rank, &adapt);
                scope.spawn(move || {
                    let mut configuration = configuration(number, world, job);
                    adapt(&mut configuration);
                    let opened = Communicator::open(&BackendSource::Host, configuration);
                    rank(opened.expect("the world comes up"))
                })
            })
            .collect();
        let results = ranks.into_iter().map(|rank| rank.join().expect("no panic"));
        results.collect()
    })
}

pub fn world<T: Send>(ranks: u32, rank: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    world_with(ranks, |_| (), rank)
}

/// Returns a rank's input at an index, which is not the sum of other inputs.
pub fn value(rank: usize, index: usize) -> i32 {
    (index as i32)
        .wrapping_mul(7919)
        .wrapping_add((rank as i32 + 1) * 1_000_003)
}

/// Returns the sum of all ranks' inputs.
pub fn sum(world: usize, index: usize) -> i32 {
    (0..world).fold(0, |sum, rank| sum.wrapping_add(value(rank, index)))
}
