//! Tests that every check can fail: they plant faults in ranks that are threads, on the host backend.

use super::case::Case;
use super::dtype::Dtype;
use super::engine::Engine;
use super::findings::Fault;
use super::length::Length;
use super::outcome::Outcome;
use super::products::{GemmCase, GemmCaseElement, GemmVariant};
use super::session::Session;
use super::transfer_case::{Operation, Placement, Traffic, TransferCase};
use std::time::Duration;
use symmem::Builder;
use symmem::backends::Selection;
use symmem::bootstrap::LaunchEnvironment;

const CASE: TransferCase = TransferCase {
    operation: Operation::Put,
    traffic: Traffic::Ring,
    dtype: Dtype::U16,
    length: Length::Elements(33),
    destination_offset: 3,
    source_offset: 1,
    engine: Engine::AUTOMATIC,
    placement: Placement::Device,
    seed: 11,
};

/// Runs `case` on three ranks, with a fault at rank `faulty`; returns every rank's outcome.
pub(super) fn outcomes(case: &Case, fault: Option<Fault>, faulty: usize) -> Vec<Outcome> {
    // What never comes has a short deadline. A busy machine must not miss that of what comes.
    let deadline = match fault {
        Some(Fault::Absent | Fault::MissingSignal) => Duration::from_secs(1),
        _ => Duration::from_secs(60),
    };
    let job = LaunchEnvironment::alone().unwrap().job.unwrap();
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..3)
            .map(|rank| {
                let job = job.clone();
                scope.spawn(move || {
                    let communicator = Builder::new()
                        .launch(LaunchEnvironment::local(rank, 3, job).unwrap())
                        .backend(Selection::Named("host".into()))
                        .setup_deadline(Duration::from_secs(60))
                        .build()
                        .unwrap();
                    let mut session = Session::new(&communicator).unwrap().deadline(deadline);
                    session.fault = fault.filter(|_| rank as usize == faulty);
                    session.run(case)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Returns the reason that each rank gives when `fault` is planted in rank 1.
fn reasons(operation: Operation, fault: Fault) -> Vec<String> {
    let case = Case::Transfer(TransferCase { operation, ..CASE });
    assert_eq!(
        outcomes(&case, None, 0),
        vec![Outcome::Passed; 3],
        "{operation:?} without a fault"
    );
    let failed = outcomes(&case, Some(fault), 1)
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Failed(reason) => reason,
            other => panic!("{operation:?} with {fault:?}: {other:?}"),
        });
    failed.collect()
}

#[test]
fn one_wrong_byte_fails_the_case_on_every_rank() {
    for operation in Operation::TRANSFERS {
        for reason in reasons(operation, Fault::WrongByte) {
            assert!(
                reason.contains("rank 1:") && reason.contains("element 0 from rank"),
                "{reason}"
            );
        }
    }
}

#[test]
fn a_guard_that_is_overwritten_fails_the_case_on_every_rank() {
    for operation in Operation::TRANSFERS {
        for reason in reasons(operation, Fault::Guard) {
            assert!(
                reason.contains("rank 1:") && reason.contains("guard element"),
                "{reason}"
            );
        }
    }
}

#[test]
fn a_source_that_changes_fails_the_case_on_every_rank() {
    for operation in [Operation::Put, Operation::PutSignal] {
        for reason in reasons(operation, Fault::Source) {
            assert!(reason.contains("of the source has become"), "{reason}");
        }
    }
}

#[test]
fn data_that_comes_after_its_barrier_fails_the_case_on_every_rank() {
    for reason in reasons(Operation::Barrier, Fault::Late) {
        assert!(
            reason.contains("rank 2:") && reason.contains("after a barrier"),
            "{reason}"
        );
    }
}

#[test]
fn a_signal_that_never_comes_fails_the_case_on_every_rank_within_its_deadline() {
    let started = std::time::Instant::now();
    let reasons = reasons(Operation::PutSignal, Fault::MissingSignal);
    assert!(
        reasons
            .iter()
            .any(|reason| reason.contains("peer 1): timed out")),
        "{reasons:?}"
    );
    assert!(started.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_wrong_element_of_a_product_and_other_bits_of_the_same_call_fail_the_case_on_every_rank() {
    let variants = GemmVariant::ALL.into_iter();
    let variants = variants.filter(|variant| !variant.is_nccl());
    let elements = [GemmCaseElement::Bf16, GemmCaseElement::F8E4M3];
    for (variant, element) in
        variants.flat_map(|variant| elements.map(|element| (variant, element)))
    {
        let case = Case::AllGatherGemm(GemmCase {
            variant,
            element,
            m: 20,
            n: 5,
            k: 9,
            by_columns: false,
            b_by_columns: false,
            gap: 1,
            bias: true,
            scaled: element == GemmCaseElement::F8E4M3,
            nan: false,
            gathered: true,
            streams: 2,
            ordered: true,
            chunk_rows: 0,
            captured: false,
            seed: 3,
        });
        assert_eq!(
            outcomes(&case, None, 0),
            vec![Outcome::Passed; 3],
            "{variant:?}"
        );
        for (fault, told) in [
            (Fault::WrongByte, "rank 1: call 0: C[0, 0] is"),
            (
                Fault::WrongOrder,
                "rank 1: call 1 repeated: element 0 of C is",
            ),
        ] {
            for outcome in outcomes(&case, Some(fault), 1) {
                let Outcome::Failed(reason) = outcome else {
                    panic!("{variant:?}: {outcome:?}");
                };
                assert!(reason.contains(told), "{reason}");
            }
        }
    }
}
