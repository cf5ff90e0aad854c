//! What ranks of several nodes can do, and what is refused.

use super::support::{Member, Plan};
use rstest::rstest;
use symmem::{
    CollectiveOptions, Communicator, Error, ErrorKind, GemmOptions, GemmReduceOptions,
    GemmReduceShape, GemmShape, ReduceOp, SymmetricBuffer,
};

const LENGTH: usize = 1000;

#[rstest]
#[case::four_nodes(&["a", "b", "c", "d"])]
#[case::two_nodes(&["a", "a", "b", "b"])]
#[case::turn_by_turn(&["a", "b", "a", "b"])]
#[case::one_node(&["a", "a", "a", "a"])]
#[case::three_and_one(&["a", "a", "a", "b"])]
fn ranks_of_one_node_share_memory_and_ranks_of_several_refuse_by_name(
    #[case] nodes: &[&'static str],
    #[values("device", "host")] signals: &str,
) {
    Plan::new("work/all", nodes)
        .env("NODES", nodes.join(","))
        .env("SIGNALS", signals)
        .start()
        .end();
}

#[test]
fn without_a_key_of_its_own_a_host_is_a_node_even_if_its_ranks_come_by_tcp() {
    Plan::new("work/all", &["", "", ""])
        .env("NODES", "a,a,a")
        .start()
        .end();
}

pub fn role(role: &str, member: &Member) {
    assert_eq!(role, "all");
    let nodes = std::env::var("NODES").unwrap();
    let keys: Vec<&str> = nodes.split(',').collect();
    let mut builder = member.builder();
    if std::env::var("SIGNALS").is_ok_and(|signals| signals == "host") {
        builder = builder.signal_placement(symmem::SignalPlacement::Host);
    }
    let communicator = builder.build().unwrap();
    let here: Vec<usize> = (0..keys.len())
        .filter(|&rank| keys[rank] == keys[member.rank])
        .collect();
    numbers(&communicator, &keys, &here);
    let there = (0..keys.len()).find(|rank| !here.contains(rank));

    let payload = [member.rank as u8; 3];
    let gathered = communicator.host_all_gather(&payload).unwrap();
    assert!((0..member.world).all(|rank| gathered[rank] == [rank as u8; 3]));

    let buffer = communicator.allocate::<f32>(&[LENGTH]).unwrap();
    let result = communicator.allocate::<f32>(&[LENGTH]).unwrap();
    put_and_signal(&communicator, (&buffer, &result), &here);
    for round in 0..3 {
        collectives_of_a_node(&communicator, (&buffer, &result), &here, round);
    }
    match there {
        Some(there) => refusals(&communicator, (&buffer, &result), there),
        None => communicator.stream().unwrap().barrier().unwrap(),
    }
    // Dropped buffers are released, and entries are taken again, on each node by itself.
    for size in 1..20 {
        drop(communicator.allocate::<u64>(&[size]).unwrap());
    }
    result.free().unwrap();
    drop(buffer);
    communicator.host_barrier().unwrap();
    let leaks = communicator.finalize().unwrap();
    assert!(leaks.is_empty(), "{leaks:?}");
}

fn numbers(communicator: &Communicator, keys: &[&str], here: &[usize]) {
    let mut distinct: Vec<&str> = Vec::new();
    for key in keys {
        if !distinct.contains(key) {
            distinct.push(key);
        }
    }
    let rank = communicator.rank();
    let node_of = |rank: usize| distinct.iter().position(|key| *key == keys[rank]).unwrap();
    assert_eq!(communicator.nodes(), distinct.len());
    assert_eq!(communicator.node(), node_of(rank));
    assert_eq!(here[communicator.local_rank()], rank);
    for peer in communicator.peers() {
        assert_eq!(peer.node, node_of(peer.rank));
        assert!(!peer.same_device || here.contains(&peer.rank));
        assert_eq!(peer.same_process, peer.rank == rank);
    }
    let rails = communicator.rails();
    assert_eq!(rails.iter().map(Vec::len).sum::<usize>(), keys.len());
    assert!(rails[communicator.local_rank()].contains(&rank));
}

/// Each rank puts to the next of its node.
fn put_and_signal(
    communicator: &Communicator,
    (buffer, result): (&SymmetricBuffer<f32>, &SymmetricBuffer<f32>),
    here: &[usize],
) {
    let stream = communicator.stream().unwrap();
    let (own, count) = (communicator.local_rank(), here.len());
    let (after, before) = (here[(own + 1) % count], here[(own + count - 1) % count]);
    let mine: Vec<f32> = (0..LENGTH)
        .map(|at| (at + 7 * communicator.rank()) as f32)
        .collect();
    buffer.write(&stream, 0, &mine).unwrap();
    stream.put_signal(after, result, buffer, 3).unwrap();
    stream.wait_signal(before, 3).unwrap();
    let mut seen = vec![0.0f32; LENGTH];
    result.read(&stream, 0, &mut seen).unwrap();
    let expected: Vec<f32> = (0..LENGTH).map(|at| (at + 7 * before) as f32).collect();
    assert_eq!(seen, expected);
    assert!(result.peer(after).is_ok());
}

/// The ranks of each node sum; in odd rounds in the opposite order.
fn collectives_of_a_node(
    communicator: &Communicator,
    (buffer, result): (&SymmetricBuffer<f32>, &SymmetricBuffer<f32>),
    here: &[usize],
    round: usize,
) {
    let key = match round % 2 {
        0 => 0,
        _ => (communicator.world_size() - communicator.rank()) as u32,
    };
    let group = communicator.split(Some(communicator.node() as u32), key);
    let group = group.unwrap().unwrap();
    let mut members = here.to_vec();
    if round % 2 == 1 {
        members.reverse();
    }
    assert_eq!(group.members(), members);
    let stream = communicator.stream().unwrap();
    let options = CollectiveOptions::new().group(Some(&group));
    let mine = vec![(communicator.rank() + round) as f32; LENGTH];
    buffer.write(&stream, 0, &mine).unwrap();
    stream.with(&options).barrier().unwrap();
    stream
        .with(&options)
        .all_reduce(result, buffer, ReduceOp::Sum)
        .unwrap();
    let mut seen = vec![0.0f32; LENGTH];
    result.read(&stream, 0, &mut seen).unwrap();
    let sum: usize = here.iter().map(|rank| rank + round).sum();
    assert_eq!(seen, vec![sum as f32; LENGTH]);
    stream.with(&options).broadcast(0, result, buffer).unwrap();
    result.read(&stream, 0, &mut seen).unwrap();
    assert_eq!(seen, vec![(members[0] + round) as f32; LENGTH]);
}

/// Nothing reaches memory of a rank that is not here.
fn refusals(
    communicator: &Communicator,
    (buffer, result): (&SymmetricBuffer<f32>, &SymmetricBuffer<f32>),
    there: usize,
) {
    let stream = communicator.stream().unwrap();
    let names = |what: &str, error: Error| {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{what}: {text}");
        assert!(text.contains("node"), "{what}: {text}");
        text
    };
    let of_a_peer = [("peer", buffer.peer(there).map(drop).unwrap_err())];
    for (what, error) in of_a_peer {
        assert!(names(what, error).contains(&format!("rank {there} is on node")));
    }
    let shape = GemmShape::new(4, 4, 4);
    let reduced = GemmReduceShape::new(4, 4, 4);
    let of_all = [
        ("handle", buffer.handle(0).map(drop).unwrap_err()),
        (
            "all_gather_gemm",
            (communicator.all_gather_gemm::<half::f16>(&shape, &GemmOptions::default()))
                .map(drop)
                .unwrap_err(),
        ),
        (
            "gemm_reduce_scatter",
            (communicator
                .gemm_reduce_scatter::<half::f16>(&reduced, &GemmReduceOptions::default()))
            .map(drop)
            .unwrap_err(),
        ),
    ];
    for (what, error) in of_all {
        names(what, error);
    }
    // A group over nodes can be made, tells its members, and meets.
    let everyone = communicator.split(Some(0), 0).unwrap().unwrap();
    assert_eq!(everyone.world_size(), communicator.world_size());
    assert_eq!(everyone.rank(), communicator.rank());
    let options = CollectiveOptions::new().group(Some(&everyone));
    stream.with(&options).barrier().unwrap();
    stream.all_reduce(result, buffer, ReduceOp::Sum).unwrap();
    stream.synchronize().unwrap();
}
