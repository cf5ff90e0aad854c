//! In a mesh with a link for each pair of devices, copies to all peers are outstanding at once; behind a switch, one at
//! a time. The fake runtimes' trace of copies shows which stream began and ended which copy.

#[allow(dead_code, reason = "these tests use the fake runtimes only")]
mod support;

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::hip::{Release, fake_hip};
use symmem::backends::Selection;
use symmem::{Algorithm, Builder, CollectiveOptions, LaunchEnvironment, Result};

const WORLD: usize = 4;
/// Bytes of a part, large enough for side streams.
const PART: usize = 1 << 20;

#[test]
fn in_a_mesh_as_many_copies_are_outstanding_as_there_are_peers_each_on_a_stream_of_its_own() {
    let trace = gathers("hip", fake_hip(Release::Seven));
    let peers = WORLD - 1;
    for rank in 0..WORLD {
        let copies = outstanding(&trace, rank);
        let most = copies.iter().max_by_key(|at_once| at_once.len()).unwrap();
        let streams: HashSet<&String> = most.iter().map(|(stream, _)| stream).collect();
        let reached: HashSet<&String> = most.iter().map(|(_, peer)| peer).collect();
        assert_eq!(
            (most.len(), streams.len(), reached.len()),
            (peers, peers, peers),
            "copies, streams and peers of rank {rank} of {WORLD}:\n{trace}"
        );
    }
}

#[test]
fn behind_a_switch_a_rank_copies_to_one_peer_at_a_time() {
    let trace = gathers("cuda", support::fake_driver());
    for rank in 0..WORLD {
        for at_once in outstanding(&trace, rank) {
            let peers: HashSet<&String> = at_once.iter().map(|(_, peer)| peer).collect();
            // The lanes are half a step apart, so the second lane may still copy to the previous peer.
            assert!(peers.len() <= 2, "rank {rank} of {WORLD}:\n{trace}");
        }
    }
}

/// Returns, after each line of the trace, the streams and target devices of copies from `rank`'s device.
fn outstanding(trace: &str, rank: usize) -> Vec<HashSet<(String, String)>> {
    let (mut now, mut seen) = (HashSet::new(), Vec::new());
    for line in trace.lines() {
        // process stream begin|end from>to bytes …
        let words: Vec<&str> = line.split(' ').collect();
        let [_, stream, what, devices, bytes, ..] = words[..] else {
            panic!("{line}");
        };
        let Some((from, to)) = devices.split_once('>') else {
            panic!("{line}");
        };
        // Smaller copies belong to the ranks' setup.
        let large = bytes.parse::<usize>().is_ok_and(|bytes| bytes >= PART / 8);
        if from != rank.to_string() || from == to || to == "host" || !large {
            continue;
        }
        let copy = (stream.to_owned(), to.to_owned());
        match what {
            "begin" => assert!(now.insert(copy), "{line}"),
            _ => assert!(now.remove(&copy), "{line}"),
        }
        seen.push(now.clone());
    }
    assert!(!seen.is_empty(), "rank {rank} copied nothing:\n{trace}");
    seen
}

/// Runs an all-gather by copy engine in a child process, because an environment variable selects the runtime. Returns
/// the trace of its copies, each of which lasts a while.
fn gathers(backend: &str, libraries: &Path) -> String {
    let trace = format!("{}/fanout-{backend}", env!("CARGO_TARGET_TMPDIR"));
    let _ = std::fs::remove_file(&trace);
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["ranks", "--exact", "--ignored", "--nocapture"])
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("FAKE_DEVICE_COUNT", WORLD.to_string())
        .env("FAKE_DEVICE_COPIES", &trace)
        .env("FAKE_DEVICE_COPY_US", "150000")
        .env("FANOUT_BACKEND", backend)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{backend}: {text}");
    std::fs::read_to_string(&trace).unwrap()
}

#[test]
#[ignore = "run in a child process by the other tests"]
fn ranks() {
    let backend = std::env::var("FANOUT_BACKEND").expect("set by `gathers`");
    let job = format!("fanout-{}", std::process::id());
    std::thread::scope(|scope| {
        for rank in 0..WORLD as u32 {
            let (job, backend) = (job.clone(), backend.clone());
            scope.spawn(move || {
                let communicator = Builder::new()
                    .launch(LaunchEnvironment::local(rank, WORLD as u32, job).unwrap())
                    .backend(Selection::Named(backend))
                    .deadline(Duration::from_secs(60))
                    .build()
                    .unwrap();
                gather(&communicator).unwrap();
                assert!(communicator.finalize().unwrap().is_empty());
            });
        }
    });
}

fn gather(communicator: &symmem::Communicator) -> Result<()> {
    let rank = communicator.rank();
    let source = communicator.allocate::<u8>(&[PART])?;
    let destination = communicator.allocate::<u8>(&[WORLD * PART])?;
    let stream = communicator.stream()?;
    source.write(&stream, 0, &vec![rank as u8 + 1; PART])?;
    let options = CollectiveOptions::new().algorithm(Algorithm::CopyEngine);
    stream
        .with(&options)
        .all_gather(destination.all(), source.all())?;
    let mut bytes = vec![0; WORLD * PART];
    destination.read(&stream, 0, &mut bytes)?;
    for (peer, part) in bytes.chunks(PART).enumerate() {
        assert!(part.iter().all(|&byte| usize::from(byte) == peer + 1));
    }
    source.free()?;
    destination.free()
}
