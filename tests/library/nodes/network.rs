//! One-sided operations between nodes, over UCX's TCP.
//!
//! Without UCX the tests are skipped by name, except the one that takes it away.

use super::support::{Member, Plan};
use super::times;
use crate::backend::Backend;
use rstest::rstest;
use std::time::Duration;
use symmem::{Communicator, Condition, ErrorKind, Method, Result, TransferOptions};

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
#[case::four_nodes(Backend::Host, &["a", "b", "c", "d"])]
#[case::two_nodes(Backend::Host, &["a", "a", "b", "b"])]
#[case::turn_by_turn(Backend::Host, &["a", "b", "a", "b"])]
#[case::three_and_one(Backend::Host, &["a", "a", "a", "b"])]
#[case::two_nodes_on_cuda(Backend::Cuda, &["a", "a", "b", "b"])]
#[case::three_and_one_on_cuda(Backend::Cuda, &["a", "a", "a", "b"])]
#[case::two_nodes_on_hip(Backend::Hip, &["a", "a", "b", "b"])]
#[case::three_nodes_on_hip(Backend::Hip, &["a", "b", "c"])]
fn every_rank_reaches_every_rank_with_the_guarantees_of_one_node(
    #[case] backend: Backend,
    #[case] nodes: &[&'static str],
    #[values(
        "network/transfers",
        "network/signals",
        "network/atomics",
        "network/graphs",
        "network/release",
        "network/pieces",
        "network/queues"
    )]
    role: &'static str,
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

/// A copy that takes long shows a signal, or an acknowledgement, that does not wait for it.
#[rstest]
fn a_signal_waits_for_slow_copies(#[values(Backend::Cuda, Backend::Hip)] backend: Backend) {
    if let Some(plan) = plan("network/pieces", &["a", "b"]) {
        let plan = plan.on(backend).env("FAKE_DEVICE_COPY_US", "10000");
        plan.start().end();
    }
}

#[rstest]
fn signal_words_may_be_in_host_memory(
    #[values("network/signals", "network/queues")] role: &'static str,
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    if let Some(plan) = plan(role, &["a", "a", "b", "b"]) {
        plan.on(backend).env("SIGNALS", "host").start().end();
    }
}

/// The launch of a copy fails, in the middle of puts of many pieces; `rank` is where.
#[rstest]
fn a_copy_that_fails_is_an_error_that_names_the_call_and_the_rank(
    #[values(0, 1)] rank: usize,
    #[values(Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    let Some(plan) = plan("network/fail", &["a", "b"]) else {
        return;
    };
    let call = match backend {
        Backend::Hip => "hipModuleLaunchKernel",
        _ => "cuLaunchKernelEx",
    };
    let plan = plan.on(backend).without_report();
    let plan = plan.env_of(rank, "FAKE_DEVICE_FAIL", format!("{call}:40"));
    let mut job = plan.start();
    let (text, _) = job.ranks[rank].hear("error");
    assert!(text.contains(call), "{text}");
    assert!(text.contains(&format!("rank {rank}")), "{text}");
    let (text, _) = job.ranks[1 - rank].hear("error");
    assert!(text.contains(&format!("rank {rank}")), "{text}");
}

#[rstest]
fn a_rank_killed_in_the_middle_of_a_put_is_named_within_a_second(
    #[values(Backend::Host, Backend::Cuda, Backend::Hip)] backend: Backend,
) {
    let Some(plan) = plan("network/kill", &["a", "a", "b", "b"]) else {
        return;
    };
    let mut job = plan.on(backend).without_report().start();
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
    let mut builder = member.builder();
    if std::env::var("SIGNALS").is_ok_and(|signals| signals == "host") {
        builder = builder.signal_placement(symmem::SignalPlacement::Host);
    }
    let communicator = builder.build().expect("all ranks come");
    match role {
        "transfers" => transfers(&communicator),
        "signals" => signals(&communicator),
        "atomics" => atomics(&communicator),
        "graphs" => graphs(&communicator),
        "release" => release(&communicator),
        "meet" => meet(&communicator),
        "pieces" => pieces(&communicator),
        "queues" => queues(&communicator),
        "times" => times::run(&communicator),
        "fail" => return fail(&communicator, member),
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

/// Sizes around those of a small message and of a piece, in bytes.
const SIZES: [usize; 10] = [
    1,
    (16 << 10) - 1,
    16 << 10,
    (16 << 10) + 1,
    (512 << 10) - 1,
    512 << 10,
    (512 << 10) + 1,
    3 << 19,
    (3 << 19) + 7,
    (7 << 19) - 5,
];

/// Puts and gets of one to seven pieces at odd places move exactly their bytes, and whoever sees the signal sees them.
fn pieces(communicator: &Communicator) -> Result<()> {
    const ROOM: usize = 4 << 20;
    const FILL: u8 = 0xa5;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let (right, left) = ((rank + 1) % world, (rank + world - 1) % world);
    let stream = communicator.stream()?;
    let [from, to, back] = [(); 3].map(|()| communicator.allocate::<u8>(&[ROOM]));
    let (from, to, back) = (from?, to?, back?);
    for (round, &size) in SIZES.iter().enumerate() {
        let (source, target) = (13 * round, 1 + 7 * round);
        // Each byte tells its place, its piece and its round.
        let value =
            |rank: usize, at: usize| (at + (at >> 9) + (at >> 17) + 31 * (rank + round)) as u8;
        let data: Vec<u8> = (0..size).map(|at| value(rank, at)).collect();
        from.write(&stream, source, &data)?;
        to.write(&stream, 0, &vec![FILL; size + target + 1])?;
        back.write(&stream, 0, &vec![FILL; size + source + 1])?;
        stream.barrier()?;
        let there = to.slice(target..target + size)?;
        // Sees what is there right behind the stream's last wait: no slow copy delays a kernel.
        let read_by_kernel = |giver: usize| {
            let kernel = TransferOptions::new().method(Method::Vector);
            let copied = back.slice(source..source + size)?;
            stream.with(&kernel).put(rank, copied, there)?;
            let mut seen = vec![0; size];
            back.read(&stream, source, &mut seen)?;
            let wrong = (0..size).find(|&at| seen[at] != value(giver, at));
            assert_eq!(wrong, None, "{size} bytes behind a wait");
            Result::Ok(())
        };
        stream.put_signal(right, there, from.slice(source..source + size)?, 4)?;
        stream.wait_signal(left, 4)?;
        read_by_kernel(left)?;
        let mut seen = vec![0; size + 2];
        to.read(&stream, target - 1, &mut seen)?;
        assert_eq!((seen[0], seen[size + 1]), (FILL, FILL), "{size} bytes");
        let wrong = (0..size).find(|&at| seen[at + 1] != value(left, at));
        assert_eq!(wrong, None, "{size} bytes");
        // The put without a signal is there once the barrier is passed; the get brings back what the peer has.
        to.write(&stream, 0, &vec![FILL; size + target + 1])?;
        stream.barrier()?;
        stream.put(left, there, from.slice(source..source + size)?)?;
        stream.barrier()?;
        read_by_kernel(right)?;
        stream.get(left, back.slice(source..source + size)?, there)?;
        let mut seen = vec![0; size + 1];
        back.read(&stream, source, &mut seen)?;
        assert_eq!(seen[size], FILL, "{size} bytes");
        let wrong = (0..size).find(|&at| seen[at] != value(rank, at));
        assert_eq!(wrong, None, "{size} bytes");
        to.read(&stream, target, &mut seen)?;
        let wrong = (0..size).find(|&at| seen[at] != value(right, at));
        assert_eq!(wrong, None, "{size} bytes");
        stream.barrier()?;
    }
    Ok(())
}

/// Many queues move data to and from all ranks at once, far more than there are slots for.
fn queues(communicator: &Communicator) -> Result<()> {
    const QUEUES: usize = 4;
    const PART: usize = 3 << 18;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let room = QUEUES * world * PART;
    let [from, to, back] = [(); 3].map(|()| communicator.allocate::<u8>(&[room]));
    let (from, to, back) = (from?, to?, back?);
    let setup = communicator.stream()?;
    let value = |rank: usize, part: usize| (17 * rank + part) as u8;
    let at = |queue: usize, peer: usize| queue * world + peer;
    let data: Vec<u8> = (0..room).map(|byte| value(rank, byte / PART)).collect();
    from.write(&setup, 0, &data)?;
    setup.barrier()?;
    setup.synchronize()?;
    let streams: Vec<_> = (0..QUEUES)
        .map(|_| communicator.stream())
        .collect::<Result<_>>()?;
    for round in 0..3 {
        // Small ones between large ones, so that each waits for slots that others have.
        let length = |queue: usize| match (queue + round) % 3 {
            0 => PART,
            1 => 100 + queue,
            _ => 40_000,
        };
        for peer in 0..world {
            for (queue, stream) in streams.iter().enumerate() {
                let bytes = length(queue);
                let (mine, theirs) = (at(queue, rank) * PART, at(queue, peer) * PART);
                let source = from.slice(theirs..theirs + bytes)?;
                let channel = queue as u32;
                stream.put_signal(peer, to.slice(mine..mine + bytes)?, source, channel)?;
                let (near, far) = (theirs..theirs + bytes, mine..mine + bytes);
                stream.get(peer, back.slice(near)?, from.slice(far)?)?;
            }
        }
        for (queue, stream) in streams.iter().enumerate() {
            let mut seen = vec![0; length(queue)];
            for peer in 0..world {
                stream.wait_signal(peer, queue as u32)?;
                let place = at(queue, peer) * PART;
                let right = value(peer, at(queue, rank));
                to.read(stream, place, &mut seen)?;
                assert!(seen.iter().all(|&seen| seen == right), "queue {queue}");
                back.read(stream, place, &mut seen)?;
                assert!(seen.iter().all(|&seen| seen == right), "queue {queue}");
            }
        }
        setup.barrier()?;
        setup.synchronize()?;
    }
    Ok(())
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

fn fail(communicator: &Communicator, member: &Member) {
    let from = communicator.allocate::<u8>(&[3 << 20]).unwrap();
    let to = communicator.allocate::<u8>(&[3 << 20]).unwrap();
    let stream = communicator.stream().unwrap();
    let peer = 1 - communicator.rank();
    let error = loop {
        let put = stream.put_signal(peer, &to, &from, 1);
        let outcome = put
            .and_then(|()| stream.wait_signal(peer, 1))
            .and_then(|()| stream.synchronize());
        if let Err(error) = outcome {
            break error;
        }
    };
    member.say("error", error);
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
