//! Every call of the driver fails once, on one rank: it is named there, told elsewhere, and nothing
//! is left behind.

use crate::support::{Member, Plan, Setting, full};
use rstest::rstest;
use std::time::Duration;
use symmem::{Graph, Result, SignalPlacement};

const WORLD: usize = 2;
/// The rank whose driver fails.
const VICTIM: usize = 1;

pub fn role(_role: &str, member: &Member) {
    member.tell("result", &everything(member));
}

/// Some of everything.
fn everything(member: &Member) -> Result<()> {
    let communicator = member.builder().build()?;
    let peer = 1 - member.rank;
    let stream = communicator.stream()?;
    let buffer = communicator.allocate::<u32>(&[4096])?;
    let other = communicator.allocate::<u32>(&[64])?;
    buffer.write(&stream, 0, &[member.rank as u32; 2048])?;
    stream.put_signal(peer, buffer.range(2048, 2048)?, buffer.range(0, 2048)?, 0)?;
    stream.wait_signal(peer, 0)?;
    stream.get(peer, other.all(), buffer.range(0, 64)?)?;
    stream.barrier()?;
    let on_device = communicator.signal_placement() == SignalPlacement::DEVICE;
    let graph = Graph::capture(&stream, |stream| {
        stream.put(peer, other.range(0, 32)?, other.range(32, 32)?)?;
        if on_device {
            stream.put_signal(peer, other.range(0, 8)?, other.range(32, 8)?, 1)?;
            stream.wait_signal(peer, 1)?;
        }
        stream.barrier()
    })?;
    graph.launch(&stream)?;
    graph.launch(&stream)?;
    stream.synchronize()?;
    let mut seen = [0; 2048];
    buffer.read(&stream, 2048, &mut seen)?;
    assert_eq!(seen, [peer as u32; 2048]);
    communicator.host_barrier()?;
    drop(graph);
    buffer.free()?;
    drop(other);
    drop(stream);
    communicator.finalize().map(drop)
}

fn plan(setting: Setting) -> Plan {
    let deadline = Duration::from_secs(10);
    Plan::new("injection/everything", WORLD, setting)
        .deadline(deadline)
        .setup_deadline(deadline)
}

/// Fails the `number`th call; the function's name, if it came to that call.
fn fail(setting: Setting, number: u64) -> std::result::Result<Option<String>, String> {
    let trace =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(crate::support::fresh_name("trace"));
    let mut world = plan(setting)
        .env("FAKE_CUDA_FAIL", format!("#{number}"))
        .env("FAKE_CUDA_FAIL_RANK", VICTIM)
        .env_of(VICTIM, "FAKE_CUDA_TRACE", trace.display())
        .start();
    let results = world.expect("result");
    for rank in &mut world.ranks {
        rank.ends_well();
    }
    let traced = std::fs::read_to_string(&trace).unwrap_or_default();
    let _ = std::fs::remove_file(&trace);
    // process thread #number function = code
    let failed = traced.lines().find(|line| line.ends_with(" = 999"));
    let Some(function) = failed.and_then(|line| line.split(' ').nth(3)) else {
        return Ok(None);
    };
    let report = world.report();
    let clean = report.lines().all(|line| line.starts_with("process "));
    let problem = |what: &str| {
        Err(format!(
            "{setting:?}, call {number}, {function}: {what}\n  {results:?}\n{report}"
        ))
    };
    if !clean {
        return problem("something is left behind");
    }
    let (mine, theirs) = (&results[VICTIM], &results[1 - VICTIM]);
    // A call that gives something back is logged, and the rest goes on.
    if mine == "ok" {
        return if theirs == "ok" {
            Ok(Some(function.into()))
        } else {
            problem("one goes on")
        };
    }
    if !mine.contains(function) {
        return problem("the error does not name the call");
    }
    // What fails before the ranks have met is found by the rank alone; else the others are told.
    let told = ["PeerFailed", "PeerDied", "PeerLeft", "Timeout"];
    if theirs != "ok" && !told.iter().any(|word| theirs.contains(word)) {
        return problem("the other rank is not told");
    }
    if theirs == "ok" {
        return problem("the other rank does not notice");
    }
    Ok(Some(function.into()))
}

#[rstest]
fn every_failing_call_is_named_told_and_leaves_nothing(
    #[values(Setting::Cuda, Setting::CudaWithHostSignals, Setting::CudaLegacy)] setting: Setting,
) {
    let mut clean = plan(setting).start();
    assert_eq!(clean.expect("result"), ["ok"; WORLD]);
    clean.ends_well();
    let calls = clean.calls_of(VICTIM);
    // A prime step, another start for each setting: together they see most of the calls.
    let step = if full() { 1 } else { calls / 23 | 1 };
    let mut numbers = (1 + setting as u64 * 3 % step..=calls).step_by(step as usize);
    let (mut functions, mut problems) = (std::collections::BTreeSet::new(), Vec::new());
    let (mut runs, mut reached) = (0, 0);
    for number in &mut numbers {
        runs += 1;
        match fail(setting, number) {
            Ok(function) => reached += usize::from(function.map(|f| functions.insert(f)).is_some()),
            Err(problem) => problems.push(problem),
        }
    }
    println!("{setting:?}: {reached} of {calls} calls failed in {runs} runs: {functions:?}");
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
    assert!(reached * 10 >= runs * 8, "most numbers name a call");
}
