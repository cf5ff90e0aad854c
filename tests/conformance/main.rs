//! Every backend does what the contract says, and all do the same: the conformance suite over backends, worlds and
//! engines.
//!
//! Each world is launched once and runs the cases of each engine. By default these are a seeded sample; with
//! `SYMMEM_TESTS=all`, all (`cargo xtask conformance --full`).

mod nodes;
#[allow(
    dead_code,
    reason = "these tests use the fake driver with a library beside it only"
)]
#[path = "../support/mod.rs"]
mod support;

use rstest::rstest;
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::{LazyLock, Mutex, PoisonError};
use support::amount::{Amount, amount, left_out_below};
use support::worlds::{
    Backend, Part, RANK, account, differences, end, held_against_cuda, is_full, once, options,
};
use symmem_conformance::{
    Case, MethodName, Outcome, SelftestOptions, Subject, Totals, TransferCase, World, plan,
    rank_main, selftest,
};

const BACKENDS: [Backend; 8] = [
    Backend::Host,
    Backend::Linked,
    Backend::Plugin,
    Backend::Vmm,
    Backend::LegacyIpc,
    Backend::HipLinked,
    Backend::HipPlugin,
    Backend::HipVmm,
];
const SIZES: [u32; 5] = [1, 2, 3, 4, 8];
/// Worlds whose ranks are threads of one process.
const THREADED: [(Backend, u32); 3] = [
    (Backend::Host, 3),
    (Backend::Linked, 2),
    (Backend::HipLinked, 2),
];
/// Worlds over older releases of a vendor's runtime.
const OLDER: [(Backend, u32); 1] = [(Backend::HipSix, 2)];

/// A world, which is launched for its first case.
struct Site {
    backend: Backend,
    ranks: u32,
    threads: bool,
    live: Mutex<Live>,
}

#[derive(Default)]
struct Live {
    world: Option<World>,
    done: HashSet<usize>,
    totals: Totals,
}

static SITES: LazyLock<Vec<Site>> = LazyLock::new(|| {
    let processes = BACKENDS.into_iter().flat_map(|backend| {
        SIZES.map(|ranks| Site {
            backend,
            ranks,
            threads: false,
            live: Mutex::default(),
        })
    });
    let more = |worlds: &[(Backend, u32)], threads| -> Vec<Site> {
        let site = |&(backend, ranks): &(Backend, u32)| Site {
            backend,
            ranks,
            threads,
            live: Mutex::default(),
        };
        worlds.iter().map(site).collect()
    };
    processes
        .chain(more(&THREADED, true))
        .chain(more(&OLDER, false))
        .collect()
});

/// A sample for each backend over its worlds, and one for the worlds of threads, so that every pair of parameter values
/// occurs on every backend. HIP runs CUDA's cases.
static SAMPLE: LazyLock<Vec<(usize, TransferCase)>> = LazyLock::new(|| {
    let mut cases = Vec::new();
    let mut first = 0;
    for worlds in BACKENDS
        .map(|_| SIZES.len())
        .into_iter()
        .chain([THREADED.len()])
    {
        let sample = plan::sample(worlds, plan::SEED + first as u64);
        cases.extend(
            sample
                .into_iter()
                .map(|(world, case)| (first + world, case)),
        );
        first += worlds;
    }
    cases
});

fn site_of(backend: Backend, ranks: u32, threads: bool) -> usize {
    let here = |site: &Site| (site.backend, site.ranks, site.threads) == (backend, ranks, threads);
    SITES.iter().position(here).expect("every world has a site")
}

/// Returns the cases of a world.
fn cases_of(site: &Site) -> Vec<Case> {
    if is_full() {
        return plan::full(plan::SEED).map(Case::Transfer).collect();
    }
    let backend = site.backend.counterpart().unwrap_or(site.backend);
    let sampled = site_of(backend, site.ranks, site.threads);
    let here = SAMPLE.iter().filter(|(of, _)| *of == sampled);
    here.map(|(_, case)| Case::Transfer(case.clone())).collect()
}

/// Returns the outcomes of one engine's cases in one world. The first test that asks runs them.
fn check(part: Part) -> Vec<Outcome> {
    once(part, || run(part))
}

fn part(backend: Backend, ranks: u32, threads: bool, method: MethodName) -> Part {
    Part {
        backend,
        ranks,
        threads,
        part: method as usize,
    }
}

/// Runs one engine's cases in a world, and ends the world after the last engine.
fn run(part: Part) -> Vec<Outcome> {
    let Part {
        backend,
        ranks,
        threads,
        part: method,
    } = part;
    let site = &SITES[site_of(backend, ranks, threads)];
    let kind = if threads { "threads" } else { "processes" };
    let name = format!("{backend:?}-{ranks}-{kind}");
    let mut cases: Vec<Case> = cases_of(site);
    cases.retain(
        |case| matches!(case, Case::Transfer(case) if case.engine.method as usize == method),
    );
    // Each change of signal placement needs a new communicator. Reversing every other engine lets it start with the
    // placement that the previous one ended with.
    if method % 2 == 1 {
        cases.reverse();
    }
    let mut live = site.live.lock().unwrap_or_else(PoisonError::into_inner);
    if live.world.is_none() {
        let options = options(backend, ranks, threads, &name);
        live.world = Some(World::launch(options).unwrap_or_else(|error| panic!("{name}: {error}")));
    }
    let Live {
        world: Some(world), ..
    } = &mut *live
    else {
        return Vec::new();
    };
    let records = world.run(&cases, |_| ());
    let failed: Vec<String> = records
        .iter()
        .filter_map(|record| match &record.outcome {
            Outcome::Failed(reason) => Some(format!("{}: {reason}", record.case)),
            _ => None,
        })
        .collect();
    for record in &records {
        live.totals.count(&record.outcome);
    }
    live.done.insert(method);
    if live.done.len() == MethodName::ALL.len() {
        account(&name, &live.totals, plan::full_count());
        if let Some(world) = live.world.take().filter(|_| failed.is_empty()) {
            end(world, &name);
        }
    }
    drop(live);
    assert!(
        failed.is_empty(),
        "{name}: {} failed:\n{}",
        failed.len(),
        failed.join("\n")
    );
    records.into_iter().map(|record| record.outcome).collect()
}

/// Returns the amount of tests that includes a world. Beyond it, the world costs more time than its additional coverage
/// is worth: how memory is shared, or which file the backend was loaded from, changes nothing that the size of the world
/// affects.
fn needed(backend: Backend, ranks: u32) -> Amount {
    match backend {
        Backend::HipVmm if ranks > 3 => Amount::All,
        Backend::HipPlugin if ranks > 2 => Amount::All,
        Backend::Host => Amount::Sample,
        Backend::Linked | Backend::HipLinked if ranks <= 3 => Amount::Sample,
        Backend::Vmm | Backend::HipVmm if ranks == 2 => Amount::Sample,
        _ => Amount::Long,
    }
}

#[rstest]
fn processes(
    #[values(
        Backend::Host,
        Backend::Linked,
        Backend::Plugin,
        Backend::Vmm,
        Backend::LegacyIpc,
        Backend::HipLinked,
        Backend::HipPlugin,
        Backend::HipVmm
    )]
    backend: Backend,
    #[values(1, 2, 3, 4, 8)] world: u32,
    #[values(
        MethodName::Automatic,
        MethodName::CopyEngine,
        MethodName::Vector,
        MethodName::Bulk,
        MethodName::Unrolled
    )]
    engine: MethodName,
) {
    let name = format!("{backend:?} of {world}, {engine:?}");
    if left_out_below(needed(backend, world), &name) {
        return;
    }
    check(part(backend, world, false, engine));
}

#[rstest]
fn threads(
    #[values((Backend::Host, 3), (Backend::Linked, 2), (Backend::HipLinked, 2))] world: (
        Backend,
        u32,
    ),
    #[values(
        MethodName::Automatic,
        MethodName::CopyEngine,
        MethodName::Vector,
        MethodName::Bulk,
        MethodName::Unrolled
    )]
    engine: MethodName,
) {
    check(part(world.0, world.1, true, engine));
}

#[rstest]
fn older_releases(
    #[values((Backend::HipSix, 2))] world: (Backend, u32),
    #[values(
        MethodName::Automatic,
        MethodName::CopyEngine,
        MethodName::Vector,
        MethodName::Bulk,
        MethodName::Unrolled
    )]
    engine: MethodName,
) {
    check(part(world.0, world.1, false, engine));
}

/// Runs both backends itself, so that no test filter can hide one of them.
#[rstest]
fn hip_does_every_case_that_cuda_does_but_for_what_it_is_named_to_lack(
    #[values(1, 2, 3, 4, 8)] world: u32,
) {
    let (mut compared, mut wrong) = (0, Vec::new());
    for site in SITES.iter().filter(|site| site.ranks == world) {
        let backend = site.backend;
        if !backend.is_hip() {
            continue;
        }
        let name = format!("{backend:?} of {world} against CUDA");
        if left_out_below(needed(backend, world), &name) {
            continue;
        }
        for method in MethodName::ALL {
            let hip = part(backend, world, site.threads, method);
            compared += held_against_cuda(hip, check, &mut wrong);
        }
    }
    assert_eq!(wrong, [""; 0]);
    // A sample has no HIP world of every size; the long lists have one.
    assert!(
        compared != 0 || amount() == Amount::Sample,
        "no case was compared"
    );
}

#[test]
fn a_case_that_hip_has_not_or_skips_without_a_named_lack_is_told() {
    let skipped = |reason: &str| Outcome::Skipped(reason.into());
    let (passed, bulk) = (Outcome::Passed, skipped("the device has no bulk copies"));
    let cuda = [passed.clone(), passed.clone(), skipped("too few ranks")];
    let alike = [passed.clone(), bulk, skipped("too few ranks")];
    assert_eq!(differences(&cuda, &alike), [""; 0]);
    let unnamed = [passed.clone(), skipped("no copy engine"), passed];
    assert_eq!(differences(&cuda, &unnamed).len(), 1);
    assert_eq!(differences(&cuda, &cuda[..2]).len(), 1);
}

fn oversubscribed(seed: u64) -> Vec<Case> {
    plan::oversubscribed(seed)
        .into_iter()
        .map(Case::Transfer)
        .collect()
}

#[test]
fn sixty_four_ranks_pass_barriers_and_signals_on_the_host() {
    let name = "Host-64-processes";
    let mut world = World::launch(options(Backend::Host, 64, false, name)).unwrap();
    let mut totals = Totals::default();
    for record in world.run(&oversubscribed(plan::SEED), |_| ()) {
        assert_eq!(record.outcome, Outcome::Passed, "{}", record.case);
        totals.count(&record.outcome);
    }
    account(name, &totals, plan::full_count());
    end(world, name);
}

#[test]
fn a_world_whose_rank_dies_fails_that_case_and_is_replaced_for_the_rest() {
    let mut options = options(Backend::Host, 2, false, "killed");
    options.deadline = std::time::Duration::from_secs(5);
    let mut world = World::launch(options).unwrap();
    let cases = oversubscribed(1);
    assert_eq!(world.run(&cases[..1], |_| ())[0].outcome, Outcome::Passed);

    let victim = rustix::process::Pid::from_raw(world.processes()[1] as i32).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    let records = world.run(&cases[1..], |_| ());

    let passed = |at: usize| records[at].outcome == Outcome::Passed;
    assert!(!passed(0) && passed(1) && passed(2), "{records:#?}");
    world.finish().unwrap();
}

#[test]
fn a_world_whose_rank_dies_instead_of_joining_says_so_long_before_the_deadline() {
    let mut options = options(Backend::Host, 3, false, "dead-on-arrival");
    let script = "[ $SYMMEM_RANK = 1 ] && kill -9 $$; exec \"$0\" \"$@\"";
    let program = std::mem::replace(&mut options.program, "/bin/sh".into());
    let rank = [program.into_os_string()]
        .into_iter()
        .chain(options.arguments);
    let shell = ["-c", script].map(std::ffi::OsString::from);
    options.arguments = shell.into_iter().chain(rank).collect();
    let (start, deadline) = (std::time::Instant::now(), options.deadline);
    let error = World::launch(options).err().expect("a rank is dead");
    assert!(start.elapsed() < deadline, "{:?}", start.elapsed());
    let said = error.to_string();
    assert!(said.contains("rank 1: signal: 9 (SIGKILL)"), "{said}");
}

/// Returns a case that the host backend skips.
fn skipped_case() -> Case {
    let is_skipped = |case: &&TransferCase| case.engine.method == MethodName::CopyEngine;
    let found = SAMPLE.iter().map(|(_, case)| case).find(is_skipped);
    Case::Transfer(found.expect("a case of each engine").clone())
}

#[test]
fn a_world_that_ends_at_a_failure_is_not_replaced() {
    let mut options = options(Backend::Host, 2, false, "not-replaced");
    options.deadline = std::time::Duration::from_secs(5);
    options.ends_at_failure = true;
    let mut world = World::launch(options).unwrap();
    let cases = oversubscribed(1);
    let ranks = world.processes();
    let victim = rustix::process::Pid::from_raw(ranks[1] as i32).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    let records = world.run(&cases, |_| ());
    assert_eq!(records.len(), 1, "{records:#?}");
    assert!(matches!(records[0].outcome, Outcome::Failed(_)));
    assert_eq!(world.processes(), ranks);
    let error = world.finish().unwrap_err().to_string();
    assert!(error.contains("SIGKILL"), "{error}");
}

#[rstest]
fn a_world_that_ends_at_a_failure_ends_in_good_order_at_a_case_that_is_skipped(
    #[values(false, true)] threads: bool,
    // The skipped case is the last of all, or one of more cases than a pipe holds, which no rank reads any more.
    #[values(1, 1000)] times: usize,
) {
    let name = format!("ends-in-order-{threads}-{times}");
    let mut options = options(Backend::Host, 2, threads, &name);
    options.ends_at_failure = true;
    let patience = options.deadline;
    let mut world = World::launch(options).unwrap();
    let mut cases = oversubscribed(1);
    cases.insert(1, skipped_case());
    let cases = vec![cases; times].concat();
    let start = std::time::Instant::now();
    let records = world.run(&cases, |_| ());
    assert!(
        start.elapsed() < patience,
        "the ranks do not end by themselves"
    );
    let passed = |at: usize| records[at].outcome == Outcome::Passed;
    assert!(records.len() == 2 && passed(0), "{records:#?}");
    assert!(matches!(records[1].outcome, Outcome::Skipped(_)));
    world.finish().unwrap();
}

#[test]
fn a_selftest_that_ends_at_a_failure_starts_no_world_after_it() {
    let template = options(Backend::Host, 1, false, "selftest-ends");
    let report = selftest(
        &SelftestOptions {
            backend: template.backend,
            ranks: vec![2.into(), 1.into()],
            only: Some(Subject::Transfers),
            program: Some(template.program),
            arguments: template.arguments,
            environment: template.environment,
            ends_at_failure: true,
            ..SelftestOptions::default()
        },
        |_, _, _| (),
    );
    let report = report.unwrap();
    // The host backend has no copy engine.
    assert_eq!(report.totals.skipped.values().sum::<usize>(), 1);
    assert_eq!(report.worlds.len(), 1);
    assert_eq!(report.worlds[0].cases.len(), report.totals.cases());
    assert!(report.is_clean(), "{:?}", report.worlds[0].failure);
}

/// Not a test: the main function of a process that [`ranks_live_as_long_as_their_process`] starts.
#[test]
fn world_process() {
    if std::env::var_os("SYMMEM_TEST_WORLD").is_none() {
        return;
    }
    let launch = || World::launch(options(Backend::Host, 2, false, "starter")).unwrap();
    let mut world = std::thread::spawn(launch).join().unwrap();
    let passed = world.run(&oversubscribed(1)[..1], |_| ())[0].outcome == Outcome::Passed;
    println!("\nworld {passed} {:?}", world.processes());
    std::thread::sleep(std::time::Duration::from_secs(60));
}

#[test]
fn ranks_live_as_long_as_their_process_and_not_as_the_thread_that_launched_them() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::BufRead;
    let mut process = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "world_process", "--nocapture"])
        .env("SYMMEM_TEST_WORLD", "1")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(process.stdout.take().unwrap()).lines();
    let mut lines = lines.map_while(Result::ok);
    let told = lines.find_map(|line| line.strip_prefix("world ").map(str::to_owned));
    let told = told.expect("a world");
    let ranks = told.strip_prefix("true ").expect("a case that passed");
    let ranks: Vec<i32> = serde_json::from_str(ranks).unwrap();
    assert_eq!(ranks.len(), 2);
    let ranks = ranks.into_iter().filter_map(Pid::from_raw);
    let ranks: Vec<Pid> = ranks.collect();
    // Stopped ranks do not see that their input has ended.
    for &rank in &ranks {
        kill_process(rank, Signal::STOP).unwrap();
    }
    process.kill().unwrap();
    process.wait().unwrap();
    let lives = |rank: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", rank.as_raw_nonzero()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    let start = std::time::Instant::now();
    while ranks.iter().any(lives) && start.elapsed().as_secs() < 10 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let left: Vec<Pid> = ranks.into_iter().filter(lives).collect();
    for &rank in &left {
        let _ = kill_process(rank, Signal::KILL);
    }
    assert_eq!(left, []);
}

#[test]
fn the_selftest_names_every_case_and_its_outcome() {
    let template = options(Backend::Host, 1, false, "selftest");
    let selftest_options = SelftestOptions {
        backend: template.backend,
        ranks: vec![2.into()],
        only: Some(Subject::Transfers),
        program: Some(template.program),
        arguments: template.arguments,
        environment: template.environment,
        ..SelftestOptions::default()
    };
    let mut told = 0;
    let report = selftest(&selftest_options, |done, _, _| told = done).unwrap();
    assert!(report.is_clean(), "{}", report.totals);
    assert_eq!(report.totals.cases(), told);
    assert_eq!(report.worlds[0].cases.len(), told);
    let text = serde_json::to_string(&report).unwrap();
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    let first = &read["worlds"][0]["cases"][0];
    for field in ["name", "outcome", "nanoseconds", "case"] {
        assert!(!first[field].is_null(), "{field} is missing in {first}");
    }
    assert!(
        report
            .totals
            .skipped
            .keys()
            .any(|reason| reason.contains("no copy engine"))
    );
}

/// Not a test: the main function of a process of this file that was started as a rank.
#[test]
fn rank_process() {
    if std::env::var_os(RANK).is_some() && rank_main() != ExitCode::SUCCESS {
        std::process::exit(1);
    }
}
