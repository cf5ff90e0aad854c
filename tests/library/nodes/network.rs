//! One-sided operations between nodes, over UCX's TCP.
//!
//! Without UCX the tests are skipped by name, except the one that takes it away.

use super::support::{Backend, Member, Plan};
use rstest::rstest;
use std::time::Duration;
use symmem::{Communicator, Condition, ErrorKind, Result};

/// Elements of the buffers.
const LENGTH: usize = 300_000;
const POISON: u32 = 0xdead_beef;

/// Plans a job whose nodes are joined by TCP alone; `None` without UCX.
fn plan(role: &'static str, nodes: &[&'static str]) -> Option<Plan> {
    let found = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ]
    .iter()
    .any(|folder| std::path::Path::new(folder).join("libucp.so.0").exists());
    if !found && std::env::var_os("SYMMEM_UCX_LIBRARY").is_none() {
        eprintln!("skipped: UCX (libucp.so.0) is not installed");
        return None;
    }
    Some(
        Plan::new(role, nodes)
            .env("UCX_TLS", "tcp,self")
            .env("UCX_NET_DEVICES", "lo"),
    )
}

#[rstest]
#[case::four_nodes(&["a", "b", "c", "d"])]
#[case::two_nodes(&["a", "a", "b", "b"])]
#[case::turn_by_turn(&["a", "b", "a", "b"])]
#[case::three_and_one(&["a", "a", "a", "b"])]
fn every_rank_reaches_every_rank_with_the_guarantees_of_one_node(
    #[case] nodes: &[&'static str],
    #[values(
        "network/transfers",
        "network/signals",
        "network/atomics",
        "network/graphs",
        "network/release"
    )]
    role: &'static str,
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    if let Some(plan) = plan(role, nodes) {
        plan.on(backend).start().end();
    }
}

#[rstest]
fn a_world_over_nodes_opens_and_meets_on_every_backend(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    if let Some(plan) = plan("network/meet", &["a", "a", "b", "b"]) {
        plan.on(backend).start().end();
    }
}

#[test]
fn a_rank_killed_in_the_middle_of_a_put_is_named_within_a_second() {
    let Some(plan) = plan("network/kill", &["a", "a", "b", "b"]) else {
        return;
    };
    let mut job = plan.start();
    job.ready();
    job.go();
    // Puts are under way.
    std::thread::sleep(Duration::from_millis(200));
    let killed = std::time::Instant::now();
    job.ranks[2].signal(rustix::process::Signal::KILL);
    for rank in [0, 1, 3] {
        let (text, at) = job.ranks[rank].hear("error");
        assert!(text.contains("rank 2"), "rank {rank}: {text}");
        let after = at.saturating_duration_since(killed);
        assert!(
            after < Duration::from_secs(1),
            "rank {rank}: {after:?}: {text}"
        );
    }
}

#[test]
fn without_ucx_every_rank_has_one_error_that_says_what_to_install() {
    let mut job = Plan::new("network/absent", &["a", "b"])
        .env("SYMMEM_UCX_LIBRARY", "/nonexistent")
        .start();
    for rank in &mut job.ranks {
        let (text, _) = rank.hear("error");
        assert!(text.contains("/nonexistent"), "{text}");
        assert!(text.contains("UCX"), "{text}");
    }
}

pub fn role(role: &str, member: &Member) {
    if role == "absent" {
        let error = member.builder().build().map(drop).unwrap_err();
        assert!(matches!(
            error.kind(),
            ErrorKind::Unsupported | ErrorKind::PeerFailed
        ));
        return member.say("error", error);
    }
    let communicator = member.join();
    match role {
        "transfers" => transfers(&communicator),
        "signals" => signals(&communicator),
        "atomics" => atomics(&communicator),
        "graphs" => graphs(&communicator),
        "release" => release(&communicator),
        "meet" => meet(&communicator),
        "kill" => return kill(&communicator, member),
        _ => panic!("no such role: {role}"),
    }
    .unwrap();
    let leaks = communicator.finalize().unwrap();
    assert_eq!(leaks.buffers, 0);
}

fn meet(communicator: &Communicator) -> Result<()> {
    let stream = communicator.stream()?;
    for _ in 0..10 {
        stream.barrier()?;
    }
    stream.synchronize()
}

/// A sequence of numbers that looks random, the same on all ranks.
fn next(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize
}

/// Puts of any size and place move exactly their bytes, and a get brings them back.
fn transfers(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = communicator.stream()?;
    let [from, to, back] = [(); 3].map(|()| communicator.allocate::<u32>(&[LENGTH]));
    let (from, to, back) = (from?, to?, back?);
    let mut seed = 42;
    for round in 0..25_u32 {
        let length = 1 + next(&mut seed) % (1 << (round % 17));
        let (source, target) = (next(&mut seed) % 1000, 1 + next(&mut seed) % 1000);
        let distance = 1 + next(&mut seed) % (world - 1);
        let (peer, giver) = ((rank + distance) % world, (rank + world - distance) % world);
        let value = |rank: usize, index: usize| (rank as u32) << 24 ^ round << 18 ^ index as u32;
        let data: Vec<u32> = (0..length).map(|index| value(rank, index)).collect();
        from.write(&stream, source, &data)?;
        to.write(&stream, 0, &vec![POISON; LENGTH])?;
        back.write(&stream, 0, &vec![POISON; LENGTH])?;
        stream.barrier()?;
        let there = to.slice(target..target + length)?;
        stream.put(peer, there, from.slice(source..source + length)?)?;
        stream.barrier()?;
        let mut seen = vec![0; length + 2];
        to.read(&stream, target - 1, &mut seen)?;
        assert_eq!(
            (seen[0], seen[length + 1]),
            (POISON, POISON),
            "round {round}"
        );
        let right = |(index, &seen): (usize, &u32)| seen == value(giver, index);
        assert!(
            seen[1..=length].iter().enumerate().all(right),
            "round {round}"
        );
        stream.get(peer, back.slice(source..source + length)?, there)?;
        let mut seen = vec![0; length];
        back.read(&stream, source, &mut seen)?;
        assert_eq!(seen, data, "round {round}");
        stream.barrier()?;
    }
    Ok(())
}

/// No signal is lost, and whoever sees one sees what was put before it, whatever its size.
fn signals(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let (right, left) = ((rank + 1) % world, (rank + world - 1) % world);
    let stream = communicator.stream()?;
    let from = communicator.allocate::<u32>(&[LENGTH])?;
    let to = communicator.allocate::<u32>(&[LENGTH])?;
    for number in 0..100_u32 {
        let length = 1 + (number as usize * 97) % 9000;
        let start = (number as usize % 30) * 9001;
        let range = start..start + length;
        from.write(&stream, start, &vec![number + 1; length])?;
        stream.put_signal(right, to.slice(range.clone())?, from.slice(range)?, 1)?;
        stream.wait_signal(left, 1)?;
        let mut seen = vec![0; length];
        to.read(&stream, start, &mut seen)?;
        assert!(
            seen.iter().all(|&seen| seen == number + 1),
            "signal {number}"
        );
    }
    // Many at once, and the other side comes late.
    for number in 0..200 {
        let place = to.slice(number..=number)?;
        stream.put_signal(right, place, from.slice(number..=number)?, 2)?;
    }
    stream.synchronize()?;
    for _ in 0..200 {
        stream.wait_signal(left, 2)?;
    }
    stream.synchronize()
}

/// All ranks update one word, with that word's own rank among them.
fn atomics(communicator: &Communicator) -> Result<()> {
    let world = communicator.world_size();
    let stream = communicator.stream()?;
    let words = communicator.allocate::<u64>(&[3])?;
    let old = communicator.allocate::<u64>(&[1])?;
    for _ in 0..30 {
        for peer in 0..world {
            stream.signal_add(peer, words.slice(0..1)?, 1)?;
        }
    }
    let all = 30 * world as u64;
    stream.wait_word(words.slice(0..1)?, Condition::Equal, all)?;
    let mut seen = Vec::new();
    for _ in 0..20 {
        stream.atomic_fetch_add(0, words.slice(1..2)?, 1, Some(old.slice(..)?))?;
        let mut value = [0];
        old.read(&stream, 0, &mut value)?;
        seen.extend(value);
    }
    assert!(seen.is_sorted() && seen[19] < 20 * world as u64, "{seen:?}");
    let all: Vec<u64> = (communicator.host_all_gather(
        &seen
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect::<Vec<_>>(),
    )?)
    .iter()
    .flat_map(|bytes| bytes.chunks(8))
    .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
    .collect();
    let distinct: std::collections::BTreeSet<u64> = all.iter().copied().collect();
    assert_eq!(distinct.len(), 20 * world, "every rank saw other values");
    Ok(())
}

/// A graph is replayed any number of times, between eager calls.
fn graphs(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let (right, left) = ((rank + 1) % world, (rank + world - 1) % world);
    let mut stream = communicator.stream()?;
    let counts = communicator.allocate::<u64>(&[2])?;
    let copies = communicator.allocate::<u64>(&[2])?;
    stream.barrier()?;
    let graph = stream.capture(|queue| {
        queue.signal_add(rank, counts.slice(0..1)?, 1)?;
        queue.put_signal(right, copies.slice(0..1)?, counts.slice(0..1)?, 3)?;
        queue.wait_signal(left, 3)?;
        queue.signal_add(left, counts.slice(1..2)?, 1)?;
        queue.barrier()
    })?;
    for replay in 1..=30_u64 {
        stream.launch_graph(&graph)?;
        if replay % 7 == 0 {
            let mut seen = [0; 2];
            copies.read(&stream, 0, &mut seen)?;
            assert_eq!(seen[0], replay);
            counts.read(&stream, 0, &mut seen)?;
            assert_eq!(seen, [replay; 2]);
            stream.barrier()?;
        }
    }
    stream.synchronize()
}

/// Memory that was put to is released, collectively or not, with streams that end before their operations.
fn release(communicator: &Communicator) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    for size in 1..20 {
        let stream = communicator.stream()?;
        let from = communicator.allocate::<u64>(&[size * 1000])?;
        let to = communicator.allocate::<u64>(&[size * 1000])?;
        stream.put((rank + 1) % world, &to, &from)?;
        drop(stream);
        if size % 2 == 0 {
            to.free()?;
        }
    }
    communicator.host_barrier()
}

fn kill(communicator: &Communicator, member: &Member) {
    let stream = communicator.stream().unwrap();
    let from = communicator.allocate::<u8>(&[16 << 20]).unwrap();
    let to = communicator.allocate::<u8>(&[16 << 20]).unwrap();
    member.ready();
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let peer = (rank + world / 2) % world;
    let error = loop {
        let outcome = stream
            .put(peer, &to, &from)
            .and_then(|()| stream.put(peer, to.slice(..100)?, from.slice(..100)?))
            .and_then(|()| stream.synchronize());
        if let Err(error) = outcome {
            break error;
        }
    };
    member.say("error", error);
}
