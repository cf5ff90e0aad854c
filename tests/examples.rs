//! The examples run, as a user would start them: a process for each rank.

use std::path::PathBuf;
use std::process::{Command, Stdio};

/// `cargo test` builds the examples beside the tests.
fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: cargo build --examples",
        path.display()
    );
    path
}

/// What each rank of a world wrote, in rank order.
fn run(name: &str, world: u32) -> Vec<String> {
    let job = format!("test-{name}-{world}-{}", std::process::id());
    let ranks: Vec<_> = (0..world)
        .map(|rank| {
            Command::new(example(name))
                .env("SYMMEM_BACKEND", "host")
                .env("SYMMEM_RANK", rank.to_string())
                .env("SYMMEM_WORLD", world.to_string())
                .env("SYMMEM_JOB", &job)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    ranks
        .into_iter()
        .map(|rank| {
            let output = rank.wait_with_output().unwrap();
            assert!(output.status.success(), "{name}: {}", output.status);
            String::from_utf8(output.stdout).unwrap()
        })
        .collect()
}

#[test]
fn ring_hands_every_message_on() {
    for world in [1, 2, 3, 4] {
        for (rank, text) in run("ring", world).iter().enumerate() {
            // Eleven steps: one eager, ten in the graph.
            let origin = (rank as u32 + 11 * (world - 1)) % world;
            let expected =
                format!("rank {rank} of {world}: 10 laps, now holding what rank {origin} sent");
            assert_eq!(text.trim_end(), expected);
        }
    }
}

#[test]
fn threads_gather_in_one_process() {
    let text = run("threads", 1).concat();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<_> = (0..4)
        .map(|rank| format!("rank {rank} of 4: gathered 4000 elements"))
        .collect();
    assert_eq!(lines, expected);
}

#[test]
fn a_stream_of_the_application_carries_transfers() {
    for (rank, text) in run("own_stream", 2).iter().enumerate() {
        assert_eq!(
            text.trim_end(),
            format!("rank {rank} of 2: received from rank {}", 1 - rank)
        );
    }
}
