//! Tests of collectives over the fake driver: results, refusals, and waits in vain.

use crate::collectives::{Ranks, grid};
use crate::support::{Outcome, run, tell};
use crate::world::read;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, CollectiveKernels, Signals};

/// Refuses grids that cannot be co-resident, and unknown numbers.
pub fn refused(ranks: &mut Ranks) -> CallResult<()> {
    let backend = &ranks.world.ranks[0];
    let stream = ranks.streams[0];
    let known = backend.resident_blocks(CollectiveKernel::REDUCE, ElementTypeCode::BF16, 512)?;
    assert!(
        known > 0
            && known
                == backend.resident_blocks(CollectiveKernel::REDUCE, ElementTypeCode::BF16, 500)?
    );
    for (kernel, element, threads) in [
        (CollectiveKernel(9), ElementTypeCode::BF16, 512),
        (CollectiveKernel::REDUCE, ElementTypeCode(0), 512),
        (CollectiveKernel::REDUCE_PACKETS, ElementTypeCode(15), 512),
        (CollectiveKernel::MOVE, ElementTypeCode::U8, 0),
        (CollectiveKernel::MOVE, ElementTypeCode::U8, 1025),
    ] {
        assert_eq!(backend.resident_blocks(kernel, element, threads)?, 0);
    }
    let good = ReduceArguments {
        group: ranks.group(0, CollectiveOperationCode::ALL_REDUCE),
        sources: [DeviceAddress::NULL; MAX_RANKS],
        destinations: [DeviceAddress::NULL; MAX_RANKS],
        count: 0,
        element: ElementTypeCode::BF16,
        reduce: ReduceOpCode::SUM,
    };
    let reduce = |arguments: &ReduceArguments, geometry: Geometry| {
        // SAFETY: the call is refused before anything is launched.
        let refused = unsafe { backend.collective_reduce(arguments, &geometry, stream) };
        let failure = refused.expect_err("it is refused");
        assert_eq!(failure.status, Status::INVALID_ARGUMENT);
        failure.message
    };
    let most = known.min(SLOT_BLOCKS);
    let with = |blocks, threads, shared_memory| Geometry {
        blocks,
        threads,
        shared_memory,
    };
    let beyond = reduce(&good, with([most + 1, 1, 1], [512, 1, 1], 0));
    assert!(beyond.contains(&format!("1 to {most}")), "{beyond}");
    for geometry in [
        with([0, 1, 1], [128, 1, 1], 0),
        with([1, 2, 1], [128, 1, 1], 0),
        with([1, 1, 1], [64, 2, 1], 0),
        with([1, 1, 1], [100, 1, 1], 0),
        with([1, 1, 1], [2048, 1, 1], 0),
        with([1, 1, 1], [128, 1, 1], 16),
    ] {
        reduce(&good, geometry);
    }
    let mut stranger = good;
    stranger.group.rank = 7;
    let mut crowd = good;
    crowd.group.world = MAX_RANKS as u32 + 1;
    for wrong in [
        ReduceArguments {
            element: ElementTypeCode(15),
            ..good
        },
        ReduceArguments {
            reduce: ReduceOpCode(0),
            ..good
        },
        stranger,
        crowd,
    ] {
        reduce(&wrong, grid(1));
    }
    let pushed = ReducePushArguments {
        reduce: good,
        sources: good.sources,
        counts: [0; MAX_RANKS],
        inboxes: good.sources,
        channel_bytes: 256,
        channels: 8,
        slots: 2,
        piece_bytes: 4096,
        barrier: 0,
    };
    let push = |arguments: ReducePushArguments, blocks, threads| {
        let geometry = with([blocks, 1, 1], [threads, 1, 1], 0);
        // SAFETY: the call is refused before anything is launched.
        let refused = unsafe { backend.collective_reduce_push(&arguments, &geometry, stream) };
        refused.expect_err("it is refused").message
    };
    let crowded = push(pushed, 5, 128);
    assert!(
        crowded.contains("10 pairs") && crowded.contains("8 channels"),
        "{crowded}"
    );
    push(pushed, 1, 96);
    push(ReducePushArguments { slots: 3, ..pushed }, 1, 128);
    push(
        ReducePushArguments {
            piece_bytes: 24,
            ..pushed
        },
        1,
        128,
    );
    let mut integers = pushed;
    integers.reduce.element = ElementTypeCode::I32;
    let message = push(integers, 1, 128);
    assert!(message.contains("I32"), "{message}");
    let packets = PacketArguments {
        group: good.group,
        sources: [DeviceAddress::NULL; MAX_RANKS],
        destinations: [DeviceAddress::NULL; MAX_RANKS],
        send_bytes: [0; MAX_RANKS],
        receive_bytes: [0; MAX_RANKS],
    };
    // SAFETY: the call is refused before anything is launched.
    let refused = unsafe { backend.collective_packets(&packets, &grid(PACKET_BLOCKS + 1), stream) };
    let message = refused.expect_err("no region").message;
    assert!(
        message.contains(&format!("1 to {PACKET_BLOCKS}")),
        "{message}"
    );
    let update = WordOperation {
        bits: 16,
        ..WordOperation::default()
    };
    // SAFETY: the call is refused before anything is launched.
    assert!(unsafe { backend.word_update(&update, stream) }.is_err());
    let wait = WordWait {
        count: 1,
        bits: 32,
        ..WordWait::default()
    };
    // SAFETY: the call is refused before anything is launched.
    assert!(unsafe { backend.word_wait(&wait, stream) }.is_err());
    Ok(())
}

/// A wait record names a peer that never makes the call.
pub fn timeout(ranks: &mut Ranks) -> CallResult<()> {
    let mut group = ranks.group(0, CollectiveOperationCode::ALL_GATHER);
    group.watch.deadline_ns = 20_000_000;
    let arguments = MoveArguments {
        group,
        destinations: [DeviceAddress::NULL; MAX_RANKS],
        sources: [DeviceAddress::NULL; MAX_RANKS],
        bytes: [0; MAX_RANKS],
        copies: 0,
        concurrent: 1,
    };
    let stream = ranks.streams[0];
    // SAFETY: all memory is live until the stream is drained.
    unsafe { ranks.world.ranks[0].collective_move(&arguments, &grid(1), stream) }?;
    ranks.world.drain(0, stream)?;
    let bytes = read(&ranks.control[0]);
    let field = |index: usize| {
        let at = 128 + 4 * index;
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    };
    let (state, kind, peer, expected, reason) = (field(0), field(1), field(3), field(5), field(7));
    tell(
        "record",
        format!("state {state} kind {kind} peer {peer} expected {expected} reason {reason}"),
    );
    Ok(())
}

// ---- tests ----

fn collectives(role: &str, environment: &[(&str, &str)]) -> Outcome {
    let mut all = vec![("FAKE_DEVICE_COUNT", "4")];
    all.extend(environment);
    run(&format!("collectives {role}"), &all)
}

#[test]
fn every_kernel_of_collectives_does_what_it_should_in_worlds_of_one_to_four() {
    for world in 1..=4 {
        collectives(&format!("everything {world}"), &[]).assert_clean();
    }
}

/// Returns how often a function of the driver was called.
fn calls_of(outcome: &Outcome, name: &str) -> usize {
    outcome.calls.iter().filter(|call| *call == name).count()
}

#[test]
fn kernels_start_beside_their_predecessors_where_graphs_can_hold_that() {
    let beside = |version: &str| {
        let outcome = collectives("everything 2", &[("FAKE_CUDA_DRIVER_VERSION", version)]);
        outcome.assert_clean();
        calls_of(&outcome, "cuLaunchKernelEx")
    };
    let entries = symmem_kernels_ptx::modules()
        .iter()
        .flat_map(|module| module.entries);
    let dependent = |name: &str| name.starts_with("symmem_reduce");
    let any = entries
        .filter(|entry| entry.dependent_launch)
        .any(|entry| dependent(entry.name));
    assert_eq!(beside("12040") > 0, any);
    assert_eq!(beside("12020"), 0);
}

#[test]
fn a_collective_with_no_dependents_is_launched_plainly() {
    let outcome = collectives("plain 2", &[]);
    outcome.assert_clean();
    let launches = |name| calls_of(&outcome, name);
    assert_eq!(launches("cuLaunchKernelEx"), 0);
    // Of each rank, a call of each of six families.
    assert_eq!(launches("cuLaunchKernel"), 12);
}

#[test]
fn barriers_of_all_ranks_and_steps_start_beside_their_predecessors_whatever_a_call_says() {
    let outcome = collectives("barriers 2", &[]);
    outcome.assert_clean();
    let launches = |name| calls_of(&outcome, name);
    // Of each rank, two barriers and two steps.
    assert_eq!(launches("cuLaunchKernelEx"), 8);
    assert_eq!(launches("cuLaunchKernel"), 0);
}

#[test]
fn a_grid_that_could_not_be_resident_is_refused_and_not_hung() {
    collectives("refused 2", &[]).assert_clean();
}

#[test]
fn a_collective_that_a_peer_never_makes_ends_at_its_deadline_with_a_record() {
    let outcome = collectives("timeout 2", &[]);
    outcome.assert_clean();
    let kind = WaitRecord::COLLECTIVE + CollectiveOperationCode::ALL_GATHER.0;
    let expected = format!("state 2 kind {kind} peer 1 expected 1 reason 1");
    assert_eq!(outcome.get("record"), expected);
}
