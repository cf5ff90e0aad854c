//! GEMM + reduce-scatter and GEMM + all-reduce do what their definitions say, by every algorithm and transport: the conformance
//! suite's cases over worlds of one to eight ranks on the host backend, and of one to four over the fake runtimes and libraries.
//!
//! By default the tests run a seeded sample; with `SYMMEM_TESTS=all`, all cases (`cargo xtask conformance --full`).

#[allow(dead_code, reason = "these tests need fewer fakes than others")]
mod support;

use rstest::rstest;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;
use support::worlds::{
    Backend, Part, RANK, account, end, held_against_cuda, is_full, once, options,
};
use symmem_conformance::{Case, Outcome, Totals, World, plan, rank_main, reduced_products};

/// World sizes on the host backend; one sample is divided among them.
const SIZES: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// World sizes over the fake runtimes; another sample is divided among them.
const FAKE_SIZES: [u32; 4] = [1, 2, 3, 4];
/// Deadline of each wait, so that a case that hangs does not delay the rest for long.
const DEADLINE: Duration = Duration::from_secs(20);

/// A sample divided among worlds: the world's index, and a case of it.
type Sample = LazyLock<Vec<(usize, Case)>>;

static HOST: Sample = LazyLock::new(|| reduced_products::sample(SIZES.len(), plan::SEED));
static FAKE: Sample = LazyLock::new(|| reduced_products::sample(FAKE_SIZES.len(), plan::SEED + 1));

fn cases(part: Part) -> Vec<Case> {
    if is_full() {
        return reduced_products::full(plan::SEED).collect();
    }
    let (sizes, sample): (&[u32], _) = match part.backend {
        Backend::Host => (&SIZES, &HOST),
        _ => (&FAKE_SIZES, &FAKE),
    };
    let number = sizes.iter().position(|&size| size == part.ranks);
    let number = number.expect("a test's world is among the sizes");
    let here = sample.iter().filter(|(of, _)| *of == number);
    here.map(|(_, case)| case.clone()).collect()
}

/// Runs a world's cases, once, and returns their outcomes.
fn check(part: Part) -> Vec<Outcome> {
    once(part, || run(part, &cases(part)))
}

fn run(part: Part, cases: &[Case]) -> Vec<Outcome> {
    let kind = if part.threads { "threads" } else { "processes" };
    let name = format!("reduced-products-{:?}-{}-{kind}", part.backend, part.ranks);
    let mut options = options(part.backend, part.ranks, part.threads, &name);
    options.deadline = DEADLINE;
    let mut world = World::launch(options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (mut totals, mut failed, mut outcomes) = (Totals::default(), Vec::new(), Vec::new());
    for record in world.run(cases, |_| ()) {
        totals.count(&record.outcome);
        if let Outcome::Failed(reason) = &record.outcome {
            failed.push(format!("{}: {reason}", record.case));
        }
        outcomes.push(record.outcome);
    }
    account(&name, &totals, reduced_products::full_count());
    let first = failed.len().min(10);
    assert!(
        failed.is_empty(),
        "{name}: {} failed, first these:\n{}",
        failed.len(),
        failed[..first].join("\n")
    );
    end(world, &name);
    outcomes
}

fn part(backend: Backend, ranks: u32) -> Part {
    Part {
        backend,
        ranks,
        threads: false,
        part: 0,
    }
}

#[rstest]
fn on_the_host(#[values(1, 2, 3, 4, 5, 6, 7, 8)] world: u32) {
    check(part(Backend::Host, world));
}

#[test]
fn of_threads_of_one_process() {
    check(Part {
        threads: true,
        ..part(Backend::Host, 3)
    });
}

#[rstest]
fn on_cuda(#[values(1, 2, 3, 4)] world: u32) {
    check(part(Backend::Linked, world));
}

#[rstest]
fn on_hip(#[values(1, 2, 3, 4)] world: u32) {
    check(part(Backend::HipLinked, world));
}

#[test]
fn hip_does_every_case_that_cuda_does() {
    let mut wrong = Vec::new();
    let compared: usize = (FAKE_SIZES.into_iter())
        .map(|world| held_against_cuda(part(Backend::HipLinked, world), check, &mut wrong))
        .sum();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all: usize = FAKE_SIZES
        .into_iter()
        .map(|world| cases(part(Backend::Linked, world)).len())
        .sum();
    assert_eq!(compared, all);
}

/// Not a test: the main function of a process of this file that was started as a rank.
#[test]
fn rank_process() {
    if std::env::var_os(RANK).is_some() && rank_main() != ExitCode::SUCCESS {
        std::process::exit(1);
    }
}
