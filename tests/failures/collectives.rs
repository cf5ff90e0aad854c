//! A rank is killed, stopped or aborts in the middle of each collective, eager and replayed.

use std::time::{Duration, Instant};

use crate::calls::{Bench, Call};
use crate::support::{
    Member, Plan, Random, Setting, full, on_each_backend, on_each_device, resources, system_driver,
};
use rstest::rstest;
use rstest_reuse::apply;
use symmem::{Communicator, Provider, Result};

const WORLD: usize = 3;

/// The argument of a role: the call, whether it is replayed, elements for each rank, what follows the failure, and
/// `vendor` if NCCL or RCCL makes the call.
struct Scenario {
    call: Call,
    replayed: bool,
    part: usize,
    after: String,
    provider: Provider,
}

impl Scenario {
    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text.split(' ').collect();
        let (words, provider) = match words[..] {
            [_, _, _, _, "vendor"] => (&words[..4], Provider::Nccl),
            _ => (&words[..], Provider::Automatic),
        };
        let &[call, how, part, after] = words else {
            panic!("no order: {text}");
        };
        Self {
            call: Call::parse(call),
            replayed: how == "replayed",
            part: part.parse().expect("elements"),
            after: after.into(),
            provider,
        }
    }
}

/// Makes the call repeatedly until it fails.
fn use_up(communicator: &Communicator, scenario: &Scenario, begin: impl FnOnce()) -> Result<()> {
    let bench = bench(communicator, scenario.part, scenario.provider)?;
    // Eager first, because NCCL connects its ranks in the first call.
    bench.once(scenario.call, None)?;
    let graph = scenario
        .replayed
        .then(|| bench.capture(communicator, scenario.call))
        .transpose()?;
    begin();
    loop {
        bench.once(scenario.call, graph.as_ref())?;
    }
}

fn bench(communicator: &Communicator, part: usize, provider: Provider) -> Result<Bench> {
    if provider == Provider::Nccl {
        communicator.open_nccl(false)?;
    }
    Bench::new(communicator, part, provider)
}

/// Checks that every call works among the ranks that are left.
fn verify_all(communicator: &Communicator, provider: Provider) -> Result<()> {
    for part in [5, 3000] {
        let bench = bench(communicator, part, provider)?;
        for call in Call::ALL {
            bench.once(call, None)?;
            let graph = bench.capture(communicator, call)?;
            for _ in 0..3 {
                bench.once(call, Some(&graph))?;
            }
        }
        bench.free()?;
    }
    Ok(())
}

pub fn role(role: &str, member: &Member) {
    if role == "free" {
        let information = member.join().memory_information().expect("known");
        return member.say("free", information.free);
    }
    assert_eq!(role, "loop", "the only other role");
    let scenario = Scenario::parse(&member.argument);
    let before = resources();
    let communicator = member.join();
    let begin = || match scenario.after.as_str() {
        // One rank leaves all others waiting.
        "abort" if member.rank == 1 => {
            member.ready();
            communicator.abort();
            member.say("aborted", "");
        }
        _ => member.ready(),
    };
    let error = use_up(&communicator, &scenario, begin).expect_err("the calls end in an error");
    member.say("heard", format!("{error:#?} {error}"));
    match scenario.after.as_str() {
        "leave" => drop(communicator),
        _ => {
            let communicator = communicator.rebuild().expect("the others come, too");
            member.say("rebuilt", communicator.world_size());
            verify_all(&communicator, scenario.provider).expect("nobody else fails");
            let leaks = communicator.finalize().expect("nobody else fails");
            assert!(leaks.is_empty(), "{leaks:?}");
        }
    }
    if !member.setting.is_device() {
        // A real driver may keep descriptors while the process lives.
        assert_eq!(resources().0, before.0, "descriptors");
    }
    member.say("done", "");
}

/// Returns the number of runs of the large test. The issue asks for 200 on the host and 20 on GPUs.
fn runs(setting: Setting) -> u64 {
    match (setting.is_device(), full(), system_driver()) {
        (false, true, _) => 200,
        (true, _, true) => 20,
        (true, true, false) => 40,
        (false, false, _) => 10,
        (true, false, false) => 5,
    }
}

#[apply(on_each_backend)]
fn a_rank_killed_in_any_collective_is_heard_of_within_a_second_and_the_rest_leaves_or_rebuilds(
    setting: Setting,
    // Shares of the runs, which run concurrently.
    #[values(0, 1, 2, 3, 4)] share: u64,
) {
    for run in (share..runs(setting)).step_by(5) {
        kill_one(setting, call_of(run), run, false);
    }
}

/// Survivors then wait in the steps of both lanes, on internal side streams.
#[apply(on_each_device)]
fn a_rank_killed_between_the_steps_of_copy_engines_is_heard_of_as_well(setting: Setting) {
    for run in runs_of_a_kind(setting, 4) {
        kill_one(setting, Call::ByCopyEngine, run, false);
    }
}

/// The sample of the large test does not reach this call.
#[apply(on_each_backend)]
fn a_rank_killed_in_an_all_reduce_with_a_norm_is_heard_of_as_well(setting: Setting) {
    // Ranks leave after the first two, and rebuild after the others.
    for run in [0, 2, 5, 6] {
        kill_one(setting, Call::Norm, run, false);
    }
}

/// Collectives by NCCL or RCCL: the fake, or the machine's own library.
#[apply(on_each_device)]
fn a_rank_killed_in_a_collective_of_the_vendors_library_is_heard_of_as_well(
    setting: Setting,
    #[values(0, 1, 2, 3, 4)] share: u64,
) {
    let mut runs = runs_of_a_kind(setting, 5);
    runs.retain(|run| run % 5 == share);
    if runs.is_empty() {
        return crate::built::skipped("SYMMEM_TESTS=all runs this share");
    }
    for run in runs {
        kill_one(setting, call_of(run), run, true);
    }
}

/// Returns the runs for one kind of collective: the first `few` of the sample. HIP, whose waits the large test covers,
/// gets one, an all-reduce.
fn runs_of_a_kind(setting: Setting, few: u64) -> Vec<u64> {
    match setting {
        _ if full() || system_driver() => (0..20).collect(),
        Setting::Hip => vec![Call::AllReduce as u64],
        _ => (0..few).collect(),
    }
}

/// Returns the call of a run, so that any number of runs covers the calls in turn.
fn call_of(run: u64) -> Call {
    Call::ALL[run as usize % Call::ALL.len()]
}

/// Kills a rank in the middle of a call. The run's number determines rank and time.
fn kill_one(setting: Setting, call: Call, run: u64, vendor: bool) {
    let mut random = Random::new(run);
    let how = ["eager", "replayed"][random.below(2) as usize];
    // A small part goes in packets, a large one between barriers.
    let part = [7, 20_000][random.below(2) as usize];
    let after = ["leave", "rebuild"][(run / 5 % 2) as usize];
    let victim = random.below(WORLD as u64) as usize;
    let pause = Duration::from_micros(random.below(30_000));
    let whose = if vendor { " vendor" } else { "" };
    let scenario = format!("{call:?} {how} {part} {after}{whose}");
    println!("{setting:?} run {run}: {scenario}, rank {victim} is killed after {pause:?}");
    let before = leftovers();
    let memory = free_memory(setting);
    let mut plan = Plan::new("collectives/loop", WORLD, setting).argument(&scenario);
    if vendor {
        // Multicast must not be used, by NCCL either.
        plan = plan.env("NCCL_NVLS_ENABLE", 0);
    }
    if vendor && let Some(libraries) = setting.libraries_with_collectives() {
        plan = plan.env("SYMMEM_LIBRARY_PATH", libraries.display());
    }
    let mut world = plan.start();
    let processes: Vec<u32> = world.ranks.iter().map(|rank| rank.process()).collect();
    world.ready().go();
    std::thread::sleep(pause);
    let killed = world.ranks[victim].kill();
    let dead = world.ranks.remove(victim);
    for rank in &mut world.ranks {
        let (heard, error) = rank.expect("heard");
        let detection = heard.saturating_duration_since(killed);
        println!("rank {} heard after {detection:?}", rank.number);
        assert!(
            error.contains("PeerDied") && error.contains(&format!("peer: {victim}")),
            "{scenario}: {error}"
        );
        assert!(
            detection < crate::support::detection(),
            "{scenario}: detected after {detection:?}"
        );
    }
    for rank in &mut world.ranks {
        if after == "rebuild" {
            assert_eq!(rank.expect("rebuilt").1, (WORLD - 1).to_string());
        }
        rank.expect("done");
    }
    world.ends_well();
    drop(dead);
    memory_is_back(setting, &memory);
    let new: Vec<String> = leftovers()
        .into_iter()
        .filter(|name| !before.contains(name))
        // Other programs use the machine too; this test's files have its processes' numbers in their names.
        .filter(|name| processes.iter().any(|pid| name.contains(&pid.to_string())))
        .collect();
    assert!(new.is_empty(), "{scenario}: left behind {new:?}");
}

/// Returns the free bytes of each rank's device. Returns nothing over a fake driver, which keeps its own account. The
/// numbers are useful only if no other test runs: `--test-threads=1`.
fn free_memory(setting: Setting) -> Vec<u64> {
    if !(setting.is_device() && system_driver()) {
        return Vec::new();
    }
    let mut world = Plan::new("collectives/free", WORLD, setting).start();
    let free = world.expect("free");
    world.ends_well();
    let bytes = free.iter().map(|text| text.parse().expect("bytes"));
    bytes.collect()
}

/// Waits until as much memory is free as before, or fails. A driver may free memory after the process has ended.
fn memory_is_back(setting: Setting, before: &[u64]) {
    /// Bytes that a driver may keep for itself.
    const SLACK: u64 = 16 << 20;
    let until = Instant::now() + Duration::from_secs(5);
    loop {
        let now = free_memory(setting);
        let lost = |(before, now): (&u64, &u64)| *now + SLACK < *before;
        if !before.iter().zip(&now).any(lost) {
            return;
        }
        assert!(
            Instant::now() < until,
            "free before {before:?}, now {now:?}"
        );
    }
}

/// Returns the names in the directories where shared memory leaves files.
fn leftovers() -> Vec<String> {
    let entries = ["/tmp", "/dev/shm"].into_iter().flat_map(|directory| {
        let entries = std::fs::read_dir(directory).expect("a directory");
        entries.filter_map(|entry| Some(entry.ok()?.path().to_string_lossy().into_owned()))
    });
    entries.collect()
}

/// Whether a case of the matrix belongs to the sample, which is the same in every run. It is small for backends that
/// must start a driver.
fn sampled(setting: Setting, call: Call, replayed: bool) -> bool {
    let number = call as usize;
    let few = !setting.is_device() || number.is_multiple_of(4) || call == Call::ByCopyEngine;
    full() || few && number.is_multiple_of(2) == replayed
}

#[apply(on_each_backend)]
fn a_rank_stopped_in_any_collective_is_named_at_the_deadline(
    setting: Setting,
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)] call: usize,
    #[values(false, true)] replayed: bool,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let call = Call::ALL[call];
    if !sampled(setting, call, replayed) {
        return;
    }
    let deadline = Duration::from_millis(800);
    // Both other ranks wait for the middle one, whatever the call is.
    let victim = 1;
    let how = if replayed { "replayed" } else { "eager" };
    let mut world = Plan::new("collectives/loop", WORLD, setting)
        .argument(format!("{call:?} {how} 1000 rebuild"))
        .deadline(deadline)
        .start();
    world.ready().go();
    std::thread::sleep(Duration::from_millis(20));
    let stopped = world.ranks[victim].stop();
    let (mut timeouts, mut named) = (0, 0);
    for rank in world.ranks.iter_mut().filter(|rank| rank.number != victim) {
        let (heard, error) = rank.expect("heard");
        let waited = heard.saturating_duration_since(stopped);
        println!("{setting:?} {call:?} {how}: {error} after {waited:?}");
        // The first rank that gives up names the peer and the call; the other may learn it from that rank.
        let timeout = error.contains("Timeout");
        timeouts += usize::from(timeout);
        assert!(timeout || error.contains("PeerFailed"), "{error}");
        let is_named = error.contains(&format!("rank {victim}"));
        named += usize::from(is_named);
        // In step-by-step algorithms, a rank may wait for another that waits for the victim.
        assert!(is_named || call == Call::ByCopyEngine, "{error}");
        // There is no lower bound: the wait may have begun long before the stop.
        let most = deadline + crate::support::SLACK;
        assert!(waited < most, "after {waited:?}: {error}");
    }
    assert!(timeouts > 0, "no rank timed out");
    assert!(named > 0, "no rank named the victim");
    // The victim was only slow, so all three continue together.
    world.ranks[victim].resume();
    world.ranks[victim].expect("heard");
    for rank in &mut world.ranks {
        assert_eq!(rank.expect("rebuilt").1, WORLD.to_string());
        rank.expect("done");
    }
    world.ends_well();
}

#[apply(on_each_backend)]
fn in_a_ring_the_stopped_rank_is_named_though_most_wait_for_others(
    setting: Setting,
    #[values("eager", "replayed")] how: &str,
) {
    if crate::built::amount::sampled_out(3) {
        return;
    }
    if setting.is_device() && system_driver() {
        // Five ranks would share devices, and one rank's waiting kernels can keep another's from running.
        return;
    }
    let (size, victim) = (5, 3);
    let mut world = Plan::new("collectives/loop", size, setting)
        .argument(format!("Exchange {how} 1000 leave"))
        .deadline(Duration::from_millis(1200))
        .start();
    world.ready().go();
    std::thread::sleep(Duration::from_millis(20));
    world.ranks[victim].stop();
    let mut timeouts = 0;
    for rank in world.ranks.iter_mut().filter(|rank| rank.number != victim) {
        let (_, error) = rank.expect("heard");
        timeouts += usize::from(error.contains("Timeout"));
        assert!(error.contains(&format!("rank {victim}")), "{error}");
    }
    assert!(timeouts > 0, "no rank timed out");
    world.ranks[victim].resume();
    world.ranks[victim].expect("heard");
    world.expect("done");
    world.ends_well();
}

#[apply(on_each_backend)]
fn an_abort_ends_any_collective_everywhere_and_all_go_on(
    setting: Setting,
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14)] call: usize,
    #[values(false, true)] replayed: bool,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let call = Call::ALL[call];
    // This test takes the other half of the sample.
    if !full() && !sampled(setting, call, !replayed) {
        return;
    }
    let how = if replayed { "replayed" } else { "eager" };
    let mut world = Plan::new("collectives/loop", WORLD, setting)
        .argument(format!("{call:?} {how} 1000 abort"))
        .start();
    world.ready();
    world.ranks[0].go();
    world.ranks[2].go();
    std::thread::sleep(Duration::from_millis(20));
    world.ranks[1].go();
    let (aborted, _) = world.ranks[1].expect("aborted");
    for rank in &mut world.ranks {
        let (heard, error) = rank.expect("heard");
        if rank.number == 1 {
            assert!(error.contains("Aborted { rank: 1 }"), "{error}");
        } else {
            assert!(
                error.contains("PeerFailed") && error.contains("peer: 1"),
                "{error}"
            );
            let after = heard.saturating_duration_since(aborted);
            assert!(after < crate::support::SLACK, "took {after:?}");
        }
    }
    for rank in &mut world.ranks {
        assert_eq!(rank.expect("rebuilt").1, WORLD.to_string());
        rank.expect("done");
    }
    world.ends_well();
}
