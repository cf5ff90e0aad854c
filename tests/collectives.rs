//! Every collective is what its definition says, by every algorithm, on every backend: the conformance
//! suite's collectives over worlds of one to eight ranks.
//!
//! By default they are the seeded sample; with `SYMMEM_CONFORMANCE=full`, all
//! (`cargo xtask conformance --full`).

#[allow(
    dead_code,
    reason = "these tests use the fake driver with a library beside it only"
)]
mod support;

use rstest::rstest;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;
use support::worlds::{
    Backend, Part, RANK, account, compare_with_cuda, end, is_full, left_out, options,
};
use symmem::conformance::collectives::{SoakCase, plan, plan::Sizes};
use symmem::conformance::{Case, Outcome, Totals, World, rank_main};

/// Worlds of the host backend, among which a sample is shared out.
const SIZES: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Worlds over the fake runtimes, which are slower, among which another is.
const FAKE_SIZES: [u32; 4] = [1, 2, 3, 8];

/// The seed of the samples.
const SEED: u64 = symmem::conformance::plan::SEED;

/// Bound of each wait: a case that hangs must not keep the rest for long.
const DEADLINE: Duration = Duration::from_secs(10);

/// A sample shared out among worlds, made once for all of them: the world's number, a case of it.
type Sample = LazyLock<Vec<(usize, Case)>>;

static HOST: Sample = LazyLock::new(|| plan::sample(SIZES.len(), Sizes::Small, SEED));
static FAKE: Sample = LazyLock::new(|| plan::sample(FAKE_SIZES.len(), Sizes::Small, SEED + 1));
static SHARED: Sample = LazyLock::new(|| plan::sample(FAKE_SIZES.len(), Sizes::Small, SEED + 2));
static THREADED: Sample = LazyLock::new(|| plan::sample(SIZES.len(), Sizes::Small, SEED + 3));

/// The cases of one world of several.
fn cases(world: usize, sample: &Sample) -> Vec<Case> {
    if is_full() {
        return plan::full(SEED).collect();
    }
    let here = sample.iter().filter(|(of, _)| *of == world);
    here.map(|(_, case)| case.clone()).collect()
}

/// Runs cases in a world of their own.
fn check(backend: Backend, ranks: u32, threads: bool, cases: &[Case]) {
    let kind = if threads { "threads" } else { "processes" };
    let name = format!("collectives-{backend:?}-{ranks}-{kind}");
    let mut options = options(backend, ranks, threads, &name);
    options.deadline = DEADLINE;
    let mut world = World::launch(options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut totals = Totals::default();
    let (mut failed, mut outcomes) = (Vec::new(), Vec::new());
    for record in world.run(cases, |_| ()) {
        totals.count(&record.outcome);
        if let Outcome::Failed(reason) = &record.outcome {
            failed.push(format!("{}: {reason}", record.case));
        }
        outcomes.push(record.outcome);
    }
    account(&name, &totals, plan::full_count());
    let first = failed.len().min(10);
    assert!(
        failed.is_empty(),
        "{name}: {} failed, first these:\n{}",
        failed.len(),
        failed[..first].join("\n")
    );
    end(world, &name);
    let part = Part {
        backend,
        ranks,
        threads,
        part: 0,
    };
    assert_eq!(compare_with_cuda(part, &outcomes), [""; 0], "{name}");
}

#[rstest]
fn on_the_host(#[values(1, 2, 3, 4, 5, 6, 7, 8)] world: u32) {
    let number = SIZES.iter().position(|&size| size == world).unwrap_or(0);
    check(Backend::Host, world, false, &cases(number, &HOST));
}

#[rstest]
fn over_the_fake_driver(#[values(1, 2, 3, 8)] world: u32) {
    let number = FAKE_SIZES.iter().position(|&size| size == world);
    let cases = cases(number.unwrap_or(0), &FAKE);
    check(Backend::Linked, world, false, &cases);
}

/// Worlds of sizes that CUDA is not given here have the cases of another.
#[rstest]
fn over_the_fake_hip_runtime(#[values(1, 2, 3, 4, 5, 6, 7, 8)] world: u32) {
    if (4..8).contains(&world) && left_out(&format!("collectives, HipLinked of {world}")) {
        return;
    }
    let number = FAKE_SIZES.iter().position(|&size| size == world);
    let cases = cases(number.unwrap_or(world as usize % FAKE_SIZES.len()), &FAKE);
    check(Backend::HipLinked, world, false, &cases);
}

/// How memory is shared changes addresses, not algorithms: a few cases of each way are enough.
#[rstest]
fn however_memory_is_shared(
    #[values(
        Backend::Plugin,
        Backend::Vmm,
        Backend::LegacyIpc,
        Backend::HipPlugin,
        Backend::HipVmm
    )]
    backend: Backend,
) {
    if backend == Backend::HipPlugin && left_out("collectives, HipPlugin of 3") {
        return;
    }
    let mut cases = cases(0, &SHARED);
    if !is_full() {
        cases.retain({
            let mut number = 0;
            move |_| {
                number += 1;
                number % 4 == 0
            }
        });
    }
    check(backend, 3, false, &cases);
}

#[rstest]
fn of_threads_of_one_process(
    #[values((Backend::Host, 3), (Backend::Linked, 2), (Backend::HipLinked, 2))] world: (
        Backend,
        u32,
    ),
) {
    let mut cases = cases(0, &THREADED);
    if !is_full() {
        cases.truncate(100);
    }
    check(world.0, world.1, true, &cases);
}

#[test]
fn mixed_calls_on_several_streams_pass_for_five_seconds() {
    let soak = Case::Soak(SoakCase {
        milliseconds: 5000,
        seed: SEED,
    });
    check(Backend::Host, 4, false, &[soak]);
}

/// Not a test: what a process of this file does that was started as a rank.
#[test]
fn rank_process() {
    if std::env::var_os(RANK).is_some() && rank_main() != ExitCode::SUCCESS {
        std::process::exit(1);
    }
}
