//! Tests that every check of all-reduces with a norm can fail: they plant faults in one of three ranks.

use super::case::{NormCase, NormName, NormOutput, ResidualUse};
use super::refusal_case::NormRefusalCase;
use crate::case::Case;
use crate::dtype::Dtype;
use crate::faults::outcomes;
use crate::findings::Fault;
use crate::outcome::Outcome;

fn case(output: NormOutput, residual: ResidualUse) -> NormCase {
    NormCase {
        norm: NormName::Layer,
        output,
        residual,
        in_place: false,
        offset: 1,
        ..NormCase::plain(Dtype::F32, (3, 256), 12)
    }
}

/// Checks that a case passes, and that every rank names `found` if a fault is planted in rank 1.
#[track_caller]
fn all_name(case: &NormCase, fault: Fault, found: &str) {
    let whole = Case::Norm(case.clone());
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
fn one_wrong_result_fails_the_case_on_every_rank() {
    for output in NormOutput::ALL {
        let case = case(output, ResidualUse::Absent);
        all_name(&case, Fault::WrongByte, "call 0: row 0, element 0 of the");
        all_name(&case, Fault::MissingPacket, "row 2, element 255 of the");
        all_name(&case, Fault::Guard, "of the result was overwritten");
    }
    let replayed = NormCase {
        captured: true,
        in_place: true,
        ..case(NormOutput::Same, ResidualUse::InPlace)
    };
    all_name(&replayed, Fault::WrongByte, "call 1: row 0, element 0 of");
}

#[test]
fn a_source_that_changes_fails_the_case_on_every_rank() {
    let case = case(NormOutput::Rows, ResidualUse::Absent);
    all_name(&case, Fault::Source, "element 0 of the source has changed");
}

#[test]
fn a_sum_that_is_not_stored_or_of_another_order_fails_the_case_on_every_rank() {
    for residual in [ResidualUse::Apart, ResidualUse::InPlace] {
        let case = case(NormOutput::Same, residual);
        all_name(&case, Fault::OldResidual, "call 0: the sum of row 0, el");
        all_name(&case, Fault::WrongOrder, "call 0: the sum of row ");
    }
}

#[test]
fn a_wrong_row_or_sum_of_one_owner_fails_the_case_on_every_rank() {
    for residual in [ResidualUse::Apart, ResidualUse::InPlace] {
        let sharded = NormCase {
            sharded: true,
            ..case(NormOutput::Same, residual)
        };
        all_name(&sharded, Fault::OldResidual, "call 0: the sum of row 1, el");
        all_name(&sharded, Fault::WrongOrder, "call 0: the sum of row 1");
        all_name(&sharded, Fault::WrongByte, "call 0: row 0, element 0 of");
    }
}

#[test]
fn a_scale_that_is_off_by_a_thousandth_fails_the_case_on_every_rank() {
    for output in [NormOutput::Rows, NormOutput::Groups] {
        let case = case(output, ResidualUse::Absent);
        all_name(&case, Fault::WrongScale, "call 0: scale 0 is ");
    }
    let given = case(NormOutput::Tensor, ResidualUse::Absent);
    all_name(&given, Fault::WrongScale, "that was given has changed");
}

#[test]
fn bits_that_differ_among_ranks_or_in_a_repetition_fail_the_case_on_every_rank() {
    let case = case(NormOutput::Same, ResidualUse::Absent);
    let whole = Case::Norm(case.clone());
    for outcome in outcomes(&whole, Some(Fault::OtherBits), 1) {
        let told = "the results have other bits than rank";
        let is_told = matches!(&outcome, Outcome::Failed(reason) if reason.contains(told));
        assert!(is_told, "{outcome:?}");
        // The bound does not find it.
        assert!(!format!("{outcome:?}").contains("call "), "{outcome:?}");
    }
    all_name(
        &case,
        Fault::OtherRepeat,
        "the last call repeated: it gave other bits",
    );
}

#[test]
fn a_rank_that_does_not_come_fails_the_case_on_every_rank_within_its_deadline() {
    let started = std::time::Instant::now();
    for sharded in [false, true] {
        let case = Case::Norm(NormCase {
            sharded,
            ..case(NormOutput::Same, ResidualUse::Apart)
        });
        let outcomes = outcomes(&case, Some(Fault::Absent), 1);
        let told = |outcome: &Outcome| matches!(outcome, Outcome::Failed(reason) if reason.contains("peer 1): timed out"));
        assert!(outcomes.iter().any(told), "{outcomes:?}");
    }
    assert!(started.elapsed() < std::time::Duration::from_secs(50));
}

#[test]
fn what_is_left_after_refusals_is_checked() {
    let case = Case::NormRefusal(NormRefusalCase {
        dtype: Dtype::F16,
        seed: 12,
    });
    assert_eq!(outcomes(&case, None, 0), vec![Outcome::Passed; 3]);
    for outcome in outcomes(&case, Some(Fault::WrongByte), 1) {
        let told = "call 0: row 0, element 0 of the result";
        assert!(
            matches!(&outcome, Outcome::Failed(reason) if reason.contains(told)),
            "{outcome:?}"
        );
    }
}
