//! A made-up section for tests.

use super::super::ag_gemm::{MatrixElement, MatrixOrder};
use super::super::collectives::Time;
use super::*;

fn entry(by: &str, ns: f64) -> Entry {
    Entry {
        by: by.into(),
        time: Time::from_rounds(&[ns]),
        checked: 1000,
        ..Entry::default()
    }
}

/// A large shape for which a pipeline is best, and a small one with graph replays.
pub(in crate::report) fn example() -> GemmReduceResults {
    let problem = |m, k| GemmReduceProblem {
        m,
        n: 8192,
        k,
        dtype: MatrixElement::Bf16,
        b_order: MatrixOrder::Rows,
        bias: false,
    };
    let (put, kernel) = (
        "pipeline put, 2 chunks, 2 streams",
        "pipeline kernel, 2 chunks, 2 streams",
    );
    let large = MeasuredReduce {
        problem: problem(8192, 4096),
        chosen: Some(put.into()),
        choice: None,
        entries: vec![
            entry(GEMM, 0.9e6),
            Entry {
                how: "copy_engine".into(),
                ..entry(COLLECTIVE, 0.5e6)
            },
            Entry {
                by: GEMM_THEN_NCCL.into(),
                absent: Some("NCCL was not found".into()),
                ..Entry::default()
            },
            entry(GEMM_THEN_SYMMEM, 1.4e6),
            Entry {
                how: put.into(),
                ..entry(AUTOMATIC, 1e6)
            },
            entry(BASELINE, 1.2e6),
            entry(put, 1.01e6),
            entry(kernel, 1e6),
        ],
        rounds: 9,
        derived: Vec::new(),
    };
    let replayed = |by: &str, ns: f64| Entry {
        graph: Time::from_rounds(&[ns]),
        ..entry(by, ns * 2.0)
    };
    let small = MeasuredReduce {
        problem: problem(16, 14336),
        chosen: Some(BASELINE.into()),
        choice: None,
        entries: vec![
            replayed(GEMM, 50e3),
            replayed(COLLECTIVE, 4e3),
            replayed(GEMM_THEN_NCCL, 80e3),
            replayed(GEMM_THEN_SYMMEM, 56e3),
            Entry {
                how: BASELINE.into(),
                ..replayed(AUTOMATIC, 55e3)
            },
            replayed(BASELINE, 55e3),
            replayed("pipeline put, 1 chunk, 1 stream", 90e3),
        ],
        rounds: 9,
        derived: Vec::new(),
    };
    let mut section = GemmReduceResults {
        collective: GemmCollective::ReduceScatter,
        world: 2,
        baselines: vec![BaselineState {
            name: "collectives library".into(),
            version: None,
            absent: Some("NCCL was not found".into()),
        }],
        products: vec![large, small],
        worst_choice: None,
    };
    for measured in &mut section.products {
        measured.derived = measured.derive_all();
        measured.choice = measured.choose();
    }
    section.worst_choice = section.find_worst_choice();
    section
}
