//! What is refused, what differs between ranks, and who does not come.

use crate::world::{world, world_with};
use std::time::Duration;
use symmem::backend::abi::{Algorithm as A, ReduceOperation};
use symmem::{CollectiveOptions, Configuration, Error, Provider, Result};

#[test]
fn what_cannot_be_served_is_refused_with_what_can() {
    for result in world(2, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        let other = communicator.allocate::<i32>(&[64])?;
        let plain = CollectiveOptions::default();
        let sum = ReduceOperation::SUM;
        let refused = |outcome: Result<()>, word: &str| {
            let error = outcome.expect_err(word);
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            assert!(error.to_string().contains(word), "{error}");
        };
        let with = |algorithm| CollectiveOptions { algorithm, ..plain };
        let (all, half) = (buffer.all(), other.range(0, 32)?);
        let one_shot = with(A::ONE_SHOT);
        refused(stream.all_reduce_with(all, all, sum, &one_shot), "TWO_SHOT");
        refused(stream.all_to_all(all, all, &with(A::PUSH)), "PACKETS");
        refused(stream.all_gather(all, half, &with(A::TWO_SHOT)), "PULL");
        refused(
            stream.all_gather(all, half, &with(A::COPY_ENGINE)),
            "copy engine",
        );
        let vendor = CollectiveOptions {
            provider: Provider::Vendor,
            ..plain
        };
        refused(
            stream.all_reduce_with(all, all, sum, &vendor),
            "open_vendor",
        );
        refused(stream.all_reduce(all, half, sum), "32");
        let overlapping = other.range(1, 32)?;
        refused(stream.all_reduce(half, overlapping, sum), "overlap");
        refused(stream.broadcast(2, half, half, &plain), "rank 2");
        let many = CollectiveOptions {
            blocks: Some(1 << 20),
            ..plain
        };
        refused(stream.all_gather(all, half, &many), "blocks");
        let channel = CollectiveOptions {
            channel: 99,
            ..plain
        };
        refused(stream.all_gather(all, half, &channel), "channel 99");
        let odd = buffer.range(0, 7)?;
        refused(stream.all_to_all(odd, odd, &plain), "evenly");
        refused(
            stream.all_reduce(all, all, ReduceOperation(77)),
            "reduction 77",
        );
        // Nothing is enqueued for nothing.
        let none = buffer.range(0, 0)?;
        stream.all_reduce(none, none, sum)?;
        stream.all_gather(none, none, &plain)?;
        // After all that the ranks are in step.
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
        let sum = ReduceOperation::SUM;
        stream.all_reduce(buffer.all(), buffer.all(), sum)?;
        let mut errors = Vec::new();
        let length = if odd_one_out { 5 } else { 6 };
        let range = buffer.range(0, length)?;
        errors.push(stream.all_reduce(range, range, sum));
        let reduction = if odd_one_out {
            ReduceOperation::MAXIMUM
        } else {
            sum
        };
        errors.push(stream.all_reduce(buffer.all(), buffer.all(), reduction));
        let root = usize::from(odd_one_out);
        let options = CollectiveOptions::default();
        errors.push(stream.broadcast(root, buffer.all(), buffer.all(), &options));
        // In place each rank's part is its own: no difference.
        let third = buffer.range(communicator.rank() * 21, 21)?;
        stream.all_gather(buffer.range(0, 63)?, third, &options)?;
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
        let colour = communicator.rank() % 2;
        let group = communicator.split(Some(colour as u32), 0)?.expect("joined");
        let options = CollectiveOptions {
            group: Some(&group),
            ..Default::default()
        };
        // The two groups do different things at the same time.
        for round in 0..20 {
            let range = buffer.range(0, 1 + round + 20 * colour)?;
            stream.all_reduce_with(range, range, ReduceOperation::SUM, &options)?;
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
        let options = CollectiveOptions::default();
        let (mut counts, at) = ([0; 2], [0, 32]);
        counts[peer] = 8;
        let in_place = stream.all_to_all_v(all, &counts, &at, all, &counts, &at, &options);
        let error = in_place.expect_err("the peer loads from where this rank stores");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        let from = [at[0] + 16, at[1] + 16];
        stream.all_to_all_v(all, &counts, &at, all, &counts, &from, &options)?;
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
            stream.all_reduce(buffer.all(), buffer.all(), ReduceOperation::SUM)?;
            stream.synchronize()?;
        } else {
            std::thread::sleep(Duration::from_secs(2));
        }
        Result::Ok(())
    });
    let error = results[0].as_ref().expect_err("rank 1 never came");
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
