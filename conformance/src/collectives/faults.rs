//! Tests that every check of collectives can fail: they plant faults in one of three ranks.

use super::case::{
    AlgorithmName, Collective, CollectiveCase, CollectiveVariant, Members, Mode, OwnMemory,
    Reduction, StreamOwner, Values,
};
use super::closeness::Closeness;
use super::soak_case::{SoakCase, SoakLoad};
use crate::case::Case;
use crate::dtype::Dtype;
use crate::faults::outcomes;
use crate::findings::Fault;
use crate::length::Length;
use crate::outcome::Outcome;

const CASE: CollectiveCase = CollectiveCase {
    variant: CollectiveVariant {
        operation: Collective::AllReduce,
        algorithm: AlgorithmName::Automatic,
    },
    dtype: Dtype::F32,
    reduction: Reduction::Sum,
    length: Length::Elements(129),
    destination_offset: 3,
    source_offset: 1,
    in_place: false,
    mode: Mode::Eager,
    members: Members::All,
    own: OwnMemory::Neither,
    stream: StreamOwner::Library,
    channel: 1,
    blocks: 0,
    values: Values::Finite,
    seed: 3,
};

/// Operations that write to every rank's destination.
const EVERYWHERE: [Collective; 7] = [
    Collective::AllReduce,
    Collective::ReduceScatter,
    Collective::AllGather,
    Collective::Broadcast,
    Collective::AllToAll,
    Collective::Scatter,
    Collective::Ring,
];

fn case(operation: Collective, mode: Mode, in_place: bool) -> CollectiveCase {
    CollectiveCase {
        variant: CollectiveVariant {
            operation,
            ..CASE.variant
        },
        mode,
        in_place,
        ..CASE
    }
}

/// Returns the reason that each rank gives when a fault is planted in rank 1; without it, the case must pass.
fn reasons(case: &CollectiveCase, fault: Fault) -> Vec<String> {
    let case = Case::Collective(case.clone());
    let without = outcomes(&case, None, 0);
    assert_eq!(without, vec![Outcome::Passed; 3], "{case}");
    let outcomes = outcomes(&case, Some(fault), 1).into_iter();
    let reasons = outcomes.map(|outcome| match outcome {
        Outcome::Failed(reason) => reason,
        other => panic!("{case} with {fault:?}: {other:?}"),
    });
    reasons.collect()
}

fn all_name(case: &CollectiveCase, fault: Fault, what: &str) {
    for reason in reasons(case, fault) {
        assert!(
            reason.contains("rank 1:") && reason.contains(what),
            "{case}: {reason}"
        );
    }
}

#[test]
fn one_wrong_element_of_any_operation_fails_the_case_on_every_rank() {
    for operation in EVERYWHERE {
        all_name(
            &case(operation, Mode::Eager, false),
            Fault::WrongByte,
            ": element 0 of",
        );
    }
}

#[test]
fn a_wrong_element_is_found_in_place_in_replays_and_on_the_other_stream() {
    for (mode, in_place) in [
        (Mode::Captured, false),
        (Mode::Concurrent, false),
        (Mode::Captured, true),
    ] {
        all_name(
            &case(Collective::AllReduce, mode, in_place),
            Fault::WrongByte,
            ": element 0 of",
        );
    }
    let case = case(Collective::AllGather, Mode::Concurrent, false);
    assert!(reasons(&case, Fault::WrongByte)[0].contains("stream 1"));
}

#[test]
fn a_guard_that_is_overwritten_fails_the_case_on_every_rank() {
    for operation in EVERYWHERE {
        all_name(
            &case(operation, Mode::Eager, false),
            Fault::Guard,
            "guard element",
        );
    }
}

#[test]
fn a_source_that_changes_fails_the_case_on_every_rank() {
    all_name(&CASE, Fault::Source, "of the source has become");
}

#[test]
fn a_last_packet_that_is_missing_fails_the_case_on_every_rank() {
    for operation in EVERYWHERE {
        all_name(
            &case(operation, Mode::Eager, false),
            Fault::MissingPacket,
            ": element ",
        );
    }
}

#[test]
fn another_order_of_accumulation_fails_the_case_on_every_rank() {
    let scatter = case(Collective::ReduceScatter, Mode::Eager, false);
    for case in [CASE, scatter] {
        all_name(&case, Fault::WrongOrder, ": element ");
    }
}

#[test]
fn a_rank_that_does_not_come_fails_the_case_on_every_rank_within_its_deadline() {
    let started = std::time::Instant::now();
    let reasons = reasons(&CASE, Fault::Absent);
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("peer 1): timed out")),
        "{reasons:?}"
    );
    assert!(started.elapsed() < std::time::Duration::from_secs(50));
}

#[test]
fn a_soak_stops_at_the_first_wrong_element() {
    let soak = Case::Soak(SoakCase {
        milliseconds: 200,
        seed: 9,
        load: SoakLoad::Mixed,
    });
    assert_eq!(outcomes(&soak, None, 0), vec![Outcome::Passed; 3]);
    let long = Case::Soak(SoakCase {
        milliseconds: 60_000,
        seed: 9,
        load: SoakLoad::Mixed,
    });
    let started = std::time::Instant::now();
    for outcome in outcomes(&long, Some(Fault::WrongByte), 1) {
        assert!(
            matches!(&outcome, Outcome::Failed(reason) if reason.contains("rank 1:")),
            "{outcome:?}"
        );
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(50));
}

#[test]
fn the_vendor_and_a_switch_may_be_off_by_their_roundings_and_no_more() {
    let of = |algorithm, dtype, reduction| {
        let case = CollectiveCase {
            variant: CollectiveVariant {
                algorithm,
                ..CASE.variant
            },
            dtype,
            reduction,
            ..CASE
        };
        Closeness::of(&case, 4)
    };
    let one = 1f32.to_le_bytes();
    let near = (1.0 + 4.0 * f32::EPSILON).to_le_bytes();
    let far = 1.001f32.to_le_bytes();
    for algorithm in [
        AlgorithmName::Vendor,
        AlgorithmName::Multicast,
        AlgorithmName::MulticastOneShot,
    ] {
        let theirs = of(algorithm, Dtype::F32, Reduction::Sum);
        assert!(theirs.accepts(&near, &one) && !theirs.accepts(&far, &one));
    }
    let smallest = of(AlgorithmName::Vendor, Dtype::F32, Reduction::Minimum);
    assert!(!smallest.accepts(&near, &one));
    let ours = of(AlgorithmName::OneShot, Dtype::F32, Reduction::Sum);
    assert!(!ours.accepts(&near, &one));
    // All computed NaNs are equal, and no number equals a NaN.
    let nans = [0x7fc0_0000u32, 0xffff_ffff].map(u32::to_le_bytes);
    assert!(ours.accepts(&nans[0], &nans[1]) && !ours.accepts(&nans[0], &one));
    let integers = of(AlgorithmName::Vendor, Dtype::U32, Reduction::Sum);
    assert!(!integers.accepts(&nans[0], &nans[1]));
}
