//! All-gather + GEMM does what its definition says, by every algorithm and transport: the conformance suite's GEMM
//! cases over worlds of one to eight ranks.
//!
//! By default the tests run a seeded sample; with `SYMMEM_TESTS=all`, all cases
//! (`cargo xtask conformance --full`). Other tests cover the backends with their own libraries and kernels, over the
//! fake runtimes.

#[allow(dead_code, reason = "these tests use the host backend only")]
mod support;

use rstest::rstest;
use std::process::ExitCode;
use std::sync::LazyLock;
use std::time::Duration;
use support::worlds::{Backend, RANK, account, end, is_full, options, refuse_failures};
use symmem_conformance::{Case, Outcome, Totals, World, plan, products, rank_main};

/// World sizes; one sample is divided among them.
const SIZES: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Deadline of each wait, so that a case that hangs does not delay the rest for long.
const DEADLINE: Duration = Duration::from_secs(20);

/// The world's index, and a case of it.
static SAMPLE: LazyLock<Vec<(usize, Case)>> =
    LazyLock::new(|| products::sample(SIZES.len(), plan::SEED));

fn cases(world: usize) -> Vec<Case> {
    if is_full() {
        return products::full(plan::SEED).collect();
    }
    let here = SAMPLE.iter().filter(|(of, _)| *of == world);
    here.map(|(_, case)| case.clone()).collect()
}

/// Runs cases in their own world.
fn check(ranks: u32, threads: bool, cases: &[Case]) {
    let kind = if threads { "threads" } else { "processes" };
    let name = format!("products-Host-{ranks}-{kind}");
    let mut options = options(Backend::Host, ranks, threads, &name);
    options.deadline = DEADLINE;
    let mut world = World::launch(options).unwrap_or_else(|error| panic!("{name}: {error}"));
    let (mut totals, mut failed) = (Totals::default(), Vec::new());
    for record in world.run(cases, |_| ()) {
        totals.count(&record.outcome);
        if let Outcome::Failed(reason) = &record.outcome {
            failed.push(format!("{}: {reason}", record.case));
        }
    }
    account(&name, &totals, products::full(plan::SEED).count());
    refuse_failures(&name, &failed);
    end(world, &name);
}

#[rstest]
fn on_the_host(#[values(1, 2, 3, 4, 5, 6, 7, 8)] world: u32) {
    let number = SIZES.iter().position(|&size| size == world).unwrap_or(0);
    check(world, false, &cases(number));
}

#[test]
fn of_threads_of_one_process() {
    check(3, true, &cases(2));
}

/// Not a test: the main function of a process of this file that was started as a rank.
#[test]
fn rank_process() {
    if std::env::var_os(RANK).is_some() && rank_main() != ExitCode::SUCCESS {
        std::process::exit(1);
    }
}
