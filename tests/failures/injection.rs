//! Every call of the driver fails once, on one rank. That rank's error names the call, the other ranks get an error
//! too, and nothing is left behind.

use crate::support::{Member, Plan, Setting, fresh_name, full};
use rstest::rstest;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use symmem::{ReduceOp, Result, SignalPlacement};

const WORLD: usize = 2;
/// The rank whose driver fails.
const VICTIM: usize = 1;

pub fn role(_role: &str, member: &Member) {
    member.tell("result", &everything(member));
}

/// Uses a part of every feature.
fn everything(member: &Member) -> Result<()> {
    let communicator = member.builder().build()?;
    let peer = 1 - member.rank;
    let mut stream = communicator.stream()?;
    let buffer = communicator.allocate::<u32>(&[4096])?;
    let other = communicator.allocate::<u32>(&[64])?;
    let sums = communicator.allocate::<u32>(&[32])?;
    buffer.write(&stream, 0, &[member.rank as u32; 2048])?;
    stream.put_signal(peer, buffer.slice(2048..4096)?, buffer.slice(..2048)?, 0)?;
    stream.wait_signal(peer, 0)?;
    stream.get(peer, other.all(), buffer.slice(..64)?)?;
    stream.barrier()?;
    stream.all_reduce(sums.all(), other.slice(32..64)?, ReduceOp::Sum)?;
    let on_device = communicator.signal_placement() == SignalPlacement::Device;
    let graph = stream.capture(|queue| {
        queue.put(peer, other.slice(..32)?, other.slice(32..64)?)?;
        if on_device {
            queue.put_signal(peer, other.slice(..8)?, other.slice(32..40)?, 1)?;
            queue.wait_signal(peer, 1)?;
        }
        queue.all_reduce(sums.all(), other.slice(32..64)?, ReduceOp::Sum)?;
        queue.barrier()
    })?;
    stream.launch_graph(&graph)?;
    stream.launch_graph(&graph)?;
    stream.synchronize()?;
    let mut seen = [0; 2048];
    buffer.read(&stream, 2048, &mut seen)?;
    assert_eq!(seen, [peer as u32; 2048]);
    let mut sum = [0; 32];
    sums.read(&stream, 0, &mut sum)?;
    assert_eq!(sum, [1; 32]);
    communicator.host_barrier()?;
    drop(graph);
    buffer.free()?;
    drop((other, sums));
    drop(stream);
    communicator.finalize().map(drop)
}

fn plan(setting: Setting) -> Plan {
    let deadline = Duration::from_secs(3);
    Plan::new("injection/everything", WORLD, setting)
        .deadline(deadline)
        .setup_deadline(deadline)
}

/// A call of the driver: a function, and the number of the call.
type Call = (String, usize);

/// Functions that the host polls, without the vendor's prefix. The number of calls depends on the machine.
const POLLED: [&str; 5] = [
    "StreamQuery",
    "StreamIsCapturing",
    "CtxGetCurrent",
    "GetDevice",
    "SetDevice",
];
/// How many calls of those are tested: the first ones, which every run makes.
const POLLS: usize = 60;
/// Functions that only describe an error.
const DESCRIBES: [&str; 3] = ["GetErrorName", "GetErrorString", "GetLastError"];

fn trace_path() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(fresh_name("trace"))
}

/// Returns the functions that a trace lists, and the result of each.
fn read_trace(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let _ = std::fs::remove_file(path);
    // process thread #number function = code
    let call = |line: &str| {
        let mut words = line.split(' ').skip(3);
        Some((words.next()?.to_owned(), words.nth(1)?.to_owned()))
    };
    text.lines().filter_map(call).collect()
}

/// Returns every call that the victim makes if nothing fails.
fn calls(setting: Setting) -> Vec<Call> {
    let trace = trace_path();
    let plan = plan(setting).env_of(VICTIM, "FAKE_DEVICE_TRACE", trace.display());
    let mut clean = plan.start();
    assert_eq!(clean.expect("result"), ["ok"; WORLD]);
    clean.ends_well();
    let mut counts = BTreeMap::new();
    let mut calls = Vec::new();
    for (function, _) in read_trace(&trace) {
        let count = counts.entry(function.clone()).or_insert(0);
        *count += 1;
        let name = function.trim_start_matches("cu").trim_start_matches("hip");
        let uncounted = DESCRIBES.contains(&name);
        let polled = POLLED.contains(&name) && *count > POLLS;
        if !uncounted && !polled {
            calls.push((function, *count));
        }
    }
    calls
}

/// Fails one call, and returns what is wrong with the outcome.
fn fail(setting: Setting, (function, number): &Call) -> std::result::Result<(), String> {
    let trace = trace_path();
    let mut world = plan(setting)
        .env("FAKE_DEVICE_FAIL", format!("{function}:{number}"))
        .env("FAKE_DEVICE_FAIL_RANK", VICTIM)
        .env_of(VICTIM, "FAKE_DEVICE_TRACE", trace.display())
        .start();
    let results = world.expect("result");
    for rank in &mut world.ranks {
        rank.ends_well();
    }
    let report = world.report();
    let problem = |what: &str| {
        Err(format!(
            "{setting:?}, {function} number {number}: {what}\n  {results:?}\n{report}"
        ))
    };
    if !read_trace(&trace).iter().any(|(_, code)| code == "999") {
        return problem("the call was not made");
    }
    if !report.lines().all(|line| line.starts_with("process ")) {
        return problem("something is left behind");
    }
    let (mine, theirs) = (results[VICTIM].as_str(), results[1 - VICTIM].as_str());
    // A rank that fails frees its memory, perhaps before the other rank has opened it.
    let unreachable = format!("PeerUnreachable {{ rank: {}, peer: {VICTIM}", 1 - VICTIM);
    let told = ["PeerFailed", "PeerDied", "PeerLeft", &unreachable]
        .iter()
        .any(|word| theirs.contains(word));
    match (mine, theirs) {
        // A failed release is logged, and everything else continues.
        ("ok", "ok") => Ok(()),
        // If the driver fails before the ranks meet, the backend is unavailable and the rank never arrives.
        _ if mine.starts_with("NoBackend") && theirs.contains("Timeout") => Ok(()),
        _ if !mine.contains(function.as_str()) => problem("the error does not name the call"),
        _ if !told => problem("the other rank gets no error"),
        _ => Ok(()),
    }
}

#[rstest]
fn every_failing_call_is_named_told_and_leaves_nothing(
    #[values(
        Setting::Cuda,
        Setting::CudaWithHostSignals,
        Setting::CudaLegacy,
        Setting::Hip,
        Setting::HipWithHostSignals,
        Setting::HipVmm
    )]
    setting: Setting,
) {
    if crate::built::amount::sampled_out(3) {
        return;
    }
    let calls = calls(setting);
    // Each setting starts at another call, so that together they cover more.
    let step = if full() { 1 } else { (calls.len() / 16) | 1 };
    let sample = calls.iter().skip(setting as usize * 5 % step).step_by(step);
    let (mut functions, mut problems, mut runs) = (BTreeSet::new(), Vec::new(), 0);
    for call in sample {
        runs += 1;
        functions.insert(&call.0);
        problems.extend(fail(setting, call).err());
    }
    println!(
        "{setting:?}: {runs} of {} calls failed in turn, of {functions:?}",
        calls.len()
    );
    assert!(
        problems.is_empty(),
        "{} problems:\n{}",
        problems.len(),
        problems.join("\n")
    );
}
