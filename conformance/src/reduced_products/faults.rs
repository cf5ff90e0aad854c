//! Tests that every check of GEMM + reduce-scatter and GEMM + all-reduce can fail: they plant faults in one of three ranks.

use super::case::{GemmReduceCase, GemmReduceVariant, ReductionName};
use super::refusal_case::GemmReduceRefusalCase;
use crate::case::Case;
use crate::faults::outcomes;
use crate::findings::Fault;
use crate::outcome::Outcome;

fn case(variant: GemmReduceVariant, reduction: ReductionName) -> GemmReduceCase {
    GemmReduceCase {
        reduction,
        variant,
        half: false,
        rows: 10,
        n: 5,
        k: 9,
        a_gap: 1,
        b_gap: 2,
        b_by_columns: true,
        bias: true,
        symmetric: true,
        streams: 2,
        chunks: 2,
        captured: false,
        seed: 3,
    }
}

/// Calls `each` with a case of each algorithm and transport, and of each reduction.
fn all(each: impl Fn(&GemmReduceCase)) {
    for variant in GemmReduceVariant::ALL {
        for reduction in ReductionName::ALL {
            each(&case(variant, reduction));
        }
    }
}

/// Checks that a case passes, and that every rank names `found` if a fault is planted in rank 1.
#[track_caller]
fn all_name(case: &GemmReduceCase, fault: Fault, found: &str) {
    let whole = Case::GemmReduce(case.clone());
    assert_eq!(
        outcomes(&whole, None, 0),
        vec![Outcome::Passed; 3],
        "{case}"
    );
    for outcome in outcomes(&whole, Some(fault), 1) {
        let Outcome::Failed(reason) = outcome else {
            panic!("{case} with {fault:?}: {outcome:?}");
        };
        let is_named = reason.contains("rank 1: ") && reason.contains(found);
        assert!(is_named, "{case} with {fault:?}: {reason}");
    }
}

#[test]
fn one_wrong_element_fails_the_case_on_every_rank() {
    all(|case| all_name(case, Fault::WrongByte, "call 0: C[0, 0] is "));
}

#[test]
fn a_block_of_the_call_before_fails_the_case_on_every_rank() {
    all(|case| all_name(case, Fault::StaleBlock, "call 1: C[0, 0] is "));
    let replayed = GemmReduceCase {
        captured: true,
        symmetric: false,
        ..case(GemmReduceVariant::PipelinePut, ReductionName::All)
    };
    all_name(&replayed, Fault::StaleBlock, "call 1: C[0, 0] is ");
}

#[test]
fn rows_of_the_next_owner_fail_the_case_on_every_rank() {
    all(|case| all_name(case, Fault::WrongOwner, "call 0: C[0, 0] is "));
}

#[test]
fn a_sum_without_one_ranks_part_fails_the_case_on_every_rank() {
    all(|case| all_name(case, Fault::MissingPart, "call 0: C[0, "));
}

#[test]
fn what_is_written_outside_of_c_or_into_an_input_fails_the_case_on_every_rank() {
    all(|case| {
        all_name(case, Fault::Guard, "of the C was overwritten");
        all_name(case, Fault::Source, "element 0 of A has changed");
    });
}

#[test]
fn bits_that_differ_in_a_repetition_fail_the_case_on_every_rank() {
    all(|case| all_name(case, Fault::OtherRepeat, "call 1 repeated: it gave other"));
}

#[test]
fn bits_of_an_all_reduce_that_differ_among_ranks_fail_the_case_on_every_rank() {
    // The bound of a sum that is rounded once finds the last bit by itself.
    let rounded = |variant: &GemmReduceVariant| variant.roundings(3) > 1;
    for variant in GemmReduceVariant::ALL.into_iter().filter(rounded) {
        let whole = Case::GemmReduce(case(variant, ReductionName::All));
        for outcome in outcomes(&whole, Some(Fault::OtherBits), 1) {
            let told = "C has other bits than rank";
            let is_told = matches!(&outcome, Outcome::Failed(reason) if reason.contains(told));
            assert!(is_told, "{variant:?}: {outcome:?}");
            // The bound does not find it.
            assert!(!format!("{outcome:?}").contains("call "), "{outcome:?}");
        }
    }
}

#[test]
fn a_rank_that_does_not_come_fails_the_case_on_every_rank_within_its_deadline() {
    all(|case| {
        let started = std::time::Instant::now();
        let outcomes = outcomes(&Case::GemmReduce(case.clone()), Some(Fault::Absent), 1);
        let told = |outcome: &Outcome| matches!(outcome, Outcome::Failed(reason) if reason.contains("peer 1): timed out"));
        assert!(outcomes.iter().any(told), "{case}: {outcomes:?}");
        assert!(started.elapsed() < std::time::Duration::from_secs(50));
    });
}

#[test]
fn what_is_left_after_refusals_is_checked() {
    for reduction in ReductionName::ALL {
        let case = Case::GemmReduceRefusal(GemmReduceRefusalCase {
            reduction,
            half: true,
            seed: 12,
        });
        assert_eq!(outcomes(&case, None, 0), vec![Outcome::Passed; 3]);
        for outcome in outcomes(&case, Some(Fault::WrongByte), 1) {
            let told = "call 0: C[0, 0] is ";
            assert!(
                matches!(&outcome, Outcome::Failed(reason) if reason.contains(told)),
                "{outcome:?}"
            );
        }
    }
}
