//! `abort()`: every rank leaves the call in which it waits, and the cause stays.

use crate::support::{Member, Plan, Setting, wherever_signals_live};
use rstest::rstest;
use rstest_reuse::apply;
use std::time::Duration;

const WORLD: usize = 3;

pub fn role(_role: &str, member: &Member) {
    let communicator = member.join();
    let mut stream = communicator.stream().expect("a stream");
    let buffer = communicator.allocate::<u64>(&[512]).expect("memory");
    let graph = stream
        .capture(|queue| {
            queue.put(
                (member.rank + 1) % member.world,
                buffer.slice(..8)?,
                buffer.slice(8..16)?,
            )?;
            queue.barrier_within(1, Duration::from_secs(60))
        })
        .expect("captured");
    member.ready();
    if member.rank == 0 {
        communicator.abort();
        member.say("left", "the abort");
    } else {
        // Rank 0 takes part in none of these calls.
        let waited = match member.argument.as_str() {
            "signal" => stream.wait_signal(0, 1).and_then(|()| stream.synchronize()),
            "barrier" => stream.barrier().and_then(|()| stream.synchronize()),
            "replay" => stream
                .launch_graph(&graph)
                .and_then(|()| stream.synchronize()),
            "host" => communicator.host_barrier(),
            other => panic!("no such wait: {other}"),
        };
        member.tell("left", &waited);
    }
    // Every later call reports the same cause.
    let check = communicator.check();
    member.tell("check", &check);
    let cause = format!("{check:?}");
    let later = [
        format!("{:?}", stream.barrier()),
        format!("{:?}", stream.synchronize()),
        format!(
            "{:?}",
            stream.put(0, buffer.slice(..8).unwrap(), buffer.slice(8..16).unwrap())
        ),
        format!("{:?}", stream.launch_graph(&graph)),
        format!("{:?}", communicator.host_barrier()),
        format!("{:?}", communicator.allocate::<u8>(&[1]).map(drop)),
        format!("{:?}", communicator.stream().map(drop)),
    ];
    for (index, error) in later.iter().enumerate() {
        assert_eq!(*error, cause, "call {index}");
    }
    // No drop hangs, in whatever order.
    drop(communicator);
    drop(buffer);
    drop(graph);
    drop(stream);
    member.say("dropped", "");
}

#[apply(wherever_signals_live)]
fn every_rank_leaves_and_later_calls_fail_with_the_cause(
    setting: Setting,
    #[values("signal", "barrier", "replay", "host")] wait: &str,
) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let mut world = Plan::new("abort/wait", WORLD, setting)
        .argument(wait)
        .start();
    world.ready();
    for rank in &mut world.ranks[1..] {
        rank.go();
    }
    std::thread::sleep(Duration::from_millis(60));
    world.ranks[0].go();
    let (aborted, _) = world.ranks[0].expect("left");
    for rank in &mut world.ranks {
        if rank.number > 0 {
            let (left, error) = rank.expect("left");
            let after = left.saturating_duration_since(aborted);
            println!(
                "{setting:?} {wait}: rank {} left after {after:?}",
                rank.number
            );
            assert!(
                error.contains("PeerFailed") && error.contains("abort"),
                "{error}"
            );
            assert!(after < crate::support::SLACK, "took {after:?}");
        } else {
            let (_, error) = rank.expect("check");
            assert!(error.contains("Aborted { rank: 0 }"), "{error}");
        }
        rank.expect_within("dropped", Duration::from_secs(8));
    }
    world.ends_well();
}
