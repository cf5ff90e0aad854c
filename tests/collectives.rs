//! Every collective does what its definition says, by every algorithm, on every backend: the conformance suite's
//! collectives over worlds of one to eight ranks.
//!
//! By default the tests run a seeded sample; with `SYMMEM_TESTS=all`, all cases
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
use support::amount::{Amount, amount, left_out_below};
use support::worlds::{
    Backend, Part, RANK, account, end, held_against_cuda, is_full, once, options, refuse_failures,
};
use symmem_conformance::collectives::{
    CollectiveCase, Mode, MulticastKernels, SoakCase, SoakLoad, plan, plan::Sizes,
};
use symmem_conformance::{Case, Outcome, Totals, World, rank_main};

/// World sizes on the host backend; one sample is divided among them.
const SIZES: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// World sizes over the fake runtimes, which are slower; another sample is divided among them.
const FAKE_SIZES: [u32; 4] = [1, 2, 3, 8];

/// The seed of the samples.
const SEED: u64 = symmem_conformance::plan::SEED;

/// Deadline of each wait, so that a case that hangs does not delay the rest for long.
const DEADLINE: Duration = Duration::from_secs(10);

/// A sample divided among worlds, made once for all of them: the world's index, and a case of it.
type Sample = LazyLock<Vec<(usize, Case)>>;

static HOST: Sample = LazyLock::new(|| plan::sample(SIZES.len(), Sizes::Small, SEED));
static FAKE: Sample = LazyLock::new(|| plan::sample(FAKE_SIZES.len(), Sizes::Small, SEED + 1));
static SHARED: Sample = LazyLock::new(|| plan::sample(FAKE_SIZES.len(), Sizes::Small, SEED + 2));
static THREADED: Sample = LazyLock::new(|| plan::sample(SIZES.len(), Sizes::Small, SEED + 3));

/// Returns the cases of one world.
fn share(world: usize, sample: &Sample) -> Vec<Case> {
    if is_full() {
        return plan::full(SEED).collect();
    }
    // A quarter still has every collective and every algorithm on several worlds, if not every two parameters.
    let each = if amount() == Amount::Sample { 4 } else { 1 };
    let here = sample.iter().filter(|(of, _)| *of == world);
    here.step_by(each).map(|(_, case)| case.clone()).collect()
}

/// Returns the cases of a world. A size that is not in the list shares the cases of another.
fn cases(part: Part) -> Vec<Case> {
    let among = |sizes: &[u32]| {
        let number = sizes.iter().position(|&size| size == part.ranks);
        number.unwrap_or(part.ranks as usize % sizes.len())
    };
    match part.backend {
        _ if part.threads => {
            let mut cases = share(0, &THREADED);
            if !is_full() {
                cases.truncate(100);
            }
            cases
        }
        Backend::Host => share(among(&SIZES), &HOST),
        Backend::Linked | Backend::HipLinked => share(among(&FAKE_SIZES), &FAKE),
        // How memory is shared changes addresses, not algorithms, so a few cases of each kind are enough.
        _ => {
            let each = if is_full() { 1 } else { 4 };
            let cases = share(0, &SHARED).into_iter();
            cases.skip(each - 1).step_by(each).collect()
        }
    }
}

fn part(backend: Backend, ranks: u32, threads: bool) -> Part {
    Part {
        backend,
        ranks,
        threads,
        part: 0,
    }
}

/// Returns the outcomes of a world's cases. The first test that asks runs them.
fn check(part: Part) -> Vec<Outcome> {
    once(part, || run(part, &cases(part)))
}

/// Runs cases in their own world.
fn run(part: Part, cases: &[Case]) -> Vec<Outcome> {
    run_with(part, "", &[], cases)
}

/// Like [`run`], in a world with this name suffix and with additional environment variables.
fn run_with(part: Part, name: &str, environment: &[(&str, &str)], cases: &[Case]) -> Vec<Outcome> {
    let Part {
        backend,
        ranks,
        threads,
        ..
    } = part;
    let kind = if threads { "threads" } else { "processes" };
    let name = format!("collectives{name}-{backend:?}-{ranks}-{kind}");
    let mut options = options(backend, ranks, threads, &name);
    let more = environment.iter();
    options
        .environment
        .extend(more.map(|(name, value)| (name.into(), value.into())));
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
    refuse_failures(&name, &failed);
    end(world, &name);
    outcomes
}

/// Returns the amount of tests that includes a world. Beyond it, the world costs more time than its additional coverage
/// is worth.
fn needed(part: Part) -> Amount {
    match part.backend {
        Backend::HipLinked if (4..8).contains(&part.ranks) => Amount::All,
        Backend::HipPlugin => Amount::All,
        Backend::Linked | Backend::HipLinked if part.ranks == 8 => Amount::Long,
        Backend::Plugin | Backend::LegacyIpc => Amount::Long,
        _ => Amount::Sample,
    }
}

#[rstest]
fn on_the_host(#[values(1, 2, 3, 4, 5, 6, 7, 8)] world: u32) {
    check(part(Backend::Host, world, false));
}

#[rstest]
fn over_the_fake_driver(#[values(1, 2, 3, 8)] world: u32) {
    let part = part(Backend::Linked, world, false);
    if !left_out_below(needed(part), &format!("collectives, Linked of {world}")) {
        check(part);
    }
}

#[rstest]
fn over_the_fake_hip_runtime(#[values(1, 2, 3, 4, 5, 6, 7, 8)] world: u32) {
    let part = part(Backend::HipLinked, world, false);
    if !left_out_below(needed(part), &format!("collectives, HipLinked of {world}")) {
        check(part);
    }
}

/// The multicast kernels without a switch: the cases of both multicast algorithms, from all worlds of the host's
/// sample.
#[rstest]
fn by_emulated_multicast(
    #[values((Backend::Host, 2), (Backend::Host, 4), (Backend::Linked, 3))] world: (Backend, u32),
) {
    // Emulation must work where multicast itself is forbidden, as in all of these worlds.
    let environment = [
        ("SYMMEM_MULTICAST", "emulate"),
        ("NVSHMEM_DISABLE_NVLS", "1"),
    ];
    by_multicast(world, "-emulated", &environment);
}

/// The multicast kernels through a switch's addresses, over the fake driver, if this environment permits multicast.
#[test]
fn by_the_fake_drivers_switch() {
    if !support::permitted() {
        return;
    }
    let libraries = support::fake_driver();
    assert!(
        libraries.join("libcuda.so.1").exists(),
        "only the fake driver may be used"
    );
    let libraries = libraries.to_str().expect("a path that is text");
    let environment = [
        ("SYMMEM_MULTICAST", "1"),
        ("FAKE_CUDA_MULTICAST_HARDWARE", "1"),
        // NCCL would look multicast up. This directory has no NCCL, so `NCCL_NVLS_ENABLE=0` is not needed.
        ("SYMMEM_LIBRARY_PATH", libraries),
        ("NCCL_NVLS_ENABLE", ""),
    ];
    by_multicast((Backend::Linked, 3), "-switch", &environment);
}

fn by_multicast((backend, world): (Backend, u32), name: &str, environment: &[(&str, &str)]) {
    let is_multicast = |case: &&Case| match case {
        Case::Collective(case) => case.variant.algorithm.is_multicast(),
        _ => false,
    };
    let mut cases: Vec<Case> = if is_full() {
        let all: Vec<Case> = plan::full(SEED).collect();
        all.iter().filter(is_multicast).cloned().collect()
    } else {
        let sample = HOST.iter().map(|(_, case)| case);
        sample.filter(is_multicast).cloned().collect()
    };
    if backend == Backend::Host {
        // The host backend has no graphs: call directly what would be captured.
        for case in &mut cases {
            if let Case::Collective(CollectiveCase { mode, .. }) = case
                && *mode == Mode::Captured
            {
                *mode = Mode::Eager;
            }
        }
    }
    assert!(cases.len() > 100, "{} cases", cases.len());
    // A case that must use these kernels fails if it uses another algorithm. Emulation excludes fp8.
    let kernels = MulticastKernels {
        captured: backend != Backend::Host,
        f8: false,
    };
    let goes = |case: &&Case| match case {
        Case::Collective(case) => case.uses_multicast(world as usize, kernels),
        _ => false,
    };
    let (by_kernels, all) = (cases.iter().filter(goes).count(), cases.len());
    assert!(by_kernels * 3 > all * 2, "{by_kernels} of {all}");
    if amount() == Amount::Sample {
        cases = cases.into_iter().step_by(4).collect();
    }
    let outcomes = run_with(part(backend, world, false), name, environment, &cases);
    assert!(outcomes.iter().all(|outcome| *outcome == Outcome::Passed));
}

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
    let part = part(backend, 3, false);
    if !left_out_below(needed(part), &format!("collectives, {backend:?} of 3")) {
        check(part);
    }
}

#[rstest]
fn of_threads_of_one_process(
    #[values((Backend::Host, 3), (Backend::Linked, 2), (Backend::HipLinked, 2))] world: (
        Backend,
        u32,
    ),
) {
    check(part(world.0, world.1, true));
}

/// Runs both backends itself, so that no test filter can hide one of them.
#[rstest]
fn hip_does_every_case_that_cuda_does_but_for_what_it_is_named_to_lack(
    #[values(1, 2, 3, 4, 5, 6, 7, 8)] world: u32,
) {
    let mut worlds = vec![part(Backend::HipLinked, world, false)];
    match world {
        2 => worlds.push(part(Backend::HipLinked, 2, true)),
        3 => worlds.extend([Backend::HipPlugin, Backend::HipVmm].map(|it| part(it, 3, false))),
        _ => {}
    }
    let mut wrong = Vec::new();
    for hip in worlds {
        let name = format!("collectives, {:?} of {world} against CUDA", hip.backend);
        if !left_out_below(needed(hip), &name) {
            let compared = held_against_cuda(hip, check, &mut wrong);
            assert_ne!(compared, 0, "{hip:?}: no case was compared");
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn mixed_calls_on_several_streams_pass_for_five_seconds() {
    let soak = Case::Soak(SoakCase {
        milliseconds: 5000,
        seed: SEED,
        load: SoakLoad::Mixed,
    });
    run(part(Backend::Host, 4, false), &[soak]);
}

#[test]
fn large_calls_on_all_channels_and_two_groups_pass_beside_a_users_kernel() {
    let soak = |milliseconds| {
        Case::Soak(SoakCase {
            milliseconds,
            seed: SEED,
            load: SoakLoad::Crowded,
        })
    };
    // In a sample one burst: the host has no units that grids could lack, so more bursts only vary the calls.
    let host = if amount() == Amount::Sample { 1 } else { 1000 };
    run(part(Backend::Host, 4, false), &[soak(host)]);
    // One burst each: the fakes do the work of whole devices.
    run(part(Backend::Linked, 2, false), &[soak(1)]);
    run(part(Backend::HipLinked, 2, false), &[soak(1)]);
}

/// Not a test: the main function of a process of this file that was started as a rank.
#[test]
fn rank_process() {
    if std::env::var_os(RANK).is_some() && rank_main() != ExitCode::SUCCESS {
        std::process::exit(1);
    }
}
