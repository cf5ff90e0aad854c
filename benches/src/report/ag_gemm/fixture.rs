//! A made-up section for tests.

use super::*;
use crate::report::collectives::Time;

fn entry(by: &str, ns: f64) -> Entry {
    Entry {
        by: by.into(),
        time: Time::from_rounds(&[ns, ns * 0.99, ns * 1.01]),
        checked: 1000,
        ..Entry::default()
    }
}

/// A large shape sharded by rows, and a small one sharded by columns, with graph replays.
pub(in crate::report) fn products() -> AgGemmResults {
    let absent = |by: &str, why: &str| Entry {
        by: by.into(),
        absent: Some(why.into()),
        ..Entry::default()
    };
    let large = Measured {
        problem: GemmProblem {
            m: 32768,
            n: 8192,
            k: 16384,
            dtype: MatrixElement::Bf16,
            sharding: Sharding::Rows,
            b_order: MatrixOrder::Rows,
            bias: false,
        },
        chosen: Some("push put".into()),
        choice: None,
        entries: vec![
            entry(GEMM, 12.5e6),
            entry(OWN_GEMM, 12.6e6),
            entry(GATHER, 2.8e6),
            entry(TOGETHER, 12.8e6),
            entry(BASELINE, 15e6),
            entry("pipeline", 13.2e6),
            absent("pull", "this device has no `Pull` kernel for this shape"),
            Entry {
                ddlb_ns: Some(12.9e6),
                how: "put".into(),
                ..entry("push", 13e6)
            },
            absent(TORCH, "it failed earlier in this run"),
            entry(TORCH_FUSED, 14.8e6),
        ],
        rounds: 9,
        derived: Vec::new(),
    };
    let replayed = |by: &str, ns: f64| Entry {
        graph: Time::from_rounds(&[ns]),
        ..entry(by, ns * 2.0)
    };
    let small = Measured {
        problem: GemmProblem {
            m: 16,
            n: 3584,
            k: 8192,
            dtype: MatrixElement::F16,
            sharding: Sharding::Columns,
            b_order: MatrixOrder::Rows,
            bias: false,
        },
        chosen: Some(BASELINE.into()),
        choice: None,
        entries: vec![
            replayed(GEMM, 18e3),
            replayed(GATHER, 9e3),
            replayed(WINDOWS, 24e3),
            replayed(BASELINE, 27e3),
            replayed("pull", 21e3),
        ],
        rounds: 9,
        derived: Vec::new(),
    };
    let state = |name: &str, version: Option<&str>, absent: Option<&str>| BaselineState {
        name: name.into(),
        version: version.map(str::to_owned),
        absent: absent.map(str::to_owned),
    };
    let mut section = AgGemmResults {
        world: 8,
        baselines: vec![
            state("collectives library", Some("NCCL 2.28.9"), None),
            state("pytorch", Some("PyTorch 2.11.0"), None),
        ],
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
