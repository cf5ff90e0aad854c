//! Ranks that die or fall silent: every rank of every node learns which.

use super::support::{Member, Plan};
use rstest::rstest;
use rustix::process::Signal;
use std::time::{Duration, Instant};
use symmem::{CollectiveOptions, ErrorKind};

const SILENCE: Duration = Duration::from_secs(1);

/// A machine that runs many tests may keep a process waiting.
const SLACK: Duration = Duration::from_secs(8);

#[rstest]
#[case::rank_0(0)]
#[case::of_the_first_node(1)]
#[case::lowest_of_its_node(2)]
#[case::of_the_last_node(3)]
fn a_killed_rank_is_named_on_both_nodes_within_a_second(
    #[case] victim: usize,
    #[values("loss/idle", "loss/waiting", "loss/host")] role: &'static str,
) {
    let mut job = Plan::new(role, &["a", "a", "b", "b"]).start();
    job.ready();
    job.go();
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    job.ranks[victim].signal(Signal::KILL);
    for rank in (0..4).filter(|&rank| rank != victim) {
        let (text, at) = job.ranks[rank].hear("error");
        assert_eq!(text, format!("PeerDied {victim}"), "rank {rank}");
        let took = at - start;
        assert!(
            took < Duration::from_secs(1) + SLACK / 4,
            "rank {rank}: {took:?}"
        );
    }
}

#[rstest]
#[case::with_rank_0(&[0, 1], &[2, 3])]
#[case::without_rank_0(&[2, 3], &[0, 1])]
fn a_node_that_falls_silent_ends_the_others_within_the_bound(
    #[case] silent: &[usize],
    #[case] others: &[usize],
    #[values("loss/idle", "loss/waiting", "loss/host")] role: &'static str,
) {
    let mut job = Plan::new(role, &["a", "a", "b", "b"])
        .env("SYMMEM_SILENCE", SILENCE.as_secs_f64())
        .start();
    job.ready();
    job.go();
    std::thread::sleep(Duration::from_millis(300));
    let start = Instant::now();
    for &rank in silent {
        job.ranks[rank].signal(Signal::STOP);
    }
    for &rank in others {
        let (text, at) = job.ranks[rank].hear("error");
        let named = silent.iter().any(|peer| text == format!("PeerDied {peer}"));
        assert!(named, "rank {rank}: {text}");
        let took = at - start;
        assert!(
            took > SILENCE / 2 && took < SILENCE + SLACK,
            "rank {rank}: {took:?}"
        );
    }
}

#[test]
fn ranks_that_only_compute_are_not_taken_for_dead() {
    let mut job = Plan::new("loss/busy", &["a", "b"])
        .env("SYMMEM_SILENCE", 0.5)
        .start();
    job.ready();
    job.go();
    job.end();
}

#[test]
fn a_rank_that_fails_is_named_on_both_nodes() {
    let mut job = Plan::new("loss/abort", &["a", "a", "b", "b"]).start();
    job.ready();
    job.go();
    for rank in 0..3 {
        assert_eq!(
            job.ranks[rank].hear("error").0,
            "PeerFailed 3",
            "rank {rank}"
        );
    }
    job.end();
}

pub fn role(role: &str, member: &Member) {
    let communicator = member.join();
    let color = Some(communicator.node() as u32);
    let group = communicator.split(color, 0).unwrap().unwrap();
    let stream = communicator.stream().unwrap();
    let options = CollectiveOptions::new().group(Some(&group));
    member.ready();
    let result = match role {
        "idle" => loop {
            std::thread::sleep(Duration::from_millis(5));
            if let error @ Err(_) = communicator.check() {
                break error;
            }
        },
        // The next of the node never signals.
        "waiting" => {
            let next = group.members()[(group.rank() + 1) % 2];
            stream
                .wait_signal(next, 0)
                .and_then(|()| stream.synchronize())
        }
        "host" => loop {
            // Rank 1 makes the others wait.
            if member.rank == 1 {
                std::thread::sleep(Duration::from_millis(20));
            }
            if let error @ Err(_) = communicator.host_barrier() {
                break error;
            }
        },
        "busy" => {
            std::thread::sleep(Duration::from_secs(2));
            stream.with(&options).barrier().unwrap();
            stream.synchronize().unwrap();
            communicator.host_barrier().unwrap();
            drop(group);
            communicator.finalize().unwrap();
            return;
        }
        "abort" => {
            if member.rank == 3 {
                communicator.abort();
                return;
            }
            communicator.host_barrier()
        }
        _ => panic!("no such role: {role}"),
    };
    let error = result.unwrap_err();
    let peer = error
        .peer()
        .map_or("nobody".into(), |peer| peer.to_string());
    member.say("error", format!("{:?} {peer}", error.kind()));
    if error.kind() == ErrorKind::Timeout {
        member.say("text", error);
    }
}
