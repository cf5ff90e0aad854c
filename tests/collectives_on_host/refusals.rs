//! Calls that are refused, calls that differ between ranks, and ranks that never arrive.

use crate::world::{PATIENCE, world, world_with};
use std::sync::{Mutex, mpsc};
use std::time::Duration;
use symmem::{
    Algorithm as A, CollectiveOptions, Configuration, Error, ErrorKind, Provider, ReduceOp, Result,
};

#[test]
fn what_cannot_be_served_is_refused_with_what_can() {
    for result in world(2, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        let other = communicator.allocate::<i32>(&[64])?;
        let plain = CollectiveOptions::default();
        let sum = ReduceOp::Sum;
        let refused = |outcome: Result<()>, word: &str| {
            let error = outcome.expect_err(word);
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        };
        let with = |algorithm| plain.algorithm(algorithm);
        let (all, half) = (buffer.all(), other.slice(..32)?);
        let one_shot = with(A::OneShot);
        refused(stream.with(&one_shot).all_reduce(all, all, sum), "TWO_SHOT");
        refused(stream.with(&with(A::Push)).all_to_all(all, all), "PACKETS");
        refused(stream.with(&with(A::TwoShot)).all_gather(all, half), "PULL");
        refused(
            stream.with(&with(A::CopyEngine)).all_gather(all, half),
            "copy engine",
        );
        let vendor = plain.provider(Provider::Nccl);
        refused(stream.with(&vendor).all_reduce(all, all, sum), "open_nccl");
        refused(stream.all_reduce(all, half, sum), "32");
        let overlapping = other.slice(1..33)?;
        refused(stream.all_reduce(half, overlapping, sum), "overlap");
        refused(stream.broadcast(2, half, half), "rank 2");
        let many = plain.blocks(1 << 20);
        refused(stream.with(&many).all_gather(all, half), "blocks");
        let channel = plain.channel(99);
        refused(stream.with(&channel).all_gather(all, half), "channel 99");
        let odd = buffer.slice(..7)?;
        refused(stream.all_to_all(odd, odd), "evenly");
        // Empty calls enqueue nothing.
        let none = buffer.slice(..0)?;
        stream.all_reduce(none, none, sum)?;
        stream.all_gather(none, none)?;
        // After all these refusals the ranks are still in step.
        stream.all_reduce(all, all, sum)?;
        stream.synchronize()?;
        communicator.finalize().map(drop)
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn a_call_that_differs_on_one_rank_is_named_before_it_is_made() {
    let check = |configuration: &mut Configuration| configuration.check_calls = true;
    for (rank, result) in world_with(3, check, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        let odd_one_out = communicator.rank() == 1;
        let sum = ReduceOp::Sum;
        stream.all_reduce(buffer.all(), buffer.all(), sum)?;
        let mut errors = Vec::new();
        let length = if odd_one_out { 5 } else { 6 };
        let range = buffer.slice(..length)?;
        errors.push(stream.all_reduce(range, range, sum));
        let reduction = if odd_one_out { ReduceOp::Maximum } else { sum };
        errors.push(stream.all_reduce(buffer.all(), buffer.all(), reduction));
        let root = usize::from(odd_one_out);
        errors.push(stream.broadcast(root, &buffer, &buffer));
        // In place, each rank passes its own part, which is not a mismatch.
        let start = communicator.rank() * 21;
        let third = buffer.slice(start..start + 21)?;
        stream.all_gather(buffer.slice(..63)?, third)?;
        stream.synchronize()?;
        communicator.finalize()?;
        Result::Ok(errors)
    })
    .into_iter()
    .enumerate()
    {
        let errors = result.expect("everything else goes on");
        for error in errors {
            let error = error.expect_err("the ranks differ");
            let expected = if rank == 1 { 0 } else { 1 };
            assert!(
                matches!(error, Error::Mismatch { peer, .. } if peer == expected),
                "rank {rank}: {error}"
            );
        }
    }
}

#[test]
fn calls_are_compared_within_each_group_of_a_split() {
    let check = |configuration: &mut Configuration| configuration.check_calls = true;
    for result in world_with(4, check, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        let color = communicator.rank() % 2;
        let group = communicator.split(Some(color as u32), 0)?.expect("joined");
        let options = CollectiveOptions::new().group(&group);
        // The two groups make different calls at the same time.
        for round in 0..20 {
            let range = buffer.slice(..1 + round + 20 * color)?;
            stream
                .with(&options)
                .all_reduce(range, range, ReduceOp::Sum)?;
        }
        stream.synchronize()?;
        communicator.finalize().map(drop)
    }) {
        result.expect("within a group the calls are alike");
    }
}

#[test]
fn parts_that_are_sent_from_where_others_arrive_are_refused() {
    for result in world(2, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        let (all, peer) = (buffer.all(), 1 - communicator.rank());
        let (mut counts, at) = ([0; 2], [0, 32]);
        counts[peer] = 8;
        let in_place = stream.all_to_all_v(all, &counts, &at, all, &counts, &at);
        let error = in_place.expect_err("the peer loads from where this rank stores");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        let from = [at[0] + 16, at[1] + 16];
        stream.all_to_all_v(all, &counts, &at, all, &counts, &from)?;
        stream.synchronize()?;
        communicator.finalize().map(drop)
    }) {
        result.expect("parts that lie apart are served");
    }
}

#[test]
fn a_member_that_does_not_come_is_named_by_the_collective_that_waits() {
    let short = |configuration: &mut Configuration| {
        configuration.deadline = Duration::from_millis(300);
    };
    let results = world_with(2, short, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        if communicator.rank() == 0 {
            stream.all_reduce(buffer.all(), buffer.all(), ReduceOp::Sum)?;
            stream.synchronize()?;
        } else {
            std::thread::sleep(Duration::from_secs(2));
        }
        Result::Ok(())
    });
    let error = results[0].as_ref().expect_err("rank 1 never arrived");
    assert!(
        matches!(
            error,
            Error::Timeout {
                peer: 1,
                operation: "all_reduce",
                ..
            }
        ),
        "{error}"
    );
}

/// A move by Lamport packets.
#[derive(Clone, Copy, Debug)]
enum Move {
    AllGather,
    AllToAll,
}

/// Rank 0 makes moves to which rank 1 comes only after rank 0 has given up. Returns the errors of each rank: of the
/// moves that were enqueued together, then of each later call.
fn moves_without_rank_1(first: Move, elements: usize) -> Vec<Vec<Error>> {
    let short = |configuration: &mut Configuration| {
        configuration.deadline = Duration::from_millis(300);
    };
    // Closed once rank 0 has given up, also by a panic.
    let (given_up, until_given_up) = mpsc::channel::<()>();
    let (given_up, until_given_up) = (Mutex::new(Some(given_up)), Mutex::new(until_given_up));
    world_with(2, short, |communicator| {
        let stream = communicator.stream().expect("a stream");
        let source = communicator.allocate::<u8>(&[2 * elements]).expect("room");
        let destination = communicator.allocate::<u8>(&[2 * elements]).expect("room");
        let options = CollectiveOptions::new().algorithm(A::Lamport);
        let calls = stream.with(&options);
        let part = source.slice(..elements).expect("half");
        let call = |by: Move| match by {
            Move::AllGather => calls.all_gather(&destination, part),
            Move::AllToAll => calls.all_to_all(&destination, &source),
        };
        let mut errors = Vec::new();
        if communicator.rank() == 0 {
            let closed = given_up.lock().expect("no panic").take();
            let queued = [first, Move::AllGather, Move::AllToAll];
            let enqueued = queued.into_iter().try_for_each(call);
            errors.extend(enqueued.and_then(|()| stream.synchronize()).err());
            drop(closed);
        } else {
            let hear = until_given_up.lock().expect("no panic");
            let closed = hear.recv_timeout(PATIENCE);
            assert_eq!(closed, Err(mpsc::RecvTimeoutError::Disconnected));
        }
        for by in [Move::AllGather, Move::AllToAll] {
            errors.extend(call(by).and_then(|()| stream.synchronize()).err());
        }
        errors
    })
}

#[test]
fn a_move_by_lamport_packets_whose_peer_does_not_come_names_it_and_so_do_later_calls() {
    // In one launch, and in several.
    for elements in [64, 3 << 20] {
        for first in [Move::AllGather, Move::AllToAll] {
            let name = match first {
                Move::AllGather => "all_gather",
                Move::AllToAll => "all_to_all",
            };
            let [here, late] = moves_without_rank_1(first, elements).try_into().unwrap();
            assert_eq!(here.len(), 3, "every call fails: {here:?}");
            for error in here {
                let named =
                    matches!(error, Error::Timeout { peer: 1, operation, .. } if operation == name);
                assert!(named, "{first:?} of {elements}: {error}");
            }
            assert_eq!(late.len(), 2, "every call fails: {late:?}");
            for error in late {
                let known = matches!(error.kind(), ErrorKind::PeerFailed | ErrorKind::Timeout);
                assert!(known && error.peer() == Some(0), "{error:?}");
            }
        }
    }
}
